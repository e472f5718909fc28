# SPDX-License-Identifier: Apache-2.0
"""The conditions that a run was made under, and in what those of two sides differ.

What is to be pinned (docs/compare.md) is compared as far as a run directory records it. The kernel is not among the
conditions: it is what is compared, all but its timer frequency and its preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forktail.analysis.run import section

Document = Mapping[str, Any]

HOST = {
    "cpu": ("model", "online", "usable", "numa_nodes", "smt", "governor", "turbo", "hypervisor"),
    "memory": ("swap_bytes",),
    "settings": (
        "transparent_hugepage",
        "overcommit_memory",
        "swappiness",
        "ksm",
        "numa_balancing",
        "compaction_proactiveness",
        "somaxconn",
    ),
    "clock": ("source",),
    "disk": ("filesystem",),
    "kernel": ("machine", "hz", "preemption"),
    "lab": ("cpus", "memory_bytes", "numa_nodes"),
}
"""What is compared of `environment.json`, by section."""
MEMORY = "memory.total_bytes"
MEMORY_TOLERANCE = 0.02
"""Kernels keep different amounts of the same memory to themselves."""
MITIGATIONS = "cpu.mitigations"

EMULATED = "emulated (tcg)"
EMULATED_COUNTED = "emulated (tcg, 1 instruction = 1 ns)"

_NO_CONDITION = ("name", "server.port")
"""What a workload may be called, and where its server listened, move no number."""


def host_conditions(environment: Document, engine: Document) -> dict[str, Any]:
    """The conditions of a run's host and server, by dotted key; None where they were not recorded."""
    found = {f"{name}.{key}": section(environment, name).get(key) for name, keys in HOST.items() for key in keys}
    found[MEMORY] = section(environment, "memory").get("total_bytes")
    found["engine.version"] = engine.get("version")
    mitigations = section(section(environment, "cpu"), "mitigations")
    # The rest of a mitigation's text is in the words of its kernel.
    found |= {f"{MITIGATIONS}.{name}": str(text).split(":")[0] for name, text in mitigations.items()}
    return found


def machine(environment: Document) -> str:
    """What executed the run's instructions, as in "emulated (tcg)"."""
    lab = section(environment, "lab")
    accelerator = lab.get("accelerator")
    if accelerator == "tcg":
        return EMULATED_COUNTED if lab.get("icount") else EMULATED
    if accelerator:
        return f"a guest of the lab ({accelerator})"
    return "no guest of the lab"


def flat(document: Document, prefix: str = "") -> dict[str, Any]:
    """A nested document by dotted keys."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def workload_differences(base: Document, new: Document, may_differ: Iterable[str]) -> list[str]:
    """In what two workloads differ, a phrase for each key."""
    one, other = flat(base), flat(new)
    allowed = (*may_differ, *_NO_CONDITION)
    return [
        _phrase(key, one.get(key), other.get(key))
        for key in sorted({*one, *other})
        if one.get(key) != other.get(key) and not _within(key, allowed)
    ]


def host_differences(
    base: Document, new: Document, may_differ: Iterable[str], base_name: str = "BASE", new_name: str = "NEW"
) -> list[str]:
    """In what the conditions of two runs' hosts differ, a phrase for each key."""
    allowed = tuple(may_differ)
    return [
        _phrase(key, base.get(key), new.get(key), base_name, new_name)
        for key in sorted({*base, *new})
        if not _alike(key, base, new) and not _within(key, allowed)
    ]


def _alike(key: str, base: Document, new: Document) -> bool:
    one, other = base.get(key), new.get(key)
    if key == MEMORY and isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) <= MEMORY_TOLERANCE * max(one, other)
    if key.startswith(MITIGATIONS) and not (key in base and key in new):
        # A newer kernel knows of more.
        return True
    return bool(one == other)


def _within(key: str, allowed: Iterable[str]) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in allowed)


def _phrase(key: str, base: object, new: object, base_name: str = "BASE", new_name: str = "NEW") -> str:
    return f"{key} is {_text(base)} in {base_name} and {_text(new)} in {new_name}"


def _text(value: object) -> str:
    return "not recorded" if value is None else repr(value) if isinstance(value, str) else str(value)
