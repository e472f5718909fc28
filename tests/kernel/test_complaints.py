# SPDX-License-Identifier: Apache-2.0
"""What counts as a complaint of a kernel, which call traces a program provokes, and which alarm is a false one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kernel.guest import Boot, boot

_TRACE = "[    1.5] Call Trace:"


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("[    1.4] victims invoked oom-killer: gfp_mask=0xcc0", "[    1.9] Killed process 70 (victims) total-vm:1kB"),
        (
            "[    1.4] failures: vmalloc error: size 32768, vm_struct allocation failed",
            "[    1.9]  </TASK>",
        ),
    ],
    ids=["memory that is full", "allocations that fail"],
)
def test_a_call_trace_that_a_program_provokes(begin: str, end: str) -> None:
    assert Boot("\n".join([begin, _TRACE, end])).complaints == []
    assert Boot("\n".join([begin, _TRACE, end, _TRACE])).complaints == [_TRACE]
    assert Boot("\n".join([begin.replace("failures", "redis").replace("invoked", "told of"), _TRACE, end])).complaints
    # Whatever else is told there is a complaint.
    for line in ("BUG: KASAN: use-after-free in copy_pmd_range", "WARNING: at mm/memory.c:1", "BUG: Bad page map"):
        assert Boot("\n".join([begin, line, _TRACE, end])).complaints == [line]


def test_a_race_is_a_complaint() -> None:
    line = "[   60.604117] BUG: KCSAN: data-race in unmark / unmark"
    assert Boot(f"{line}\n[   60.604742]  unmark+0x4d/0xd0\n").complaints == [line]


def test_memory_that_nobody_owns_is_a_complaint() -> None:
    line = "unreferenced object 0xffff8880041a0c00 (size 192):"
    assert Boot(f'begin dmesg -\n{line}\n  comm "storm", pid 117, jiffies 4294907296 (age 12.4s)\n').complaints == [
        line
    ]


# As a kernel told it, but for the frames between.
_ALARM = """[    0.009312] ==================================================================
[    0.009312] BUG: KASAN: wild-memory-access in do_raw_spin_lock+0x12a/0x280
[    0.009312] Write of size 4 at addr ff110000010e20a8 by task swapper/0/0
[    0.009312] Call Trace:
[    0.009312]  <IRQ>
[    0.009312]  handle_edge_irq+0x30/0xaf0
[    0.009312]  </IRQ>
[    0.009312]  <TASK>
[    0.009312] RIP: 0010:x86_model+0x24/0x40
[    0.009312]  cpu_detect+0x156/0x2e0
[    0.009312]  identify_cpu+0x353/0x18f0
[    0.009312]  identify_boot_cpu+0x11/0xbf
[    0.009312]  </TASK>
"""


def test_a_false_alarm_is_told_from_others() -> None:
    assert Boot(_ALARM).false_alarm
    assert Boot(_ALARM).complaints, "it is a complaint where no other guest was booted"
    assert not Boot(_ALARM.replace("wild-memory-access", "use-after-free")).false_alarm
    assert not Boot(_ALARM.replace("identify_boot_cpu", "dup_mmap")).false_alarm
    # Of two reports it is not the other's trace that counts.
    assert not Boot(_ALARM.replace("identify_boot_cpu", "dup_mmap") + "  identify_boot_cpu+0x11/0xbf").false_alarm


# Behind the firmware's last escape sequence.
_ABORT = (
    "Booting from ROM...\n"
    "c[?7l[2Jqemu-system-x86_64: system/physmem.c:2678: iotlb_to_section: "
    "Assertion `section_index < d->map.sections_nb' failed.\n"
)


def test_an_abort_of_qemu_proves_nothing_while_the_guest_boots() -> None:
    assert Boot(_ABORT).void == "an abort of QEMU's"
    assert Boot(f"kernel 6.1.0 #abc\n{_ABORT}").void is None, "what a program did may have been the cause"
    assert Boot("Booting from ROM...\n").void is None


# As a kernel told it whose first CPU had no tick any more; both CPUs were idle for fifteen minutes.
_NO_TICK = """[   32.690991] rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
[   32.694482] rcu: 	0-...!: (0 ticks this GP) idle=a3b8/0/0x0 softirq=78/78 fqs=0 (false positive?)
[   32.694482] rcu: rcu_sched kthread timer wakeup didn't happen for 6501 jiffies! g-1099 f0x0
[   32.694482] rcu: 	Possible timer handling issue on cpu=0 timer-softirq=14
"""


def test_a_guest_without_a_tick_proves_nothing_while_it_boots() -> None:
    assert Boot(_NO_TICK).void == "a tick that was lost while the guest booted"
    assert Boot(_NO_TICK.replace("rcu_sched", "rcu_preempt")).void
    assert Boot(f"kernel 6.1.0 #abc\n{_NO_TICK}").void is None, "what a program did may have been the cause"
    assert Boot(_NO_TICK.replace("timer wakeup didn't happen", "starved")).void is None


@pytest.mark.parametrize(
    ("first", "then"),
    [(_ALARM, "exec sleep 60"), (_ABORT, "exit 134"), (_NO_TICK, "exec sleep 60")],
    ids=["alarm", "abort", "no tick"],
)
@pytest.mark.parametrize(("times", "told"), [(0, 0), (1, 1), (9, 4)])
def test_after_a_guest_that_proves_nothing_another_is_booted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, then: str, times: int, told: int
) -> None:
    (tmp_path / "first").write_text(first)
    qemu = tmp_path / "qemu-system-x86_64"
    # So many guests say that, and hang or end, and the next comes to its end.
    qemu.write_text(f"""#!/bin/sh
cd {tmp_path}
echo >> guests
if [ $(wc -l < guests) -le {times} ]; then cat first; {then}; fi
echo 'begin dmesg -'; echo 'end dmesg - 0'
""")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = boot(tmp_path / "bzImage", tmp_path / "initramfs", tmp_path, seconds=30)
    assert (len(made.voided), made.ended, made.void is None) == (told, times < 5, times < 5)
    assert (tmp_path / "guests").read_text().count("\n") == told + 1
    assert made.seconds < 10
