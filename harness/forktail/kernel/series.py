# SPDX-License-Identifier: Apache-2.0
"""A patch series with its configurations, as `kernel-configs/linux-6.1/` holds one: what makes a flavour of a base."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks

BASE = "base"
HOST = "host"
CHECKS = ("debug", "races")
"""What may be laid over a flavour to find its mistakes: of memory and locking, or of what runs at the same time."""
FLAVOURS = ("default", "odf", "async-fork")
"""As they followed each other, and are shown side by side; a flavour that someone adds comes after."""

_CHECKOUT = Path(__file__).parents[3] / "kernel-configs" / "linux-6.1"


def no_flavour(name: str, besides: str = "") -> BadInput:
    """What to raise for a name that is no flavour; `besides` is what else would have done."""
    near = difflib.get_close_matches(name, FLAVOURS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(FLAVOURS)}{besides}."
    return BadInput(f"{name!r} is no kernel flavour: {hint}")


def with_checks(name: str, checks: str | None) -> str:
    """What a release, a directory or a file is called where one of `CHECKS` is laid over: its name goes behind."""
    return f"{name}-{checks}" if checks else name


@dataclass(frozen=True)
class Series:
    """The directory of a series: `source.toml`, `patches/`, a fragment a flavour.

    Besides `base.config` for guests, `host.config` for what is packaged for hosts, and the `CHECKS` for both.
    """

    directory: Path
    version: str
    defconfig: str
    package: str
    tarball: Path

    @cached_property
    def patches(self) -> list[Path]:
        """Every flavour has every patch, in the order of the names; Kconfig options part the flavours."""
        return sorted(self.directory.glob("patches/[0-9]*.patch"))

    @property
    def flavours(self) -> list[str]:
        names = {path.stem for path in self.directory.glob("*.config")} - {BASE, HOST, *CHECKS}
        return [*(name for name in FLAVOURS if name in names), *sorted(names - set(FLAVOURS))]

    @cached_property
    def _diff(self) -> str:
        return "\n".join(path.read_text(errors="surrogateescape") for path in self.patches)

    @cached_property
    def touched(self) -> set[str]:
        """The files that the patches change, make or remove, as they are named in the kernel's tree."""
        return set(re.findall(r"^(?:--- a|\+\+\+ b)/([^\t\n]+)", self._diff, re.MULTILINE))

    def watched(self, checks: str | None) -> list[str]:
        """The objects that KCSAN is to look at where races are looked for: those of the C files that the patches make.

        It looks at one access of many, wherever that is. What is also done by all that the rest of a kernel does would
        leave it few looks at what only a fork does, and so would a file that only checks on one (`*_debug.c`), which
        looks at every entry where fork() looks at a table. It looks everywhere for patches that make none.
        """
        if checks != "races":
            return []
        made = re.findall(r"^--- /dev/null\n\+\+\+ b/(\S+)\.c$", self._diff, re.MULTILINE)
        return [f"{name}.o" for name in made if not name.endswith("_debug")]

    def fragments(self, flavour: str, checks: str | None = None, base: str = BASE) -> list[Path]:
        """The configuration fragments of a flavour, later ones winning; BadInput for one that there is not.

        `base` is `BASE` for a guest's kernel, `HOST` for one that is laid over a distribution's configuration; `checks`
        one of `CHECKS`, or none.
        """
        if flavour not in self.flavours:
            raise BadInput(
                f"There is no flavour {flavour!r}: {self.directory} has {' and '.join(self.flavours) or 'none'}."
            )
        found = [self.directory / f"{name}.config" for name in [base, flavour, *([checks] if checks else [])]]
        for path in found:
            if not path.exists():
                raise BadInput(f"{path} is missing: give --configs a directory as kernel-configs/linux-6.1 is.")
        return found


def read_series(directory: Path | None = None) -> Series:
    """The series in a directory, by default the one of this checkout."""
    if directory is None and not _CHECKOUT.is_dir():
        raise EnvironmentLacks(f"{_CHECKOUT} is missing: work from a checkout of forktail, or name one with --configs.")
    path = (directory or _CHECKOUT) / "source.toml"
    try:
        document = tomllib.loads(path.read_text())
        return Series(
            path.parent,
            document["version"],
            document["defconfig"],
            document["debian"]["package"],
            Path(document["debian"]["tarball"]),
        )
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read ({error.strerror}): give --configs a directory as kernel-configs/linux-6.1 is."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path} is not TOML: {error}.") from error
    except KeyError as error:
        raise BadInput(f"{path} does not say {error}: compare it with kernel-configs/linux-6.1/source.toml.") from error
