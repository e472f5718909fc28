# SPDX-License-Identifier: Apache-2.0
"""`forktail fleet`: a sweep whose runs other hosts make; playbooks/sweep.yml drives them by it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from forktail.cli.console import Json, new_app, notes, print_json, told_clearly
from forktail.cli.run import RESULTS
from forktail.errors import BadInput
from forktail.kernel.series import FLAVOURS
from forktail.sweep import fleet
from forktail.sweep.plan import over_hosts, plan_sweep
from forktail.sweep.sweep import open_sweep
from forktail.workload import assigned_keys, read_workload

app = new_app("A sweep over hosts: what each has to do, and their runs in one report.")


@app.command(epilog="Example: forktail fleet plan workloads/quick.toml --host lab1 --host lab2 --json")
def plan(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file; its [sweep] says what varies.")],
    hosts: Annotated[list[str], typer.Option("--host", metavar="NAME", help="A host that is to make all of it.")],
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernel", metavar="FLAVOUR", help="A kernel to measure [sweep.kernels, else all]."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload, and do not vary it."),
    ] = None,
    emulated: Annotated[
        bool, typer.Option("--emulated", help="The hosts are emulated: take the workload's [emulated] values.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's directory; one that is there is resumed.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only see that it can be planned; nothing is written.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Begin a sweep over hosts, or take up the one in --out, and tell what is left for each host to do."""
    with told_clearly():
        fleet.check_hosts(hosts)
        sweep = read_workload(workload, assignments or []).sweep
        if kernels and "sweep.kernels" in assigned_keys(assignments or []):
            raise BadInput("--kernel and --set sweep.kernels both choose the kernels: give one of them.")
        wanted = kernels or sweep.kernels or list(FLAVOURS)
        fleet.check_kernels(wanted)
        whole = over_hosts(plan_sweep(workload, assignments or [], wanted, emulated), hosts)
        if sweep.spare:
            notes.print(
                f"sweep.spare = {sweep.spare} has no effect over hosts: each spare run would cost two boots.",
                highlight=False,
                soft_wrap=True,
            )
        if check:
            if as_json:
                print_json({"able": True, "name": whole.name, "runs": len(whole.runs), "cells": len(whole.cells)})
            else:
                print(f"{whole.name} can be planned: {len(whole.runs)} runs of {len(whole.cells)} cells.")
            return
        directory = out or RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{whole.name}-sweep"
        open_sweep(whole, directory)
        task = fleet.task(whole, hosts, directory)
        if as_json:
            print_json(task)
            return
        print(f"{task['directory']}: {task['finished']} of {task['runs']} runs are there.")
        for host, legs in task["hosts"].items():
            left = ", ".join(f"{leg['kernel']} ({len(leg['runs'])})" for leg in legs) or "nothing"
            print(f"{host}: {left}")


@app.command(epilog="Example: forktail fleet take results/20260131T120000-quick-sweep default-r1 /tmp/default-r1.tar")
def take(
    directory: Annotated[Path, typer.Argument(help="The sweep's directory.")],
    name: Annotated[str, typer.Argument(metavar="RUN", help="The run's name in the plan.")],
    archive: Annotated[Path, typer.Argument(metavar="TAR", help="A tar of what the run's directory holds.")],
) -> None:
    """Take a run that a host made into the sweep, and print where it lies."""
    with told_clearly():
        print(fleet.take(directory, name, archive))
