# SPDX-License-Identifier: Apache-2.0
"""forktail-probe as the harness drives it: attach to the server, arm, hear of forks and windows, stop."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forktail.errors import EnvironmentLacks
from forktail.measure.native import Native, find_native

NAME = "forktail-probe"
REQUIRED = ("fork", "window_end")
"""Without these a query cannot be classified, so there is nothing to run for."""


@dataclass(frozen=True)
class Fork:
    """A fork of the server as the probe saw it; `window_end_ns` is 0 while its child lives.

    Where only the birth of its child was seen it is not `measured`: `start_ns` is the birth, `duration_ns` is 0.
    """

    start_ns: int
    duration_ns: int
    child: int
    window_end_ns: int = 0
    measured: bool = True


@dataclass(frozen=True)
class ArmedStretch:
    """A stretch in which the probe's costly programs were attached; `until_ns` is 0 while it lasts."""

    from_ns: int
    armed_ns: int
    until_ns: int = 0


class Probe:
    """The probe at work on the server with the given pid."""

    def __init__(self, pid: int, events: Path) -> None:
        self.header: dict[str, Any] = {}
        self.trailer: dict[str, Any] = {}
        self.forks: list[Fork] = []
        self.armed: list[ArmedStretch] = []
        self._arms = 0
        self.native = Native(NAME, [f"--pid={pid}", f"--events={events}"], self._on_event)
        self.native.wait_for(lambda: bool(self.header), "its first word", 60)

    def _on_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self.header = event["header"]
            case "armed":
                self._arms += 1
                self._arm_at(event["from_ns"], event["t_ns"])
            case "disarmed":
                self.armed[-1] = replace(self.armed[-1], until_ns=event["t_ns"])
            case "fork":
                self.forks.append(Fork(event["start_ns"], event["duration_ns"], event["child"]))
            case "fork_unmeasured":
                self.forks.append(Fork(event["t_ns"], 0, event["child"], measured=False))
            case "window_end":
                self.forks = [
                    replace(fork, window_end_ns=event["t_ns"])
                    if fork.child == event["child"] and fork.window_end_ns == 0
                    else fork
                    for fork in self.forks
                ]
            case "end":
                self.trailer = event["trailer"]

    def _arm_at(self, from_ns: int, armed_ns: int) -> None:
        # Armed again while it was armed, it attaches nothing: the stretch goes on.
        if not self.armed or self.armed[-1].until_ns:
            self.armed.append(ArmedStretch(from_ns, armed_ns))

    def arm(self) -> None:
        """Open the gates for the coming snapshot, and wait until they are open."""
        before = self._arms
        self.native.say("arm")
        self.native.wait_for(lambda: self._arms > before, "being armed", 10)

    def fork_since(self, t_ns: int) -> Fork | None:
        """The first fork that began at or after a time; None while there is none."""
        later = [fork for fork in self.forks if fork.start_ns >= t_ns]
        return min(later, key=lambda fork: fork.start_ns, default=None)

    def stop(self) -> dict[str, Any]:
        """Detach; returns header and trailer together (docs/formats.md, `probe.json`)."""
        self.native.say("stop")
        self.native.wait(60)
        return self.header | {"trailer": self.trailer}


def dry_run() -> dict[str, Any]:
    """The header that a probe would have on this host: the chosen and the rejected probe of each measurement."""
    result = subprocess.run([find_native(NAME), "--dry-run"], capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        raise EnvironmentLacks(result.stderr.strip() or f"{NAME} --dry-run failed with exit code {result.returncode}.")
    header: dict[str, Any] = json.loads(result.stdout)
    return header
