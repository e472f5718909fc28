# SPDX-License-Identifier: Apache-2.0
"""The key of a kernel: the digest of everything that its bytes depend on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forktail.kernel import toolchain
from forktail.kernel.series import Series
from forktail.kernel.source import Source, digest

SHORT = 12
"""Digits of the key that name a directory, and that `uname -v` shows behind its #."""


def inputs(source: Source, series: Series, fragments: Sequence[Path], watched: Sequence[str] = ()) -> dict[str, Any]:
    """Digests of source, patches and configuration in their order, the versions of the tools, what KCSAN looks at."""
    made_of: dict[str, Any] = {
        "source_sha256": source.digest,
        "patches": {path.name: digest(path) for path in series.patches},
        "defconfig": series.defconfig,
        "fragments": {path.name: digest(path) for path in fragments},
        "tools": toolchain.versions(),
    }
    return made_of | ({"watched": list(watched)} if watched else {})


def of(made_of: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
