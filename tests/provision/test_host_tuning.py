# SPDX-License-Identifier: Apache-2.0
"""The script of the role host_tuning, on files of our own in place of /sys."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "playbooks/roles/host_tuning/files/host_tuning.py"


class Host:
    """Knobs below a directory, and the record of what they were."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.record = root / "state" / "prior.json"
        self.before = {
            "thp": "always [madvise] never\n",
            "ksm": "1\n",
            "cpu0/governor": "powersave\n",
            "cpu1/governor": "schedutil\n",
            "irq/7/smp_affinity_list": "0-3\n",
        }
        self.reset()
        self.knobs = [
            {"name": "THP", "paths": [f"{root}/thp"], "value": "never"},
            {"name": "KSM", "paths": [f"{root}/ksm"], "value": "0"},
            {"name": "governor", "paths": [f"{root}/cpu*/governor"], "value": "performance"},
            {"name": "IRQ affinity", "paths": [f"{root}/irq/*/smp_affinity_list"], "value": "0,1"},
            {"name": "turbo", "paths": [f"{root}/no_turbo"], "value": "1"},
        ]

    def reset(self) -> None:
        """What a boot does: every value is the distribution's again."""
        for name, text in self.before.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def run(self, *arguments: str | Path) -> Any:
        done = subprocess.run(["python3", SCRIPT, *arguments], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def plan(self) -> Any:
        return self.run("plan", json.dumps(self.knobs), self.record)

    def apply(self) -> Any:
        return self.run("apply", json.dumps(self.knobs), self.record)

    def values(self) -> dict[str, str]:
        return {name: (self.root / name).read_text().strip() for name in self.before}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_plan_changes_nothing_and_names_what_the_host_lacks(host: Host) -> None:
    planned = host.plan()
    assert {change["path"].removeprefix(f"{host.root}/") for change in planned["changes"]} == set(host.before)
    assert planned["absent"] == ["turbo"]
    assert host.values() == {name: text.strip() for name, text in host.before.items()}
    assert not host.record.exists()


def test_what_is_applied_is_no_change_any_more(host: Host) -> None:
    assert host.apply()["changes"] == []
    assert host.values() == {
        "thp": "never",
        "ksm": "0",
        "cpu0/governor": "performance",
        "cpu1/governor": "performance",
        "irq/7/smp_affinity_list": "0,1",
    }
    (host.root / "irq/7/smp_affinity_list").write_text("0-1\n")  # As the kernel would say the same.
    assert host.plan()["changes"] == []


def test_restore_puts_back_what_was_first_even_after_a_boot_and_a_second_run(host: Host) -> None:
    host.apply()
    recorded = host.record.read_text()
    host.apply()
    host.before |= {"cpu0/governor": "ondemand\n"}
    host.reset()
    host.apply()
    assert json.loads(host.record.read_text())["values"] == json.loads(recorded)["values"]
    host.run("restore", host.record)
    assert host.values() == {
        "thp": "madvise",
        "ksm": "1",
        "cpu0/governor": "powersave",
        "cpu1/governor": "schedutil",
        "irq/7/smp_affinity_list": "0-3",
    }
    assert not host.record.exists()


def test_a_file_that_refuses_its_value_is_named_and_never_restored(host: Host) -> None:
    host.knobs.append({"name": "refusing", "paths": ["/proc/version"], "value": "1"})
    applied = host.apply()
    assert list(applied["refused"]) == ["/proc/version"]
    assert applied["changes"] == []
    assert "/proc/version" not in json.loads(host.record.read_text())["values"]
    assert host.plan()["refused"] == applied["refused"]


def test_what_cannot_be_put_back_stays_in_the_record(host: Host) -> None:
    host.apply()
    (host.root / "ksm").unlink()
    (host.root / "ksm").mkdir()
    done = subprocess.run(["python3", SCRIPT, "restore", host.record], capture_output=True, text=True)
    assert done.returncode == 1
    assert list(json.loads(done.stdout)["failed"]) == [f"{host.root}/ksm"]
    assert json.loads(host.record.read_text())["values"] == {f"{host.root}/ksm": "1"}


def test_a_record_of_another_version_is_refused(host: Host) -> None:
    host.record.parent.mkdir()
    host.record.write_text('{"schema": "forktail.host-tuning/9"}')
    done = subprocess.run(
        ["python3", SCRIPT, "apply", json.dumps(host.knobs), host.record], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "forktail.host-tuning/9" in done.stderr
    assert host.values()["ksm"] == "1"
