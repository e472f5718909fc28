# SPDX-License-Identifier: Apache-2.0
"""What counts as a complaint of a kernel, and which call traces a program provokes."""

from __future__ import annotations

import pytest
from tests.kernel.guest import Boot

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
