# SPDX-License-Identifier: Apache-2.0
"""A run's progress as bars on a terminal, as plain lines elsewhere."""

from __future__ import annotations

from typing import ClassVar

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from forktail.cli.console import notes
from forktail.measure.progress import Stage


class Bars:
    """One bar a stage; use it as a context, so that the terminal is given back whatever happens."""

    _TEXT: ClassVar = {"fill": "fill the server", "load": "load", "persist": "persist (BGSAVE)"}

    def __init__(self) -> None:
        self._tasks: dict[str, TaskID] = {}
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            console=notes,
            disable=not notes.is_terminal,
        )

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, stage: Stage, total: float) -> None:
        """See `measure.progress.Progress`."""
        if not notes.is_terminal:
            notes.print(f"{self._TEXT[stage]} ...")
        self._tasks[stage] = self._bars.add_task(self._TEXT[stage], total=total or None)

    def advance(self, stage: Stage, done: float) -> None:
        """See `measure.progress.Progress`."""
        if stage in self._tasks:
            self._bars.update(self._tasks[stage], completed=done)

    def end(self, stage: Stage) -> None:
        """See `measure.progress.Progress`."""
        task = self._tasks[stage]
        total = self._bars.tasks[task].total or 1
        self._bars.update(task, total=total, completed=total)
        self._bars.stop_task(task)
