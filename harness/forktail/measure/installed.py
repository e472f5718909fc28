# SPDX-License-Identifier: Apache-2.0
"""Programs that are not forktail's own: found where the workload says or on PATH, and asked what they are."""

from __future__ import annotations

import shutil
import subprocess

from forktail.errors import BadInput, EnvironmentLacks

_ANSWERS_WITHIN_S = 60.0
"""In a guest that counts instructions the clock runs ahead while a program is read from the disk."""


def find_installed(key: str, given: str, name: str, mend: str) -> str:
    """The path of a program: `given`, the value of the workload's `key`, or `name` on PATH where that is empty.

    BadInput where what is given cannot be run, EnvironmentLacks where the name is not on PATH; `mend` is how to get it.
    """
    found = shutil.which(given or name)
    if found is None and given:
        raise BadInput(f"{key} {given!r} is no program that can be run: mend the path.")
    if found is None:
        raise EnvironmentLacks(f"{name} is not on PATH: {mend}, or set {key}.")
    return found


def ask_version(found: str, key: str, name: str) -> str:
    """What a program says to --version; BadInput where it does not answer, `key` being where to name another."""
    try:
        return subprocess.run([found, "--version"], capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{found} does not answer --version ({error}): set {key} to a {name}.") from error
