# SPDX-License-Identifier: Apache-2.0
"""The accelerator: KVM where a guest truly boots under it, else TCG. /dev/kvm may open and yet boot nothing."""

from __future__ import annotations

import json
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from forktail.lab.cache import lab_cache, locked
from forktail.lab.machine import Machine, accelerator_options
from forktail.lab.programs import find_program
from forktail.measure.child import start_child
from forktail.measure.proc import read_text

Accelerator = Literal["kvm", "tcg"]

_PROOF = b"Unable to mount root fs"
"""What a kernel without a disk says at the end of its boot: by then every CPU and driver is at work."""
_PROOF_WITHIN_S = 10.0

_KEEPS_UP_WITH_PATCHED_CODE = (8, 1)
"""Before it, a virtual CPU may translate kernel code while another patches it, and go on with what it was before."""


def _boots_under_kvm(kernel: Path) -> bool:
    command = [
        find_program("qemu-system-x86_64"), "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
        *accelerator_options("kvm"), "-m", "512M",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    process = start_child(command, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    output = b""
    try:
        with suppress(subprocess.TimeoutExpired):
            output, _ = process.communicate(timeout=_PROOF_WITHIN_S)
    finally:
        process.kill()
        rest, _ = process.communicate()
    return _PROOF in output + rest


def known_accelerator() -> Accelerator | None:
    """What guests run under as far as it is known without a kernel to try: None where KVM was not tried yet."""
    if not Path("/dev/kvm").exists():
        return "tcg"
    with suppress(OSError, json.JSONDecodeError):
        answer = json.loads((lab_cache() / "accelerator.json").read_text())
        if answer["boot_id"] == read_text("/proc/sys/kernel/random/boot_id"):
            return "kvm" if answer["kvm"] else "tcg"
    return None


def find_accelerator(kernel: Path) -> Accelerator:
    """Try KVM once per boot of the host, with `kernel`; the answer is kept."""
    if not Path("/dev/kvm").exists():
        return "tcg"
    answer_file = lab_cache() / "accelerator.json"
    boot = read_text("/proc/sys/kernel/random/boot_id")
    with locked(lab_cache() / "accelerator.lock"):
        known = known_accelerator()
        if known is not None:
            return known
        began = time.monotonic()
        kvm = _boots_under_kvm(kernel)
        answer = {"boot_id": boot, "kvm": kvm, "kernel": str(kernel), "seconds": round(time.monotonic() - began, 1)}
        answer_file.write_text(json.dumps(answer) + "\n")
    return "kvm" if kvm else "tcg"


def emulator_version() -> tuple[int, int] | None:
    """QEMU's version as (major, minor); None where it does not tell."""
    words = subprocess.run(
        [find_program("qemu-system-x86_64"), "--version"], capture_output=True, text=True, check=False
    ).stdout
    match = re.search(r"version (\d+)\.(\d+)", words)
    return (int(match[1]), int(match[2])) if match else None


def emulator_warning(accelerator: Accelerator, machine: Machine, version: tuple[int, int] | None) -> str | None:
    """What to expect of a QEMU whose emulated guests hang while tracepoints are switched (docs/lab.md); else None."""
    if accelerator != "tcg" or machine.cpus == 1 or version is None or version >= _KEEPS_UP_WITH_PATCHED_CODE:
        return None
    have, need = (".".join(map(str, each)) for each in (version, _KEEPS_UP_WITH_PATCHED_CODE))
    return (
        f"QEMU {have} emulates, and may hang a guest of several CPUs while the probe attaches: QEMU {need} does not. "
        "A sweep makes such a run again."
    )


def accelerator_for(machine: Machine, kernel: Path) -> Accelerator:
    """What a guest of this machine will run under; only TCG can count instructions."""
    return "tcg" if machine.icount else find_accelerator(kernel)
