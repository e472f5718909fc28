# SPDX-License-Identifier: Apache-2.0
"""The machine that a guest is given, and QEMU's command line for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks
from forktail.lab.programs import find_program
from forktail.measure.proc import memory_bytes
from forktail.units import format_size

_MIB = 2**20
_LEAST_MEMORY = 512 * _MIB
_MOST_CPUS = 64

_COMMAND_LINE = (
    # A guest that panics ends at once, so that whoever waits for it hears of it.
    "root=/dev/vda rw console=ttyS0 clocksource=tsc tsc=reliable net.ifnames=0 panic=-1 "
    "transparent_hugepage=madvise systemd.show_status=false quiet"
)

_TICKING = " nohz=off"
"""An idle guest that counts instructions skips to its next timer: without a tick, past any timeout while it reads."""

_COUNTED_CPU = "max,erms=off,fsrm=off"
"""QEMU counts an instruction for each byte of `rep movsb`, which Linux takes to copy and to clear memory where the CPU
has these features; a page would take 4096 ns to clear."""

_WITH_INTERVAL_TIMER = ["-machine", "hpet=off"]
"""An HPET in Linux' hands silences the programmable interval timer, which `turns` is in need of."""


@dataclass(frozen=True)
class Machine:
    """Memory, virtual CPUs and NUMA nodes that share it, and how the guest's time passes."""

    memory_bytes: int = 4 * 2**30
    cpus: int = 2
    numa_nodes: int = 1
    icount: bool = False
    """Whether time is counted in instructions, one a nanosecond, and idle time is skipped; else it is the host's.

    The CPUs then take turns: while several are busy, each has its share of the nanoseconds.
    """

    def __post_init__(self) -> None:
        if self.memory_bytes < _LEAST_MEMORY:
            raise BadInput(
                f"A guest of {format_size(self.memory_bytes)} cannot boot: give --memory 512MiB at least, "
                "and for a run three times its server.size."
            )
        if not 1 <= self.cpus <= _MOST_CPUS:
            raise BadInput(f"--cpus {self.cpus} is not between 1 and {_MOST_CPUS}.")
        if not 1 <= self.numa_nodes <= self.cpus:
            raise BadInput(f"--numa-nodes {self.numa_nodes} is not between 1 and --cpus {self.cpus}.")
        if self.memory_bytes % (self.numa_nodes * _MIB):
            raise BadInput(f"--memory {format_size(self.memory_bytes)} is not whole MiB on each NUMA node: round it.")

    @property
    def takes_turns(self) -> bool:
        """Whether one thread of the host executes several CPUs."""
        return self.icount and self.cpus > 1


def memory_short(machines: Iterable[Machine], promised: int = 0) -> int:
    """Bytes that the host lacks for these machines; `promised` is what living guests have and did not touch yet."""
    return max(0, sum(machine.memory_bytes for machine in machines) + promised - memory_bytes()["MemAvailable"])


def check_host_memory(machines: Sequence[Machine], promised: int = 0) -> None:
    """EnvironmentLacks when the host cannot give all these machines their memory; `promised` as in `memory_short`."""
    if memory_short(machines, promised):
        wanted = sum(machine.memory_bytes for machine in machines)
        available = max(0, memory_bytes()["MemAvailable"] - promised)
        raise EnvironmentLacks(
            f"The guests want {wanted / 2**30:.1f} GiB of memory, and {available / 2**30:.1f} GiB are available: "
            "lower --memory, or boot fewer kernels."
        )


def accelerator_name(accelerator: str, machine: Machine) -> str:
    """What drives the guest, as it is told to the user."""
    return f"{accelerator}, 1 instruction = 1 ns" if machine.icount else accelerator


def accelerator_options(accelerator: str, icount: bool = False) -> list[str]:
    """QEMU's options for `kvm` or `tcg`, the latter with a thread for each CPU unless instructions are counted."""
    if accelerator == "kvm":
        return ["-accel", "kvm", "-cpu", "host"]
    if icount:
        return ["-accel", "tcg,thread=single", "-cpu", _COUNTED_CPU, "-icount", "shift=0,sleep=off"]
    return ["-accel", "tcg,thread=multi", "-cpu", "max"]


def _numa_options(machine: Machine) -> list[str]:
    if machine.numa_nodes == 1:
        return []
    options = []
    for node in range(machine.numa_nodes):
        size = machine.memory_bytes // machine.numa_nodes
        cpus = [f"cpus={cpu}" for cpu in range(machine.cpus) if cpu * machine.numa_nodes // machine.cpus == node]
        options += ["-object", f"memory-backend-ram,id=memory{node},size={size}"]
        options += ["-numa", ",".join([f"node,nodeid={node},memdev=memory{node}", *cpus])]
    return options


def qemu_command(
    machine: Machine,
    accelerator: str,
    kernel: Path,
    disk: Path,
    port: int,
    *,
    keeps_disk: bool = False,
    arguments: str = "",
    network: Sequence[str] = (),
) -> list[str]:
    """QEMU's command line: direct boot of `kernel`, SSH on a loopback port.

    What is written to `disk` is thrown away unless it is kept; `arguments` are further ones of the kernel's, and
    `network` are QEMU's options for a second network.
    """
    command_line = _COMMAND_LINE + (_TICKING if machine.icount else "") + (f" {arguments}" if arguments else "")
    snapshot = "off" if keeps_disk else "on"
    return [
        find_program("qemu-system-x86_64"), "-name", "forktail-lab", "-nodefaults", "-display", "none",
        "-serial", "stdio", "-no-reboot",
        *accelerator_options(accelerator, machine.icount),
        *(_WITH_INTERVAL_TIMER if machine.takes_turns else []),
        "-smp", str(machine.cpus), "-m", f"{machine.memory_bytes // _MIB}M", *_numa_options(machine),
        "-kernel", str(kernel), "-append", command_line,
        "-drive", f"file={str(disk).replace(',', ',,')},if=none,id=disk,format=raw,cache=unsafe,snapshot={snapshot}",
        "-device", "virtio-blk-pci,drive=disk",
        "-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
        "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci",
        *network,
    ]  # fmt: skip
