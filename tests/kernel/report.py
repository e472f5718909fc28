# SPDX-License-Identifier: Apache-2.0
"""What the programs reported on each kernel, as a page."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

from tests.kernel.boots import Kernel, digest_of
from tests.kernel.guest import Boot, Program

_OPTIONS = (
    *("KASAN", "PROVE_LOCKING", "DEBUG_ATOMIC_SLEEP", "DEBUG_VM", "PAGE_TABLE_CHECK_ENFORCED", "DEBUG_LIST"),
    *("FAIL_PAGE_ALLOC", "FAILSLAB", "DETECT_HUNG_TASK", "SOFTLOCKUP_DETECTOR", "PREEMPT_VOLUNTARY", "LRU_GEN"),
    *("MEMORY_FAILURE", "KVM_AMD", "KCSAN", "PREEMPT", "DEBUG_PREEMPT", "DEBUG_KMEMLEAK", "PAGE_OWNER"),
)

_KNOBS = {"odf": "use_odf", "async-fork": "memory.async_fork"}
"""What a flavour's modes are written to."""

_PAGES = {
    "debug": ("What the kernels were tested with", "make test-kernel", ""),
    "races": (
        "What the kernels were searched for races with",
        "make test-races",
        """ KCSAN looks at the C files alone that the patches make, for Linux has races of its own, most of them meant;
besides, on every kernel, at what Linux asserts to be changed by nobody else, and at vma.c of its vDSO.""",
    ),
}
"""By what the kernels are checked for: title, command, and what is to be known besides."""

_TOLD = """Written by `{command}`. It builds the kernels with `--{checks}` unless they are in the cache, boots each in
guests under {accelerator} in each mode of its fork(), as many at once as the CPUs bear, runs every program of
[tests/kernel/](../tests/kernel/) there, long ones in a guest each, and looks through all that the kernel printed for
complaints.{besides} What a guest reported that came to its end without any is kept in build/kernel-tests: a program
that passed there is not run again until the kernel or the program is another."""

_HEAD = """<!-- SPDX-License-Identifier: Apache-2.0 -->
# {title}

{told} By hand, on any kernels:

```
forktail kernel build all --{checks}
FORKTAIL_KERNEL_CHECKS={checks} FORKTAIL_KERNEL_REPORT=report.md .venv/bin/pytest tests/kernel
```

{cpus} CPUs of a {machine} host, {qemu}. A point is one sentence that a program found true or false; a skipped one
names what the kernel lacks.
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
            if "# SKIP" in line or line.startswith(("not ok", "# odf.rmap=")):
                found.append(f"{name}, mode {mode}: {line}")
    return found


def _section(flavour: str, boots: dict[str, Boot], image: Path) -> str:
    """Of one kernel, by the modes in which it was booted."""
    programs = {key: program for boot in boots.values() for key, program in boot.programs.items() if key[0] != "dmesg"}
    names = sorted({name for name, _ in programs})
    by_name = {name: {mode: p for (other, mode), p in programs.items() if other == name} for name in names}
    knob = _KNOBS.get(flavour, "mode")
    points = sum(p.points for p in programs.values())
    failures = sum(len(p.failures) for p in programs.values())
    skipped = sum(p.skipped for p in programs.values())
    kernel = next((program.kernel for program in programs.values()), "")
    lines = [
        f"\n## {flavour}\n",
        f"`{kernel}`, image SHA-256 `{digest_of([image])}`.",
        f"Of its options: {_options(image)}.\n",
        f"{points - failures - skipped} points passed, {failures} failed, {skipped} were skipped.\n",
        *(_ending(f"{knob} {mode}", boot) for mode, boot in boots.items()),
        f"\n| Program: passed / failed / skipped | {' | '.join(f'{knob} {mode}' for mode in boots)} |",
        "|---" * (1 + len(boots)) + "|",
        *(_row(name, by_name[name], list(boots)) for name in names),
    ]
    if remarks := [line for boot in boots.values() for line in _notes(boot) + boot.complaints]:
        lines += ["\n```", *remarks, "```"]
    return "\n".join(lines) + "\n"


def _ending(mode: str, boot: Boot) -> str:
    """A line of the list of boots."""
    guests = [boot]
    while guests[0].before:
        guests.insert(0, guests[0].before)
    told = []
    if booted := [guest for guest in guests if guest.console]:
        complaints = len(boot.complaints)
        told.append(
            f"{len(booted)} {'guest' if len(booted) == 1 else 'guests'}, from {booted[0].date} on; "
            f"{'' if boot.ended else 'not '}to the end, after {sum(guest.seconds for guest in booted):.0f} s in all; "
            f"the kernel complained {complaints} {'time' if complaints == 1 else 'times'}"
        )
    if watched := sum(program.watched for program in boot.programs.values()):
        told.append(f"KCSAN watched {watched:,} accesses")
    for reason, count in Counter(reason for guest in guests for reason in guest.voided).items():
        told.append(f"{count} booted again after {reason}")
    if kept := [program for guest in guests for program in guest.kept.values()]:
        dates = sorted({program.date for program in kept})
        span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        told.append(f"{len(kept)} {'program' if len(kept) == 1 else 'programs'} of {span}")
    return f"- `{mode}`: {'; '.join(told)}."


def write_report(boots: dict[Kernel, Boot], images: dict[str, Path], checks: str) -> str:
    """A page of Markdown about some boots; the images are those of the flavours, with `checks` laid over."""
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    title, command, besides = _PAGES[checks]
    told = _TOLD.format(command=command, checks=checks, besides=besides, accelerator="TCG")
    head = _HEAD.format(
        title=title,
        told="\n".join(textwrap.wrap(told, 120, break_on_hyphens=False)),
        checks=checks,
        cpus=os.cpu_count(),
        machine=platform.machine(),
        qemu=qemu.splitlines()[0].split(" (")[0],
    )
    flavours = dict.fromkeys(flavour for flavour, _ in boots)
    by_mode = {flavour: {mode: boot for (of, mode), boot in boots.items() if of == flavour} for flavour in flavours}
    return head + "".join(_section(flavour, by_mode[flavour], images[flavour]) for flavour in flavours)
