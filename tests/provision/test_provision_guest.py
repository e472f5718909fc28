# SPDX-License-Identifier: Apache-2.0
"""provision.yml and restore.yml on a guest of the lab: twice, with --check, and back to what it was.

FORKTAIL_MEMTIER_SOURCE: a repository or mirror of memtier_benchmark; with it, that is built and installed as well.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.provision.conftest import Play

pytestmark = pytest.mark.ansible

FORKTAIL = Path(sys.executable).with_name("forktail")
MINUTES = 60
KNOBS = (
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/compaction_proactiveness",
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/sys/kernel/mm/ksm/run",
    "/proc/swaps",
)
PREPARE = """
dd if=/dev/zero of=/swapfile bs=1M count=32 status=none
chmod 600 /swapfile
mkswap -q /swapfile
swapon -p 5 /swapfile
echo always >/sys/kernel/mm/transparent_hugepage/enabled
echo 1 >/sys/kernel/mm/ksm/run
"""
STATE = f"""
for knob in {" ".join(KNOBS)}; do echo "$knob: $(cat $knob)"; done
dpkg-query -W
systemctl list-unit-files --no-legend --no-pager
find /etc /opt /usr/local /var/lib/forktail -type f -exec sha256sum {{}} + 2>/dev/null | grep -v __pycache__ | sort
find /etc /opt /usr/local -type l -printf '%p -> %l\\n' | sort
"""


class Guest:
    """A guest that is up, with a registry of its own."""

    def __init__(self, runtime: Path) -> None:
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(runtime)}
        done = self.lab("up", "--kernel", "default", "--memory", "2GiB", "--cpus", "1")
        if done.returncode == 3:
            pytest.skip(f"No guest to provision: {done.stderr.strip()}")
        assert done.returncode == 0, done.stderr
        self.guest: dict[str, Any]
        [self.guest] = json.loads(self.lab("status", "--json").stdout)["guests"]

    def lab(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(FORKTAIL), "lab", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=600)

    def tell(self, script: str) -> str:
        command = [*shlex.split(self.guest["ssh"]), "sh", "-se"]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=True, timeout=600)
        return done.stdout

    @property
    def inventory(self) -> dict[str, object]:
        return {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.guest["port"],
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": shlex.join(shlex.split(self.guest["ssh"])[1:-1]),
        }


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    up = Guest(runtime)
    yield up
    up.lab("down")


def test_a_guest_is_provisioned_once_and_restored_as_it_was(guest: Guest, provision: Play) -> None:
    source = os.environ.get("FORKTAIL_MEMTIER_SOURCE")
    variables = {
        "forktail_programs": ["redis", "memtier"] if source else ["redis"],
        "kernel_build_flavours": [],
        "host_tuning_irq_cpus": "0",
    } | ({"memtier_source": source} if source else {})

    def play(book: str, *arguments: str) -> str:
        done = provision(
            f"playbooks/{book}.yml", {"servers": {"guest": guest.inventory}}, "-e", json.dumps(variables), *arguments,
            seconds=MINUTES * 60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    guest.tell(PREPARE)
    before = guest.tell(STATE)
    play("provision", "--check")
    assert guest.tell(STATE) == before

    first = play("provision")
    assert "guest has no GRUB" in first
    now = guest.tell(STATE)
    assert "/sys/kernel/mm/transparent_hugepage/enabled: always madvise [never]" in now
    assert "/sys/kernel/mm/ksm/run: 0" in now
    assert "/swapfile" not in now
    assert '"able": true' in guest.tell("/opt/forktail/venv/bin/forktail doctor --json")
    if source:
        assert "v=2." in guest.tell("memtier_benchmark --version")

    second = play("provision")
    assert "changed:" not in second

    play("restore")
    assert guest.tell(STATE) == before
