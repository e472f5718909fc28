# SPDX-License-Identifier: Apache-2.0
"""The fork mechanism of a kernel: `default`, `odf`, `async-fork`, or `unknown`.

Our kernels say it in their release. Any other kernel is `default` only while nothing of another mechanism shows in its
release, switches, sysctls, modules and symbols. Else forktail cannot know what its fork does, and must not report it as
the default one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

DEFAULT = "default"
ODF = "odf"
ASYNC_FORK = "async-fork"
UNKNOWN = "unknown"

KNOWN = (DEFAULT, ODF, ASYNC_FORK)
"""The mechanisms of our kernels, in the order in which they followed each other."""

LOOKED_FOR = "release, /proc/self, /proc/sys, /sys/module, memory.async_fork in cgroups, and /proc/kallsyms"
"""Where `signs` looks, for a sentence."""

_OURS = re.compile(r"-forktail-(odf|async-fork|default)\b")
_MECHANISM = re.compile(
    r"async[-_.]?fork|on[-_.]?demand[-_.]?fork|tfork|cow[-_.]?pte|(?<![a-z0-9])odf(?![a-z0-9])", re.I
)
"""Names that implementations of such forks have given to their switches, modules and symbols."""
_NAMED_FORK = re.compile(r"fork", re.IGNORECASE)
"""In a release: no distribution names its kernel after a fork, so that who does has changed it."""
_KNOB = "memory.async_fork"


def flavour_of_release(release: str) -> str:
    """The mechanism as far as `uname -r` says it: ours by their suffix, `unknown` where it names another fork."""
    if ours := _OURS.search(release):
        return ours[1]
    return UNKNOWN if _foreign(release) else DEFAULT


def _foreign(release: str) -> bool:
    return bool(_NAMED_FORK.search(release) or _MECHANISM.search(release))


def signs(release: str, root: Path = Path("/")) -> list[str]:
    """What on this host points to a fork mechanism of somebody else's, a phrase each; empty on our own kernels.

    `root` is the directory that holds `proc` and `sys`.
    """
    if _OURS.search(release):
        return []
    return list(dict.fromkeys(_signs(release, root)))


def _signs(release: str, root: Path) -> Iterator[str]:
    if _foreign(release):
        yield f"its release {release}"
    for directory in ("proc/self", "proc/sys/vm", "proc/sys/kernel", "sys/module"):
        for name in _names(root / directory):
            if _MECHANISM.search(name):
                yield f"/{directory}/{name}"
    cgroups = root / "sys/fs/cgroup"
    if (cgroups / _KNOB).exists() or any(cgroups.glob(f"*/{_KNOB}")):
        yield f"{_KNOB} in memory cgroups"
    symbol = _symbol(root / "proc/kallsyms")
    if symbol:
        yield f"the kernel's symbol {symbol}"


def _names(directory: Path) -> list[str]:
    with suppress(OSError):
        return sorted(entry.name for entry in os.scandir(directory))
    return []


def _symbol(path: Path) -> str | None:
    """The first of the kernel's own symbols that is named after such a mechanism; modules' symbols are left out."""
    with suppress(OSError), path.open(encoding="ascii", errors="replace") as symbols:
        for line in symbols:
            words = line.split()
            # A module's symbol has a fourth word, as in "[nf_conntrack]".
            if len(words) == 3 and _MECHANISM.search(words[2]):
                return words[2]
    return None


def flavour_of(release: str, found: list[str]) -> str:
    """The mechanism of a running kernel, from its release and the `signs` found on its host."""
    return UNKNOWN if found else flavour_of_release(release)


def recorded_flavour(flavour: str | None, release: str) -> str:
    """The mechanism of a run's kernel, from what the run recorded of it.

    Older runs called every foreign kernel `default`, so its release is asked again and may say `unknown`.
    """
    by_release = flavour_of_release(release)
    recorded = flavour or by_release
    if recorded not in KNOWN or (recorded == DEFAULT and by_release == UNKNOWN):
        return UNKNOWN
    return recorded


def flavour_here(root: Path = Path("/")) -> str:
    """The mechanism of the kernel that runs this process."""
    release = os.uname().release
    return flavour_of(release, signs(release, root))


def unknown_warning(release: str, found: list[str]) -> str:
    """The sentence for a run on a kernel whose mechanism is unknown."""
    shown = f"{', '.join(found)} points to another" if found else "it is none of forktail's kernels"
    return (
        f"The fork mechanism of Linux {release} is unknown: {shown} ({LOOKED_FOR} were looked at). The result is of "
        "whatever this kernel's fork does, and must not be taken for the default fork."
    )
