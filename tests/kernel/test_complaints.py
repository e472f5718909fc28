# SPDX-License-Identifier: Apache-2.0
"""What counts as a complaint of a kernel, which call traces a program provokes, which race is Linux' own, and which
alarm is a false one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kernel.guest import Boot, boot
from tests.kernel.races import functions_of_the_series

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


# As a kernel told it, but for most of the frames.
_RACE = """[ 1392.271395] BUG: KCSAN: data-race in end_swap_bio_read / folio_batch_move_lru
[ 1392.271400]
[ 1392.271402] write to 0xffeb0e8f400e0000 of 8 bytes by interrupt on cpu 2:
[ 1392.271404]  end_swap_bio_read+0x10a/0x1c0
[ 1392.271406]  irqentry_exit+0x11/0x40
[ 1392.271408]
[ 1392.271410] read to 0xffeb0e8f400e0000 of 8 bytes by task 11274 on cpu 1:
[ 1392.271412]  folio_batch_move_lru+0x21b/0x5f0
[ 1392.271414]  handle_mm_fault+0x10c5/0x2440
[ 1392.271416]
[ 1392.271418] value changed: 0x0010000000080019 -> 0x001000000008001d
[ 1392.271420]
[ 1392.271422] Reported by Kernel Concurrency Sanitizer on:
"""


def test_a_race_is_a_complaint_where_a_function_of_the_series_takes_part() -> None:
    first = _RACE.splitlines()[0]
    assert Boot(_RACE).complaints == []
    for mainline, ours in (
        ("handle_mm_fault", "async_fork_copy_table"),
        ("irqentry_exit", "copy_uncopied_ptes.isra.0"),
        ("folio_batch_move_lru+", "odf_unshare+"),
    ):
        assert Boot(_RACE.replace(mainline, ours)).complaints == [first]
        # Of two with the same names, it is the one that complains.
        assert Boot(_RACE + _RACE.replace(mainline, ours).replace("1392.", "1393.")).complaints == [
            first.replace("1392.", "1393.")
        ]
    # Nobody knows whose this is.
    assert Boot("[    1.5] BUG: KCSAN: data-race in _find_next_bit+0x42/0xe0\n").complaints
    # What stands in the middle of a report is a complaint of its own.
    other = "[ 1392.271409] BUG: Bad page map in process redis-server"
    assert Boot(_RACE.replace("[ 1392.271408]", other)).complaints == [other]


def test_the_functions_of_the_series() -> None:
    known = functions_of_the_series()
    assert {"__async_fork_sync_range", "copy_uncopied_table", "odf_copy_table", "pmd_marked", "unmark"} <= known
    assert not {"handle_mm_fault", "copy_pmd_range", "dup_mmap", "try_to_unmap_one", "if", "return"} & known


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


@pytest.mark.parametrize(("alarms", "told"), [(0, 0), (1, 1), (9, 4)])
def test_a_guest_that_raised_a_false_alarm_is_booted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alarms: int, told: int
) -> None:
    (tmp_path / "alarm").write_text(_ALARM)
    qemu = tmp_path / "qemu-system-x86_64"
    # It raises so many alarms, a guest each, and then hangs, as one does that is not ended, or comes to its end.
    qemu.write_text(f"""#!/bin/sh
cd {tmp_path}
echo >> guests
if [ $(wc -l < guests) -le {alarms} ]; then cat alarm; exec sleep 60; fi
echo 'begin dmesg -'; echo 'end dmesg - 0'
""")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    made = boot(tmp_path / "bzImage", tmp_path / "initramfs", tmp_path, seconds=30)
    assert (made.false_alarms, made.ended, made.false_alarm) == (told, alarms < 5, alarms >= 5)
    assert (tmp_path / "guests").read_text().count("\n") == told + 1
    assert made.seconds < 10
