# SPDX-License-Identifier: Apache-2.0
"""How a build tells how far it is, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of each step of a build; the command line draws it."""

    def begin(self, step: str, total: int | None = None) -> None:
        """A step begins, the one before it is over; `total` is an estimate of its size where there is one."""

    def advance(self, done: int) -> None:
        """The step has got to `done`."""


class Silence:
    """A progress that nobody listens to."""

    def begin(self, step: str, total: int | None = None) -> None: ...

    def advance(self, done: int) -> None: ...
