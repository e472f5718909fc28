# SPDX-License-Identifier: Apache-2.0
"""The command line: each command in a few lines, the work in the part that it names."""

from __future__ import annotations

from typing import Annotated

import typer

import forktail
from forktail.cli.abridge import abridge
from forktail.cli.baseline import app as baseline
from forktail.cli.client import client
from forktail.cli.compare import EPILOG, compare
from forktail.cli.console import new_app
from forktail.cli.doctor import doctor
from forktail.cli.fleet import app as fleet
from forktail.cli.kernel import app as kernel
from forktail.cli.lab import app as lab
from forktail.cli.run import report_run, run
from forktail.cli.sweep import sweep

app = new_app(
    "What fork-based snapshots do to the tail latency of in-memory stores.",
    "Exit codes: 0 ok, 1 the result failed a check, 2 bad input, 3 the host lacks something, 130 interrupted; "
    "those of compare tell its verdict.",
)

app.command(epilog="Example: forktail run workloads/quick.toml --set server.size=1GiB --set load.rate=20000")(run)
app.command(epilog="Example: forktail sweep workloads/quick.toml --set sweep.repeat=5 --out results/nightly")(sweep)
app.command(name="report", epilog="Example: forktail report results/20260131T120000-quick")(report_run)
app.command(epilog=EPILOG)(compare)
app.command(epilog="Example: forktail abridge results/20260131T120000-fork-by-size-sweep results/reference")(abridge)
app.command(epilog="Example: forktail client --bind 10.0.0.2")(client)
app.command(epilog="Example: forktail doctor --json")(doctor)
app.add_typer(kernel, name="kernel")
app.add_typer(lab, name="lab")
app.add_typer(fleet, name="fleet")
app.add_typer(baseline, name="baseline")


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"forktail {forktail.__version__}")
        raise typer.Exit


def main() -> None:
    """Entry point of the `forktail` command."""
    app(prog_name="forktail")
