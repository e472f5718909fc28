# SPDX-License-Identifier: Apache-2.0
"""Ansible of the environment that `make ansible` makes, and playbooks called as a user calls them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.run.conftest import FORKTAIL

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
ANSIBLE = FORKTAIL.parents[1] / "ansible" / "bin"

whole = pytest.mark.ansible
"""Boots guests for many minutes: `make test-ansible`."""

Ansible = Callable[..., "Play"]


class Play:
    """A command of Ansible's under way."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text()

    def finish(self, seconds: float) -> tuple[int, str]:
        """Its exit code and all that it said."""
        return self.process.wait(seconds), self.output


@pytest.fixture
def ansible(tmp_path: Path) -> Iterator[Ansible]:
    """Start a program of Ansible's with arguments, its lab apart from the user's own."""
    if not ANSIBLE.exists():
        pytest.skip("Ansible is not installed: `make ansible`")
    started: list[Play] = []

    def begin(program: str, *arguments: str | Path, **environment: str) -> Play:
        log = tmp_path / f"ansible-{len(started)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [ANSIBLE / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
                env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path), "ANSIBLE_NOCOLOR": "1"} | environment,
                start_new_session=True,
            )
        started.append(Play(process, log))
        return started[-1]

    yield begin
    for play in started:
        if play.process.poll() is None:
            os.killpg(play.process.pid, signal.SIGKILL)
            play.process.wait()
