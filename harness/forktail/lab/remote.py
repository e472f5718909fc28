# SPDX-License-Identifier: Apache-2.0
"""SSH to a guest: its own key, its own host key, nothing of the user's configuration."""

from __future__ import annotations

import subprocess
from contextlib import suppress

from forktail.errors import RunFailed
from forktail.lab.guest import Guest
from forktail.lab.image import HOST_ALIAS, Image
from forktail.lab.programs import find_program
from forktail.measure.child import run_child

_CONNECT_S = 15
_ALIVE_EVERY_S = 5
_DEAD_AFTER = 12
CONNECTION_LOST = 255
"""ssh's own exit code, where a command's would be."""


def ssh_options(image: Image) -> list[str]:
    """What ssh is told for any guest of the image: all but its user, its port and its key."""
    settings = {
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "UserKnownHostsFile": str(image.known_hosts),
        "HostKeyAlias": HOST_ALIAS,
        "StrictHostKeyChecking": "yes",
        "BatchMode": "yes",
        "LogLevel": "ERROR",
        "ConnectTimeout": str(_CONNECT_S),
        # The default makes a post-quantum key besides, at the cost of an emulated CPU's time.
        "KexAlgorithms": "curve25519-sha256",
        "ServerAliveInterval": str(_ALIVE_EVERY_S),
        "ServerAliveCountMax": str(_DEAD_AFTER),
    }
    return ["-F", "none", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]


def ssh_command(guest: Guest, *options: str) -> list[str]:
    """The command that reaches the guest's root; what to run there is to be appended."""
    reach = ["-l", "root", "-p", str(guest.port), "-i", str(guest.image.key)]
    return [find_program("ssh"), *ssh_options(guest.image), *reach, *options, "127.0.0.1"]


def release_in(guest: Guest) -> str | None:
    """What `uname -r` says in the guest, or None while it does not answer."""
    with suppress(subprocess.TimeoutExpired):
        result = run_child([*ssh_command(guest), "uname -r"], seconds=2 * _CONNECT_S)
        if result.returncode == 0:
            return result.stdout.decode(errors="replace").strip()
    return None


def tell(guest: Guest, command: str, data: bytes, seconds: float) -> None:
    """Run a command in the guest with `data` on its standard input; RunFailed in its own words."""
    try:
        result = run_child([*ssh_command(guest), command], data, seconds)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"The guest of {guest.name} did not do `{command}` within {seconds:g} s.") from error
    if result.returncode != 0:
        words = result.stderr.decode(errors="replace").strip() or f"exit code {result.returncode}"
        raise RunFailed(f"The guest of {guest.name} could not do `{command}`: {words}")
