# SPDX-License-Identifier: Apache-2.0
"""forktail's two native programs: where they are, and how a conversation in JSON lines with one is held."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from forktail.errors import BadInput, EnvironmentLacks, RunFailed
from forktail.measure.program import Program


def find_native(name: str) -> Path:
    """The program `name` beside this Python (where it is installed), else on PATH; EnvironmentLacks if nowhere."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise EnvironmentLacks(f"{name} is not installed: run `make setup`, which builds it, or put it on PATH.")
    return Path(found)


class Native(Program):
    """A native program at work: commands go to its standard input, events come from its standard output.

    `on_event` is called by `pump` for each event. Exit codes mean what docs/formats.md says.
    """

    exit_kinds = MappingProxyType({2: BadInput, 3: EnvironmentLacks})

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | os.PathLike[str]],
        on_event: Callable[[dict[str, Any]], None],
        program: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        """`program` is what speaks for it where it runs on another host."""

        def on_line(line: bytes) -> None:
            try:
                event = json.loads(line)
            except json.JSONDecodeError as error:
                raise RunFailed(f"{name} wrote a line that is not JSON ({line[:80]!r}): {error}.") from error
            on_event(event)

        super().__init__(name, [*(program or [find_native(name)]), *arguments], on_line)
