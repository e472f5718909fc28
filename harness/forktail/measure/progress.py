# SPDX-License-Identifier: Apache-2.0
"""How a run tells how far it is, without knowing who listens."""

from __future__ import annotations

from typing import Literal, Protocol

Stage = Literal["fill", "load", "persist"]


class Progress(Protocol):
    """Told of each stage of a run, by name; the command line draws it."""

    def begin(self, stage: Stage, total: float) -> None:
        """A stage begins that is over at `total` (keys, seconds)."""

    def advance(self, stage: Stage, done: float) -> None:
        """The stage has got to `done`."""

    def end(self, stage: Stage) -> None:
        """The stage is over."""


class Silence:
    """A progress that nobody listens to."""

    def begin(self, stage: Stage, total: float) -> None: ...

    def advance(self, stage: Stage, done: float) -> None: ...

    def end(self, stage: Stage) -> None: ...
