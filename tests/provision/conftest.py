# SPDX-License-Identifier: Apache-2.0
"""Ansible as `make ansible` installs it, on inventories of a test's own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PLAYBOOKS = ROOT / "playbooks"
PROGRAMS = ROOT / ".venv/ansible/bin"

Play = Callable[..., subprocess.CompletedProcess[str]]

LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}
"""A host that is this machine: for checks alone, for it is never provisioned."""


def run_ansible(
    program: str, *arguments: str | Path, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program of Ansible's, without colours and with our roles."""
    if not (PROGRAMS / program).exists():
        pytest.skip(f"{program} is not installed: make ansible")
    path = f"{PROGRAMS}:{os.environ['PATH']}"
    settings = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles"), "PATH": path}
    return subprocess.run(
        [PROGRAMS / program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | settings | environment,
        timeout=seconds,
    )


@pytest.fixture
def provision(tmp_path: Path) -> Play:
    """Run a playbook on an inventory, given as groups of hosts with their variables."""

    def play(
        playbook: str, groups: dict[str, dict[str, Any]], *arguments: str, seconds: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        inventory = tmp_path / "inventory.json"
        inventory.write_text(json.dumps({name: {"hosts": hosts} for name, hosts in groups.items()}))
        cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "ANSIBLE_PIPELINING": "1"}
        return run_ansible(
            "ansible-playbook", "-i", inventory, playbook, *arguments, seconds=seconds, **(cache | environment)
        )

    return play
