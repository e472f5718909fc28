# SPDX-License-Identifier: Apache-2.0
"""`forktail lab`: guests of this machine, one a kernel, and runs in them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from forktail.cli.console import Json, new_app, notes, print_json, told_clearly
from forktail.cli.run import RESULTS, conclude
from forktail.errors import BadInput
from forktail.lab import registry
from forktail.lab.accelerator import accelerator_for
from forktail.lab.boot import bring_up, guest_for_one_command, take_down
from forktail.lab.host import LabHost, boot_host, end_host, find_host, hosts, kernel_json, owner_of, raise_host
from forktail.lab.keeper import keep_watch
from forktail.lab.kernel import LabKernel, built_kernels, find_kernel
from forktail.lab.machine import Machine, accelerator_name
from forktail.lab.registry import Entry
from forktail.lab.remote import ssh_command, ssh_options
from forktail.lab.run import check_fits, fits, run_in, sole_run
from forktail.units import format_size, parse_size
from forktail.workload import (
    Workload,
    assigned_keys,
    read_workload,
    refuse_sweep_keys,
    refuse_without_effect,
    wants_icount,
)

app = new_app("QEMU guests of this machine, one a kernel, each a host over SSH; what they write is thrown away.")

_DEFAULT = Machine()

Memory = Annotated[
    str | None,
    typer.Option("--memory", metavar="SIZE", help=f"Memory of a guest [{format_size(_DEFAULT.memory_bytes)}]."),
]
Cpus = Annotated[int | None, typer.Option("--cpus", help=f"Virtual CPUs of a guest [{_DEFAULT.cpus}].")]
Icount = Annotated[
    bool,
    typer.Option(
        "--icount",
        help="Count time in instructions, 1 a nanosecond, on one CPU unless --cpus says more: exact costs.",
    ),
]
IcountOfRun = Annotated[
    bool | None,
    typer.Option(
        "--icount/--no-icount",
        help="Count time in instructions, 1 a nanosecond, on one CPU unless --cpus says more "
        "[emulated.icount of the workload].",
        show_default=False,
    ),
]
NumaNodes = Annotated[int | None, typer.Option("--numa-nodes", help="NUMA nodes that a guest is split over [1].")]


def _tell(sentence: str) -> None:
    notes.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadInput(f"--memory {error}.") from error


def machine_of(memory: str | None, cpus: int | None, numa_nodes: int | None = None, icount: bool = False) -> Machine:
    """The machine of a guest by the options given; what is not given is as by default."""
    size = _size(memory)
    return Machine(
        memory_bytes=_DEFAULT.memory_bytes if size is None else size,
        cpus=(1 if icount else _DEFAULT.cpus) if cpus is None else cpus,
        numa_nodes=_DEFAULT.numa_nodes if numa_nodes is None else numa_nodes,
        icount=icount,
    )


def machine_for_run(
    workload: Path,
    emulates: Callable[[Machine], bool],
    memory: str | None,
    cpus: int | None,
    numa_nodes: int | None = None,
    icount: bool | None = None,
) -> Machine:
    """As `machine_of`; where that is emulated and the options leave it open, the workload says how its time passes."""
    machine = machine_of(memory, cpus, numa_nodes, bool(icount))
    open_ = icount is None and cpus in (None, 1) and numa_nodes in (None, 1)
    if open_ and wants_icount(workload) and emulates(machine):
        return machine_of(memory, None, None, icount=True)
    return machine


def _up_guest(name: str) -> Entry:
    entry = registry.living().get(name)
    if entry is None and name in hosts():
        raise BadInput(f"The lab host {name} is off: `forktail lab boot {name}`.")
    if entry is None:
        raise BadInput(f"No guest of {name} is up: `forktail lab up --kernel {name}`, or see `forktail lab status`.")
    return entry


def _host_json(host: LabHost) -> dict[str, Any]:
    """A host, what it runs now, and how SSH reaches it."""
    entry = host.guest()
    return {
        "name": host.name,
        "state": "off" if entry is None else "ready" if entry.ready else "booting",
        "kernel": kernel_json(entry.guest.kernel) if entry else None,
        "stock": kernel_json(host.stock),
        "accelerator": host.accelerator,
        "machine": asdict(host.machine),
        "disk": str(host.disk),
        "port": host.port,
        "address": host.place.address,
        "key": str(host.image.key),
        "ssh_options": ssh_options(host.image),
        "owner": host.owner.pid if host.owner else None,
    }


def _status_json(entries: dict[str, Entry]) -> dict[str, Any]:
    guests = [entry.as_json() | {"ssh": shlex.join(ssh_command(entry.guest))} for entry in entries.values()]
    return {
        "schema": "forktail.lab-status/1",
        "guests": guests,
        "hosts": [_host_json(host) for host in hosts().values()],
    }


def _print_status(entries: dict[str, Entry]) -> None:
    off = [host for host in hosts().values() if host.name not in entries]
    if not entries and not off:
        print("No guest is up.")
        return
    table = Table("guest", "kernel", "state", "accelerator", "CPUs", "memory", "SSH port", "pid")
    for entry in entries.values():
        guest, machine = entry.guest, entry.guest.machine
        table.add_row(
            guest.name,
            guest.kernel.release,
            "ready" if entry.ready else "booting",
            accelerator_name(guest.accelerator, machine),
            str(machine.cpus) + (f" on {machine.numa_nodes} nodes" if machine.numa_nodes > 1 else ""),
            format_size(machine.memory_bytes),
            str(guest.port),
            str(guest.pid),
        )
    for host in off:
        table.add_row(host.name, "", "off", "", str(host.machine.cpus), format_size(host.machine.memory_bytes), "", "")
    console = Console(highlight=False)
    Console(highlight=False, width=None if console.is_terminal else 120).print(table)


@app.command(epilog="Example: forktail lab up --kernel odf --kernel default --memory 6GiB")
def up(
    kernels: Annotated[
        list[str] | None,
        typer.Option("--kernel", metavar="FLAVOUR|PATH", help="A flavour, or a bzImage [every flavour that is built]."),
    ] = None,
    memory: Memory = None,
    cpus: Cpus = None,
    numa_nodes: NumaNodes = None,
    icount: Icount = False,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            help="Boot one lab host of this name instead, with a disk of its own; --kernel is its stock one [default].",
        ),
    ] = None,
    owner: Annotated[
        int | None, typer.Option("--owner", metavar="PID", help="With --name: end the host when this process ends.")
    ] = None,
) -> None:
    """Boot a guest of each kernel and leave it up; the first call makes the guest image."""
    with told_clearly():
        machine = machine_of(memory, cpus, numa_nodes, icount)
        if name is not None:
            if kernels and len(kernels) > 1:
                raise BadInput("A lab host has one stock kernel: give --kernel once with --name.")
            stock = find_kernel(kernels[0] if kernels else "default")
            raise_host(name, stock, machine, owner_of(owner) if owner else None, keep_watch, _tell)
            _print_status(registry.living())
            return
        if owner is not None:
            raise BadInput("--owner is for a lab host: give --name with it.")
        wanted = [find_kernel(name) for name in kernels] if kernels else built_kernels()
        bring_up(list({kernel.flavour: kernel for kernel in wanted}.values()), machine, _tell)
        _print_status(registry.living())


@app.command(epilog='Example: forktail lab boot lab1 --kernel odf --append "mitigations=off"')
def boot(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A lab host.")],
    kernel_name: Annotated[
        str | None,
        typer.Option("--kernel", metavar="FLAVOUR|PATH", help="A flavour, or a bzImage [the host's stock kernel]."),
    ] = None,
    arguments: Annotated[str, typer.Option("--append", help="Further arguments of the kernel.")] = "",
    as_json: Json = False,
) -> None:
    """Shut a lab host down and boot it with a kernel; one that does not come up leaves the host off."""
    with told_clearly():
        host = find_host(name)
        guest = boot_host(host, find_kernel(kernel_name) if kernel_name else host.stock, arguments, _tell)
        if as_json:
            print_json(_host_json(find_host(name)))
        else:
            print(f"{name} runs {guest.kernel.release}.")


@app.command(epilog="Example: forktail lab kernels default odf --json")
def kernels(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[FLAVOUR|PATH]...", help="[all that are built].")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which kernels a guest can boot; one that is not built is told with its mend."""
    with told_clearly():
        found = [find_kernel(name) for name in names] if names else built_kernels()
        if as_json:
            print_json({"kernels": [kernel_json(kernel) for kernel in found]})
        else:
            for kernel in found:
                print(f"{kernel.flavour}  {kernel.release}  {kernel.image}")


@app.command(epilog="Example: forktail lab down odf")
def down(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Guests and hosts to end [all].")
    ] = None,
) -> None:
    """End guests and hosts of `forktail lab up`; what they wrote is gone with them."""
    with told_clearly():
        there = hosts()
        for name in names or sorted({*registry.living(), *there}):
            if name in there:
                end_host(there[name])
            else:
                take_down(_up_guest(name).guest)
            print(f"{name} is down.")


@app.command(epilog="Example: forktail lab status --json")
def status(as_json: Json = False) -> None:
    """Say which guests are up, on which kernel and machine."""
    with told_clearly():
        entries = registry.living()
        if as_json:
            print_json(_status_json(entries))
        else:
            _print_status(entries)


@app.command(epilog="Example: forktail lab ssh odf -- forktail doctor")
def ssh(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A guest that is up: a flavour, or a lab host.")],
    command: Annotated[list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="What to run there.")] = None,
) -> None:
    """Open a shell in a guest as root, or run a command there."""
    with told_clearly():
        base = ssh_command(_up_guest(name).guest)
        if command and len(command) > 1:
            command = [shlex.join(command)]  # The guest's shell splits again; a single word is its line as it is.
        arguments = [*base, *(command or [])]
        os.execv(arguments[0], arguments)  # noqa: S606


def _fitting(kernel: LabKernel, plan: Workload, machine: Machine, asked: bool) -> Entry | None:
    """The guest of `lab up` that can carry the run; when a machine was asked for, only one that is just that."""
    entry = registry.living().get(kernel.flavour)
    if entry is None or not entry.ready or entry.guest.kernel != kernel:
        return None
    if asked:
        return entry if entry.guest.machine == machine else None
    return entry if entry.guest.machine.icount == machine.icount and fits(plan, entry.guest.machine) else None


@app.command(epilog="Example: forktail lab run workloads/quick.toml --kernel odf --set load.rate=1000")
def run(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file.")],
    kernel_name: Annotated[
        str, typer.Option("--kernel", metavar="FLAVOUR|PATH", help="A flavour, or a bzImage.")
    ] = "default",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run directory [results/TIME-NAME-FLAVOUR].")
    ] = None,
    memory: Memory = None,
    cpus: Cpus = None,
    numa_nodes: NumaNodes = None,
    icount: IcountOfRun = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the guest up, as `forktail lab up` does.")] = False,
    as_json: Json = False,
) -> None:
    """Run a workload in a guest, bring the run directory here and report it as `forktail run` does.

    A guest of `forktail lab up` is used when it fits, else one is booted for this run alone.
    """
    with told_clearly():
        read_workload(workload, assignments or [])  # A fault in the file is told before a kernel is looked for.
        refuse_sweep_keys(assignments or [])
        kernel = find_kernel(kernel_name)

        def emulates(machine: Machine) -> bool:
            return accelerator_for(machine, kernel.image) == "tcg"

        machine = machine_for_run(workload, emulates, memory, cpus, numa_nodes, icount)
        plan = read_workload(workload, assignments or [], emulated=emulates(machine))
        refuse_without_effect(assigned_keys(assignments or []), [plan])
        asked = bool(icount) or not (memory is None and cpus is None and numa_nodes is None)
        directory = out or RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{plan.name}-{kernel.flavour}"
        entry = _fitting(kernel, plan, machine, asked)
        if entry is None:
            check_fits(plan, machine)
        if entry is None and not keep:
            with guest_for_one_command(kernel, machine, _tell) as guest:
                run_in(guest, plan, directory)
        else:
            guest = entry.guest if entry else bring_up([kernel], machine, _tell)[0]
            with sole_run(guest):
                run_in(guest, plan, directory)
        conclude(directory, as_json)
