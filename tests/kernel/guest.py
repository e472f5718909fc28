# SPDX-License-Identifier: Apache-2.0
"""A QEMU guest that runs the programs of this directory on a kernel, and what it reported."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

from forktail.measure.child import start_child

_MEMORY = "2G"
_CPU = ("-accel", "tcg,thread=multi", "-cpu", "max")
_CPUS = 2

# Each instruction is a nanosecond. An idle guest skips to its next timer: without a tick, past any timeout.
_COUNTING_CPU = ("-accel", "tcg,thread=single", "-cpu", "max", "-smp", "1", "-icount", "shift=0,sleep=off")
_COUNTING = "nohz=off nokaslr norandmaps"
_NODES = "numa=fake=2"
_SWAP_BYTES = 256 * 2**20
_COMMAND_LINE = "console=ttyS0 quiet panic=-1 clocksource=tsc tsc=reliable"
_MARK = re.compile(r"^(begin|end) (\S+) (\S+)(?: (\d+))?$")

# What a kernel prints when its page tables, counters or locks are not as they ought to be.
_COMPLAINT = re.compile(
    r"WARNING|BUG|Oops|Call Trace|Bad page|bad p[mug]d|Bad rss-counter|non-zero pgtables_bytes"
    r"|possible .*(deadlock|locking)|KASAN|unreferenced object|general protection|soft lockup|hung_task"
    r"|blocked for more than|segfault"
)


# On a CPU with five levels of page tables: while identify_cpu() has its capabilities cleared, KASAN reckons with four
# levels, and takes what an interrupt's handler touches then for a wild access.
_FALSE_ALARM = re.compile(r"BUG: KASAN: wild-memory-access(?:(?!</TASK>).)* identify_boot_cpu\+0x", re.DOTALL)
# What the kernel says whose first CPU gets no tick any more, though its APIC's clock is set to it: it boots no further.
_NO_TICK = re.compile(r"rcu: rcu_\w+ kthread timer wakeup didn't happen for \d+ jiffies")
# What QEMU says when it ends itself; in iotlb_to_section(), while a guest of several CPUs boots, its issue 1921 tells.
_ABORT = re.compile(r"qemu-system-x86_64: .*: Assertion `.*' failed\.$", re.MULTILINE)
_BOOTS = 5


@dataclass
class Program:
    """The TAP of one program in one mode, and its exit status; None if it did not come to an end."""

    lines: list[str] = field(default_factory=list)
    status: int | None = None
    kernel: str = ""
    """Release and version of the kernel that it ran on."""
    date: str = ""
    """When that was booted, in UTC, to the minute."""

    @property
    def failures(self) -> list[str]:
        return [line for line in self.lines if line.startswith(("not ok", "Bail out!"))]

    @property
    def points(self) -> int:
        return sum(line.startswith(("ok ", "not ok ")) for line in self.lines)

    @property
    def skipped(self) -> int:
        return sum(line.startswith("ok ") and "# SKIP" in line for line in self.lines)

    @property
    def watched(self) -> int:
        """How many accesses KCSAN looked at meanwhile, where the kernel has it."""
        return sum(int(line.split()[3]) for line in self.lines if line.startswith("# KCSAN watched "))

    @property
    def passed(self) -> bool:
        """Whether it came to its end without a failure, and said all that it meant to."""
        return self.status == 0 and not self.failures and self.plan == self.points

    @property
    def plan(self) -> int | None:
        plans = [line for line in self.lines if re.fullmatch(r"1\.\.\d+", line)]
        return int(plans[0][3:]) if len(plans) == 1 else None


# From where to where a call trace, and nothing else, is what a program provokes.
_EXPECTED = [
    # Two fill the memory until the OOM killer ends them.
    (re.compile(r"invoked oom-killer"), re.compile(r"Killed process \d+ \((victims|flights)\)")),
    # One has allocations fail in fork(), and the kernel tells it where a stack is not one that was used before.
    (re.compile(r"failures: vmalloc error: size \d+, vm_struct allocation failed"), re.compile(r"</TASK>")),
]


@dataclass
class Boot:
    """All that a guest wrote to its console."""

    console: str
    seconds: float = 0
    date: str = ""
    """When, in UTC, to the minute."""
    kept: dict[tuple[str, str], Program] = field(default_factory=dict)
    """The programs that it did not have to run, by name and mode, as they were reported by a guest before."""
    voided: tuple[str, ...] = ()
    """Why guests were given up before this one, each for another."""
    before: Boot | None = None
    """The guest of the same kernel that ran others of its programs just before; what is told below is of both."""

    @property
    def kernel(self) -> str:
        """Release and version, as the kernel itself tells them."""
        # The firmware's last escape sequence may stand before it on its line.
        found = re.search(r"kernel (\d+\.\d.*)$", self.console, re.MULTILINE)
        return found[1] if found else ""

    @property
    def programs(self) -> dict[tuple[str, str], Program]:
        """By name and mode; the mode is 0, or what was written to use_odf or memory.async_fork."""
        found = (self.before.programs if self.before else {}) | self.kept
        current: Program | None = None
        for line in self.console.splitlines():
            if not (mark := _MARK.match(line)):
                if current:
                    current.lines.append(line)
            elif mark[1] == "begin":
                current = found[mark[2], mark[3]] = Program(kernel=self.kernel, date=self.date)
            elif current:
                current.status, current = int(mark[4] or -1), None
        return found

    @property
    def ended(self) -> bool:
        """Whether the guest ran all its programs and told its log, or had nothing to run."""
        log = re.search(r"^end dmesg - \d+$", self.console, re.MULTILINE)
        return (not self.console or log is not None) and (self.before is None or self.before.ended)

    @property
    def false_alarm(self) -> bool:
        """Whether KASAN raised a false alarm while the kernel got to know its CPU."""
        return _FALSE_ALARM.search(self.console) is not None

    @property
    def void(self) -> str | None:
        """What it is that leaves this guest without proof of anything, before its first program."""
        if self.false_alarm:
            return "a false alarm of KASAN's, which reports once"
        if not self.kernel and _ABORT.search(self.console):
            return "an abort of QEMU's"
        if not self.kernel and _NO_TICK.search(self.console):
            return "a tick that was lost while the guest booted"
        return None

    @property
    def complaints(self) -> list[str]:
        found = self.before.complaints if self.before else []
        end: re.Pattern[str] | None = None
        for line in self.console.splitlines():
            end = end or next((end for begin, end in _EXPECTED if begin.search(line)), None)
            if _COMPLAINT.search(line) and not (end and line.endswith("Call Trace:")):
                found.append(line)
            if end and end.search(line):
                end = None
        return found


def boot(
    image: Path,
    initramfs: Path,
    directory: Path,
    seconds: float,
    arguments: str = "",
    icount: bool = False,
    memory: str = _MEMORY,
    cpus: int = _CPUS,
    stop: Event | None = None,
) -> Boot:
    """Run a guest to its end, for `seconds`, or until `stop`; it does not outlive this call. The arguments are for its
    /init.

    With `icount` it has one CPU, whatever `cpus` says, and its clock counts instructions. After a guest that is void
    another is booted, a few times at most.
    """
    disk = directory / "swap.img"
    with disk.open("wb") as file:
        file.truncate(_SWAP_BYTES)
    command = [
        *("qemu-system-x86_64", *(_COUNTING_CPU if icount else (*_CPU, "-smp", str(cpus))), "-m", memory),
        *("-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-monitor", "none"),
        *("-kernel", str(image), "-initrd", str(initramfs)),
        *("-append", f"{_COMMAND_LINE} {_COUNTING if icount else _NODES} {arguments}"),
        *("-drive", f"file={disk},if=none,id=d0,format=raw,cache=unsafe", "-device", "virtio-blk-pci,drive=d0"),
    ]
    made = _boot(command, directory / "console", seconds, stop)
    while made.void and len(made.voided) + 1 < _BOOTS:
        made = replace(_boot(command, directory / "console", seconds, stop), voided=(*made.voided, made.void))
    return made


def _beginning(console: Path) -> str:
    """What it wrote while it booted, all of which is no more than this."""
    with console.open("rb") as file:
        return file.read(2**16).decode(errors="replace")


def _boot(command: list[str], console: Path, seconds: float, stop: Event | None) -> Boot:
    """One guest, ended before its time if it is void."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    began = time.monotonic()
    with console.open("wb") as output:
        process = start_child(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None and time.monotonic() < began + seconds and not (stop and stop.is_set()):
                time.sleep(0.2)
                if Boot(_beginning(console)).void:
                    break
        finally:
            process.kill()
            process.wait()
    return Boot(console.read_text(errors="replace").replace("\r", ""), time.monotonic() - began, date)
