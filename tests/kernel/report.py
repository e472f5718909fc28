# SPDX-License-Identifier: Apache-2.0
"""What the programs reported on each kernel, as a page."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.kernel.guest import Boot, Program

_OPTIONS = (
    *("KASAN", "PROVE_LOCKING", "DEBUG_ATOMIC_SLEEP", "DEBUG_VM", "PAGE_TABLE_CHECK_ENFORCED", "DEBUG_LIST"),
    *("FAIL_PAGE_ALLOC", "FAILSLAB", "DETECT_HUNG_TASK", "SOFTLOCKUP_DETECTOR", "PREEMPT_VOLUNTARY", "LRU_GEN"),
)

_KNOBS = {"odf": "use_odf", "async-fork": "memory.async_fork"}
"""What a flavour's modes are written to."""

_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# What the kernels were tested with

Written by `make test-kernel`. It builds the kernels with `--debug` unless they are in the cache, boots each in a guest
under {accelerator}, runs every program of [tests/kernel/](../tests/kernel/) in each mode of the kernel's fork(), and
looks through all that the kernel printed for complaints. By hand, on any kernels:

```
forktail kernel build all --debug
FORKTAIL_KERNEL_DEBUG=1 FORKTAIL_KERNEL_REPORT=docs/kernel-test-report.md .venv/bin/pytest tests/kernel
```

{date}, {cpus} CPUs of a {machine} host, {qemu}. A point is one sentence that a program found true or false; a
skipped one names what the kernel lacks.
"""


def _options(image: Path) -> str:
    """The options that matter here, of a kernel in the cache; the config is beside the image."""
    config = image.with_name("config")
    text = config.read_text() if config.exists() else ""
    on = [f"`{name}`" for name in _OPTIONS if re.search(rf"^CONFIG_{name}=y$", text, re.MULTILINE)]
    return ", ".join(on) or "not known"


def _row(name: str, programs: dict[str, Program], modes: list[str]) -> str:
    cells = []
    for mode in modes:
        program = programs.get(mode)
        if program is None:
            cells.append("-")
            continue
        passed = program.points - len(program.failures) - program.skipped
        cells.append(
            f"{passed} / {len(program.failures)} / {program.skipped}" + " (not ended)" * (program.status is None)
        )
    return f"| {name} | {' | '.join(cells)} |"


def _notes(boot: Boot) -> list[str]:
    """What the programs remarked about staleness, and which points they skipped."""
    found: list[str] = []
    for (name, mode), program in sorted(boot.programs.items()):
        for line in program.lines:
            if "# SKIP" in line or (name == "staleness" and line.startswith("# ")) or line.startswith("not ok"):
                found.append(f"{name}, mode {mode}: {line}")
    return found


def _section(flavour: str, boot: Boot, image: Path) -> str:
    names = sorted({name for name, _ in boot.programs if name != "dmesg"})
    modes = sorted({mode for name, mode in boot.programs if name != "dmesg"})
    knob = _KNOBS.get(flavour, "mode")
    by_name = {name: {mode: p for (other, mode), p in boot.programs.items() if other == name} for name in names}
    points = sum(p.points for (name, _), p in boot.programs.items() if name != "dmesg")
    failures = sum(len(p.failures) for (name, _), p in boot.programs.items() if name != "dmesg")
    skipped = sum(p.skipped for (name, _), p in boot.programs.items() if name != "dmesg")
    ended = ("dmesg", "-") in boot.programs
    complaints = boot.complaints
    lines = [
        f"\n## {flavour}\n",
        f"`{boot.kernel}`, image SHA-256 `{hashlib.sha256(image.read_bytes()).hexdigest()[:12]}`.",
        f"Of its options: {_options(image)}.\n",
        f"{points - failures - skipped} points passed, {failures} failed, {skipped} were skipped;",
        f"the guest {'came to its end' if ended else 'did not come to its end'} after {boot.seconds:.0f} s.",
        f"The kernel complained {len(complaints)} times.\n",
        f"| Program: passed / failed / skipped | {' | '.join(f'{knob} {mode}' for mode in modes)} |",
        "|---" * (1 + len(modes)) + "|",
        *(_row(name, by_name[name], modes) for name in names),
    ]
    if remarks := _notes(boot) + complaints:
        lines += ["\n```", *remarks, "```"]
    return "\n".join(lines) + "\n"


def write_report(boots: dict[str, Boot], images: dict[str, Path | None]) -> str:
    """A page of Markdown about some boots, by flavour."""
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    head = _HEAD.format(
        accelerator="TCG",
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        cpus=os.cpu_count(),
        machine=platform.machine(),
        qemu=qemu.splitlines()[0].split(" (")[0],
    )
    return head + "".join(_section(flavour, boots[flavour], image) for flavour in boots if (image := images[flavour]))
