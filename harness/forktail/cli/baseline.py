# SPDX-License-Identifier: Apache-2.0
"""`forktail baseline`: sweeps kept to compare later ones with; playbooks/nightly.yml keeps those of clean nights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forktail.cli.console import Json, new_app, print_json, told_clearly
from forktail.cli.run import RESULTS
from forktail.errors import EnvironmentLacks

app = new_app("Sweeps kept to compare later ones with, by testbed, configuration and kernels; none is ever replaced.")

Sweep = Annotated[Path, typer.Argument(help="The sweep's directory.")]
Testbed = Annotated[str, typer.Option("--testbed", metavar="NAME", help="What the hosts are called together.")]
Store = Annotated[Path, typer.Option("--store", metavar="DIR", help="Where baselines are kept.")]


@app.command(epilog="Example: forktail baseline newest results/20260131T120000-quick-sweep --testbed lab")
def newest(sweep: Sweep, testbed: Testbed, store: Store = RESULTS / "baselines", as_json: Json = False) -> None:
    """Print the newest baseline that a sweep can be compared with; exit code 3 where there is none."""
    with told_clearly():
        from forktail.analysis import baseline

        found = baseline.newest(store, testbed, sweep)
        if found is None:
            raise EnvironmentLacks(
                f"{store} has no baseline of {testbed} that measured what {sweep} does: "
                "promote a sweep that is known to be good."
            )
        if as_json:
            print_json(vars(found) | {"directory": str(found.directory)})
        else:
            print(found.directory)


@app.command(epilog="Example: forktail baseline promote results/20260131T120000-quick-sweep --testbed lab")
def promote(sweep: Sweep, testbed: Testbed, store: Store = RESULTS / "baselines") -> None:
    """Keep a sweep whose runs are all there and valid as a baseline, and print where."""
    with told_clearly():
        from forktail.analysis import baseline

        print(baseline.promote(store, testbed, sweep).directory)
