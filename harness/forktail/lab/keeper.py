# SPDX-License-Identifier: Apache-2.0
"""The keeper of a lab host: a process that does nothing but end the host when its owner ends, however that ends."""

from __future__ import annotations

import subprocess
import sys
import time

from forktail.lab.host import LabHost, end_host, hosts

_LOOKS_EVERY_S = 0.5


def keep_watch(host: LabHost) -> None:
    """Start the keeper of a host that has an owner; it outlives us."""
    if host.owner is not None:
        subprocess.Popen(
            [sys.executable, "-m", __name__, host.name, str(host.owner.pid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def _keep(name: str, pid: int) -> None:
    """Return when the host is gone, or is another owner's; end it when its owner is gone."""
    while True:
        host = hosts().get(name)
        if host is None or host.owner is None or host.owner.pid != pid:
            return
        if not host.owner.alive():
            end_host(host)
            return
        time.sleep(_LOOKS_EVERY_S)


if __name__ == "__main__":
    _keep(sys.argv[1], int(sys.argv[2]))
