# SPDX-License-Identifier: Apache-2.0
"""The network that lab hosts share, for a load that comes from another of them; it reaches nobody else.

Each QEMU is given a port of a hub made of multicast on the loopback interface, since user networking (machine.py)
keeps guests apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PORT = 17401
_HOSTS = range(1, 255)
INTERFACE = "eth1"


@dataclass(frozen=True)
class Place:
    """A host's place in the network: the last number of its address."""

    number: int

    @property
    def address(self) -> str:
        """As other hosts reach it."""
        return f"10.77.0.{self.number}"

    @property
    def command(self) -> str:
        """What gives the guest this address."""
        return f"ip link set {INTERFACE} up && ip address replace {self.address}/24 dev {INTERFACE}"

    def qemu_options(self, lab: Path) -> list[str]:
        """QEMU's options; the hosts of a `lab`, a directory, share a hub with no other lab's."""
        group = hashlib.sha256(str(lab).encode()).digest()
        hub = f"mcast=239.192.{group[0]}.{group[1]}:{_PORT},localaddr=127.0.0.1"
        mac = f"52:54:00:77:00:{self.number:02x}"
        return ["-netdev", f"socket,id=lab,{hub}", "-device", f"virtio-net-pci,netdev=lab,mac={mac},romfile="]


def next_place(taken: Iterable[Place]) -> Place:
    """The first place that no host has."""
    numbers = {place.number for place in taken}
    return Place(next(number for number in _HOSTS if number not in numbers))
