# SPDX-License-Identifier: Apache-2.0
"""What compiles a kernel: the programs and headers that must be there, and their versions."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from forktail.errors import EnvironmentLacks

_PROGRAMS = {
    "bc": "bc",
    "bison": "bison",
    "ccache": "ccache",
    "flex": "flex",
    "gcc": "gcc",
    "ld": "binutils",
    "make": "make",
    "pahole": "dwarves",
    "patch": "patch",
    "perl": "perl",
    "rsync": "rsync",
    "tar": "tar",
    "xz": "xz-utils",
}
_HEADERS = {"libelf.h": "libelf-dev"}
_PACKAGING_PROGRAMS = {"cpio": "cpio", "dpkg-buildpackage": "dpkg-dev", "fakeroot": "fakeroot", "kmod": "kmod"}
_PACKAGING_HEADERS = {"openssl/ssl.h": "libssl-dev"}
_INCLUDE = Path("/usr/include")


def check_tools(packaging: bool = False) -> None:
    """EnvironmentLacks that names everything missing at once, and the line that installs it.

    `packaging` asks for what makes Debian packages as well.
    """
    programs = _PROGRAMS | (_PACKAGING_PROGRAMS if packaging else {})
    headers = _HEADERS | (_PACKAGING_HEADERS if packaging else {})
    missing = {name: package for name, package in programs.items() if shutil.which(name) is None}
    missing |= {name: package for name, package in headers.items() if not (_INCLUDE / name).exists()}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        raise EnvironmentLacks(
            f"Building a {'package' if packaging else 'kernel'} needs {', '.join(missing)}: apt-get install {packages}"
        )


def versions() -> dict[str, str]:
    """The versions that a kernel's bytes depend on: compiler, linker, BTF encoder; `absent` for one that is missing."""
    found = {}
    for name in ("gcc", "ld", "pahole"):
        if shutil.which(name) is None:
            found[name] = "absent"
            continue
        output = subprocess.run([name, "--version"], check=True, capture_output=True, text=True).stdout
        found[name] = output.splitlines()[0]
    return found
