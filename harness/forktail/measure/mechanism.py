# SPDX-License-Identifier: Apache-2.0
"""The fork mechanism of the kernel at hand: switched on for the server, and seen to be on before each snapshot.

A silent fall-back to the default fork is the likeliest false result of all, so what was read back is kept in the
manifest, and the analysis looks at the fork's own duration besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forktail.errors import EnvironmentLacks, RunFailed
from forktail.measure.proc import read_text

DEFAULT = "default"
ODF = "odf"


@dataclass(frozen=True)
class Mechanism:
    """How the server is to fork: `knob` is the file that says so, None where there is nothing to switch."""

    name: str
    knob: Path | None = None
    on: str = ""

    def read_back(self) -> str | None:
        """What the knob holds now."""
        return read_text(self.knob) if self.knob else None

    def verify(self) -> None:
        """RunFailed where the knob no longer holds what was written."""
        if self.knob and self.read_back() != self.on:
            raise RunFailed(
                f"{self.knob} holds {self.read_back()!r} and not {self.on!r}: the snapshot would use another fork."
            )

    def as_json(self) -> dict[str, str | None]:
        """For the manifest."""
        return {
            "name": self.name,
            "knob": str(self.knob) if self.knob else None,
            "wanted": self.on or None,
            "read_back": self.read_back(),
        }


def switch_on(flavour: str, wanted: str, pid: int) -> Mechanism:
    """Switch the kernel's mechanism on for the server; `wanted` is the workload's `snapshot.fork`."""
    if wanted == DEFAULT or flavour != ODF:
        return Mechanism(DEFAULT)
    mechanism = Mechanism(ODF, Path(f"/proc/{pid}/use_odf"), "1")
    assert mechanism.knob is not None
    try:
        mechanism.knob.write_text(mechanism.on, encoding="ascii")
    except OSError as error:
        raise EnvironmentLacks(
            f"The kernel calls itself {flavour}, but {mechanism.knob} cannot be written ({error.strerror}): "
            f"build it anew by `forktail kernel build {flavour}`."
        ) from error
    mechanism.verify()
    return mechanism
