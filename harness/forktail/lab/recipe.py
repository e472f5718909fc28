# SPDX-License-Identifier: Apache-2.0
"""The recipe of the guest image: everything that decides what is in it, and the key it is cached under."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from forktail.errors import EnvironmentLacks

_PACKAGES = (
    "systemd", "systemd-sysv", "openssh-server", "python3", "redis-server", "iproute2", "procps", "kmod",
    # redis-py imports it on a Python before 3.11.3, which Debian 12 has.
    "python3-async-timeout",
)  # fmt: skip

_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")

_MASKED = (
    # Nothing of this serves a host that lives for an hour, and under emulation each costs a part of a second.
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "getty.target", "redis-server.service", "systemd-journal-flush.service", "systemd-pstore.service",
    "systemd-random-seed.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
    "systemd-user-sessions.service", "remote-fs.target",
)  # fmt: skip

_FILES = {
    "etc/hostname": "forktail-lab\n",
    "etc/fstab": "",
    # QEMU's user networking always hands out this one address, so that asking for it by DHCP is time lost.
    "etc/systemd/system/lab-network.service": (
        "[Unit]\nDefaultDependencies=no\nBefore=ssh.service\n\n"
        "[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        "ExecStart=ip link set lo up\nExecStart=ip link set eth0 up\n"
        "ExecStart=ip address add 10.0.2.15/24 dev eth0\nExecStart=ip route add default via 10.0.2.2\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    ),
    # No time limit for the login: with --icount minutes of the guest's time pass while it waits for the host's answer.
    "etc/ssh/sshd_config.d/lab.conf": (
        "UsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nLoginGraceTime 0\n"
    ),
    "etc/sysctl.d/lab.conf": "vm.overcommit_memory = 1\nkernel.numa_balancing = 0\n",
    "etc/systemd/journald.conf.d/lab.conf": "[Journal]\nStorage=volatile\n",
}


@dataclass(frozen=True)
class Recipe:
    """What the image is made of; `key` changes whenever any of it does."""

    distribution: str
    """Debian's code name, the host's own."""
    python: str
    """Major and minor version, the same in the guest as here: the dependencies are copied over."""
    dependencies: tuple[str, ...]
    """`name==version` of each Python distribution that the measuring side needs."""
    packages: tuple[str, ...] = _PACKAGES
    left_out: tuple[str, ...] = _LEFT_OUT
    masked: tuple[str, ...] = _MASKED
    files: tuple[tuple[str, str], ...] = tuple(sorted(_FILES.items()))
    file_system: tuple[str, ...] = ("-q", "-t", "ext4", "-O", "^has_journal", "-m", "0")
    """Options of mke2fs; a journal protects nothing on a disk whose writes are thrown away."""
    disk_bytes: int = 16 * 2**30
    """The file system's size; the file on the host is sparse."""

    @property
    def key(self) -> str:
        """A short digest of the whole recipe."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


def recipe() -> Recipe:
    """The recipe for this host; EnvironmentLacks where the host is no Debian."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise EnvironmentLacks(
            f"The guest image is made from the host's own Debian, and this is {release.get('PRETTY_NAME', 'unknown')}: "
            "use the lab on a Debian host."
        )
    return Recipe(
        distribution=release["VERSION_CODENAME"],
        python=".".join(platform.python_version_tuple()[:2]),
        dependencies=tuple(
            sorted(f"{found.metadata['Name']}=={found.version}" for found in python_dependencies("forktail"))
        ),
    )


def python_dependencies(name: str) -> list[metadata.Distribution]:
    """The distributions that `name` needs without any extra, and theirs, as installed here."""
    found: dict[str, metadata.Distribution] = {}
    waiting = [name]
    while waiting:
        for line in metadata.distribution(waiting.pop()).requires or []:
            requirement, _, marker = line.partition(";")
            match = re.match(r"[A-Za-z0-9._-]+", requirement)
            if match is None or "extra ==" in marker:
                continue
            wanted = re.sub(r"[-_.]+", "-", match[0]).lower()
            if wanted in found:
                continue
            try:
                found[wanted] = metadata.distribution(wanted)
            except metadata.PackageNotFoundError:
                continue  # Its marker rules it out here: for another system, or an older Python.
            waiting.append(wanted)
    return list(found.values())
