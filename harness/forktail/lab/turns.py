# SPDX-License-Identifier: Apache-2.0
"""How often the virtual CPUs of a guest that counts instructions take turns on QEMU's one thread."""

from __future__ import annotations

from forktail.lab.guest import Guest
from forktail.lab.remote import tell

_PIT_HZ = 1_193_182
_ROUND_S = 50e-6
"""The time for a round of turns: shorter than what a query takes, and still some ten thousand instructions a turn."""

_PIT_COMMAND, _PIT_COUNTER = 0x43, 0x40
_RATE_GENERATOR = 0x34  # Counter 0, low byte and then high byte, mode 2: again and again.
_TOLD_WITHIN_S = 60


def shorten_turns(guest: Guest) -> None:
    """Have a round of turns end every 50 us of the guest's time; RunFailed where the guest cannot.

    QEMU lets each CPU execute its share of what is left until the guest's next timer is due, and no interrupt from
    another CPU ends a turn. With four CPUs and the tick of 4 ms a wakeup from one to another takes up to 3 ms so. The
    programmable interval timer, whose interrupt Linux has masked once the local APICs tick, is a timer that costs the
    guest nothing.
    """
    count = round(_PIT_HZ * _ROUND_S)
    writes = ((_PIT_COMMAND, _RATE_GENERATOR), (_PIT_COUNTER, count & 0xFF), (_PIT_COUNTER, count >> 8))
    program = "import os; port = os.open('/dev/port', os.O_WRONLY); " + "; ".join(
        f"os.pwrite(port, bytes([{value}]), {address})" for address, value in writes
    )
    tell(guest, f'python3 -c "{program}"', b"", _TOLD_WITHIN_S)
