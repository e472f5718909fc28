# SPDX-License-Identifier: Apache-2.0
"""The command line: each command in a few lines, the work in the part that it names.

The analysis side is imported only when a result is wanted, after the measurement is over.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import forktail
from forktail.errors import ForktailError
from forktail.measure.doctor import Diagnosis, diagnose
from forktail.measure.progress import Stage
from forktail.measure.run import measure
from forktail.workload import Workload, read_workload

RESULTS = Path("results")
INTERRUPTED = 130

app = typer.Typer(
    help="What fork-based snapshots do to the tail latency of in-memory stores.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 the result failed a check, 2 bad input, 3 the host lacks something, 130 interrupted.",
)
notes = Console(stderr=True)


class _Bars:
    """A run's progress as bars on a terminal, as plain lines elsewhere."""

    _TEXT: ClassVar = {"fill": "fill the server", "load": "open-loop load", "persist": "persist (BGSAVE)"}

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

    def __enter__(self) -> _Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begin(self, stage: Stage, total: float) -> None:
        if not notes.is_terminal:
            notes.print(f"{self._TEXT[stage]} ...")
        self._tasks[stage] = self._bars.add_task(self._TEXT[stage], total=total or None)

    def advance(self, stage: Stage, done: float) -> None:
        if stage in self._tasks:
            self._bars.update(self._tasks[stage], completed=done)

    def end(self, stage: Stage) -> None:
        task = self._tasks[stage]
        total = self._bars.tasks[task].total or 1
        self._bars.update(task, total=total, completed=total)
        self._bars.stop_task(task)


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _told_clearly() -> Iterator[None]:
    """Every expected failure ends in its sentence and its exit code, never in a traceback."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        yield
    except ForktailError as error:
        notes.print(f"forktail: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        notes.print("forktail: interrupted; every process was ended, a run under way keeps its .partial directory.")
        raise typer.Exit(INTERRUPTED) from interrupt
    except BrokenPipeError as error:
        sys.stderr.close()
        raise typer.Exit(1) from error


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _conclude(run: Path, as_json: bool) -> None:
    """Analyse a run, print its table and where the report lies; exit code 1 for a run that is not valid."""
    from forktail.analysis import analyse
    from forktail.analysis.table import print_summary

    summary = analyse(run)
    if as_json:
        _print_json(summary.document)
    else:
        print_summary(summary)
        print(f"\nReport: {run / 'report.html'}")
    if not summary.valid:
        raise typer.Exit(1)


def _default_out(workload: Workload) -> Path:
    return RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{workload.name}"


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forktail {forktail.__version__}")
        raise typer.Exit


@app.command(epilog="Example: forktail run workloads/quick.toml --set server.size=1GiB --set load.rate=20000")
def run(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run directory [results/TIME-NAME].")
    ] = None,
    report: Annotated[bool, typer.Option(help="Analyse and report after the run.")] = True,
    as_json: Json = False,
) -> None:
    """Run a workload on the kernel at hand: fill, load, snapshot, measure, classify, report."""
    with _told_clearly():
        plan = read_workload(workload, assignments or [])
        with _Bars() as bars:
            directory = measure(plan, out or _default_out(plan), bars)
        if report:
            _conclude(directory, as_json)
        else:
            print(directory)


@app.command(name="report", epilog="Example: forktail report results/20260131T120000-quick")
def report_run(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    as_json: Json = False,
) -> None:
    """Make the result of a run again from its raw files: table, summary.json, report.html, pictures."""
    with _told_clearly():
        _conclude(run, as_json)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    console = Console(soft_wrap=True, highlight=False)
    kernel = diagnosis.kernel
    console.print(f"Kernel {kernel['release']} ({kernel['flavour']} fork), BTF {'yes' if kernel['btf'] else 'no'}")
    for name, path in diagnosis.programs.items():
        console.print(f"  {name:<15} {path}", markup=False)
    if diagnosis.measurements:
        table = Table("measurement", "probe used", "note", "better ones refused", title="What can be measured here")
        for measurement in diagnosis.measurements:
            refused = "\n".join(f"{rejection.probe}: {rejection.why}" for rejection in measurement.rejected)
            table.add_row(measurement.name, measurement.probe or "none", measurement.label, refused)
        Console(highlight=False, width=None if console.is_terminal else 160).print(table)
    sections: list[tuple[str, list[str], str]] = [
        ("Missing", diagnosis.missing, "nothing: `forktail run` can run here"),
        ("Differs from a comparable host", diagnosis.deviations, "nothing"),
    ]
    for title, sentences, otherwise in sections:
        console.print(f"{title}: {otherwise if not sentences else ''}")
        for sentence in sentences:
            console.print(f"  - {sentence}", markup=False)


@app.command(epilog="Example: forktail doctor --json")
def doctor(as_json: Json = False) -> None:
    """Say what this host can measure, by which probe, and what is missing (exit code 3 if anything is)."""
    with _told_clearly():
        diagnosis = diagnose()
        if as_json:
            _print_json(diagnosis.as_json())
        else:
            _print_diagnosis(diagnosis)
        if diagnosis.missing:
            raise typer.Exit(3)


def main() -> None:
    """Entry point of the `forktail` command."""
    app(prog_name="forktail")
