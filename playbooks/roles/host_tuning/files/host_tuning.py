#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Set a host's knobs, having recorded once what they were; put exactly that back.

    host_tuning.py plan KNOBS RECORD      say what `apply` would change, and change nothing
    host_tuning.py apply KNOBS RECORD     record what is not recorded yet, then set
    host_tuning.py restore RECORD         set every knob as recorded

KNOBS is a JSON list of {"name", "paths", "value"}: `paths` are glob patterns of files below /proc or /sys, `value` is
one word. The knob named `swap` has no path: it means that no swap is in use. RECORD holds the prior values
(forktail.host-tuning/1) and is written before the first knob is set, and never again for a knob that is in it.
Standard library only: it runs at boot, and before anything of forktail is on the host.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

SCHEMA = "forktail.host-tuning/1"


def read(path: str) -> str | None:
    """The value of a knob, of a choice such as "always [madvise] never" the one in brackets; None if unreadable."""
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else text


def cpus(text: str) -> set[int]:
    """The CPUs of a list such as "0-3,8"."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found


def same(path: str, have: str, want: str) -> bool:
    """Whether the knob has the value; the kernel writes a list of CPUs in its own way."""
    return have == want or (path.endswith("affinity_list") and have != "" and cpus(have) == cpus(want))


def swaps() -> list[dict[str, Any]]:
    """The swap areas in use, with the priority that each has."""
    found = []
    for line in Path("/proc/swaps").read_text().splitlines()[1:]:
        device, _, _, _, priority = line.split()
        found.append({"device": device, "priority": int(priority)})
    return found


def load(record: Path) -> dict[str, Any]:
    """The record, or an empty one."""
    if not record.exists():
        return {"schema": SCHEMA, "values": {}, "swaps": [], "refused": {}}
    held: dict[str, Any] = json.loads(record.read_text())
    if held.get("schema") != SCHEMA:
        sys.exit(
            f"{record} is of {held.get('schema')!r}, and this is {SCHEMA}: restore with the version that wrote it."
        )
    return held


def save(record: Path, held: dict[str, Any]) -> None:
    """Write the record so that a crash leaves the old one or the new one."""
    record.parent.mkdir(parents=True, exist_ok=True)
    partial = record.with_name(record.name + ".partial")
    with partial.open("w") as file:
        json.dump(held, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(record)


def plan(knobs: list[dict[str, Any]], held: dict[str, Any]) -> dict[str, Any]:
    """What would change, the knobs that this host does not have, and the files that refused their value before."""
    changes, absent = [], []
    for knob in knobs:
        if knob["name"] == "swap":
            changes += [{"path": area["device"], "have": "in use", "want": "off"} for area in swaps()]
            continue
        paths = sorted({str(path) for pattern in knob["paths"] for path in Path("/").glob(pattern.lstrip("/"))})
        readable = [(path, value) for path in paths if (value := read(path)) is not None]
        if not readable:
            absent.append(knob["name"])
        changes += [
            {"path": path, "have": value, "want": knob["value"]}
            for path, value in readable
            if not same(path, value, knob["value"]) and path not in held["refused"]
        ]
    return {"changes": changes, "absent": absent, "refused": held["refused"]}


def write(path: str, value: str) -> str | None:
    """Set a knob; why it was refused, or None."""
    try:
        Path(path).write_text(value + "\n")
    except OSError as error:
        return error.strerror
    return None


def apply(knobs: list[dict[str, Any]], record: Path) -> dict[str, Any]:
    """Record, then set. A file that refuses its value (an interrupt that the kernel manages) is noted as such."""
    held = load(record)
    held["refused"] = {}
    changes = plan(knobs, held)["changes"]
    off = [area for area in swaps() if any(change["path"] == area["device"] for change in changes)]
    devices = {area["device"] for area in held["swaps"]}
    held["swaps"] += [area for area in off if area["device"] not in devices]
    areas = {area["device"] for area in off}
    files = [change for change in changes if change["path"] not in areas]
    for change in files:
        held["values"].setdefault(change["path"], change["have"])
    save(record, held)
    for change in files:
        why = write(change["path"], change["want"])
        if why is not None:
            held["refused"][change["path"]] = why
            del held["values"][change["path"]]
    for area in off:
        subprocess.run(["swapoff", area["device"]], check=True)
    save(record, held)
    return plan(knobs, held)


def restore(record: Path) -> dict[str, Any]:
    """Set every knob as recorded, and remove the record; what could not be set stays in it, and is named."""
    held = load(record)
    restored, failed = [], {}
    for path, value in held["values"].items():
        if read(path) == value:
            continue
        why = write(path, value)
        if why is None:
            restored.append(path)
        else:
            failed[path] = why
    used = {area["device"] for area in swaps()}
    for area in held["swaps"]:
        if area["device"] in used:
            continue
        # A negative priority is the kernel's own choice and cannot be asked for.
        priority = ["--priority", str(area["priority"])] if area["priority"] >= 0 else []
        result = subprocess.run(["swapon", *priority, area["device"]], capture_output=True, text=True)
        if result.returncode == 0:
            restored.append(area["device"])
        else:
            failed[area["device"]] = result.stderr.strip()
    held["values"] = {path: value for path, value in held["values"].items() if path in failed}
    held["swaps"] = [area for area in held["swaps"] if area["device"] in failed]
    if failed:
        save(record, held)
    else:
        with contextlib.suppress(FileNotFoundError):
            record.unlink()
    return {"restored": restored, "failed": failed}


def main(arguments: list[str]) -> int:
    match arguments:
        case ["plan", knobs, record]:
            answer = plan(json.loads(knobs), load(Path(record)))
        case ["apply", knobs, record]:
            # At boot the knobs come from the file that provisioning left.
            text = Path(knobs).read_text() if knobs.startswith("/") else knobs
            answer = apply(json.loads(text), Path(record))
        case ["restore", record]:
            answer = restore(Path(record))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(json.dumps(answer))
    return 1 if answer.get("failed") or (arguments[0] == "apply" and answer["changes"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
