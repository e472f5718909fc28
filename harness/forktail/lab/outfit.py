# SPDX-License-Identifier: Apache-2.0
"""forktail's measuring side as a guest gets it: the package of this checkout, the natives, the word of the lab."""

from __future__ import annotations

import io
import json
import platform
import py_compile
import tarfile
import tempfile
from importlib.util import cache_from_source
from pathlib import Path

import forktail
from forktail.lab.guest import Guest
from forktail.lab.remote import tell
from forktail.measure import load, probe
from forktail.measure.environment import LAB_FILE, LAB_SCHEMA
from forktail.measure.native import find_native

_COMMAND = "#!/usr/bin/python3\nfrom forktail.cli import main\n\nmain()\n"
_UNPACKED_WITHIN_S = 120
_SUFFIXES = (".py", ".j2", ".toml")


def _word(guest: Guest) -> bytes:
    machine = guest.machine
    return json.dumps(
        {
            "schema": LAB_SCHEMA,
            "accelerator": guest.accelerator,
            "cpus": machine.cpus,
            "memory_bytes": machine.memory_bytes,
            "numa_nodes": machine.numa_nodes,
            "icount": machine.icount,
        }
    ).encode()


def _compiled(path: Path, inside: str) -> bytes:
    """The byte code of a module, which takes an emulated CPU seconds to make; never compared with the source."""
    with tempfile.TemporaryDirectory(prefix="forktail-lab-") as directory:
        code = Path(directory) / "code"
        py_compile.compile(
            str(path),
            cfile=str(code),
            dfile=inside,
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return code.read_bytes()


def _pack(guest: Guest) -> bytes:
    """A tar of everything, to be unpacked at the guest's root."""
    package = Path(forktail.__file__).parent
    python = ".".join(platform.python_version_tuple()[:2])
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:

        def add(name: str, content: bytes, mode: int) -> None:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))

        for path in sorted(package.rglob("*")):
            if path.suffix in _SUFFIXES:
                inside = f"usr/local/lib/python{python}/dist-packages/{path.relative_to(package.parent)}"
                add(inside, path.read_bytes(), 0o644)
                if path.suffix == ".py":
                    add(cache_from_source(inside), _compiled(path, f"/{inside}"), 0o644)
        for native in (load.NAME, probe.NAME):
            add(f"usr/local/bin/{native}", find_native(native).read_bytes(), 0o755)
        add("usr/local/bin/forktail", _COMMAND.encode(), 0o755)
        add(LAB_FILE.lstrip("/"), _word(guest), 0o644)
    return buffer.getvalue()


def fit_out(guest: Guest) -> None:
    """Put everything into the guest, which runs the Python that we run on (its image was made so)."""
    tell(guest, "tar -x --no-same-owner -C /", _pack(guest), _UNPACKED_WITHIN_S)
