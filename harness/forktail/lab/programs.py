# SPDX-License-Identifier: Apache-2.0
"""The programs of the host that the lab drives, and the Debian package each comes in."""

from __future__ import annotations

import os
import shutil

from forktail.errors import EnvironmentLacks

_PACKAGE_OF = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


def find_program(name: str) -> str:
    """Where the program is; EnvironmentLacks that names its package where it is missing."""
    # A user's PATH often lacks /usr/sbin, where Debian keeps mke2fs.
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None:
        raise EnvironmentLacks(f"{name} is not installed: `apt-get install {_PACKAGE_OF[name]}`.")
    return found
