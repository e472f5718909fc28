# SPDX-License-Identifier: Apache-2.0
"""What every command shares: how it speaks, and how it ends."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from forktail.errors import ForktailError

INTERRUPTED = 130

notes = Console(stderr=True)
"""Progress and errors go to standard error, so that standard output holds the result alone."""

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def told_clearly() -> Iterator[None]:
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


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document, the result of a command called with --json."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def new_app(description: str, epilog: str | None = None) -> typer.Typer:
    """A command or a group of commands, all of one manner."""
    return typer.Typer(
        help=description,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
