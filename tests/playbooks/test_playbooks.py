# SPDX-License-Identifier: Apache-2.0
"""The playbooks as far as they go without a host: syntax, lint, inventories, and what is refused before anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.playbooks.conftest import ANSIBLE, PLAYBOOKS, Ansible

from forktail.lab.accelerator import Accelerator
from forktail.lab.guest import start_ticks
from forktail.lab.host import LabHost, Owner, record_host
from forktail.lab.image import Image
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine
from forktail.lab.network import Place


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.name)
def test_syntax(ansible: Ansible, path: Path) -> None:
    code, output = ansible("ansible-playbook", "-i", PLAYBOOKS / "inventory/bare-metal", path, "--syntax-check").finish(
        60
    )
    assert code == 0, output


def test_lint(ansible: Ansible) -> None:
    arguments = ["--offline", "--profile", "production", "--nocolor", PLAYBOOKS]
    # The linter starts programs of Ansible's, and reads a role's tasks without the playbook that tells where roles are.
    environment = {"PATH": f"{ANSIBLE}:{os.environ['PATH']}", "ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles")}
    code, output = ansible("ansible-lint", *arguments, **environment).finish(300)
    assert code == 0, output


def _inventory(ansible: Ansible, **environment: str) -> dict[str, dict[str, object]]:
    code, output = ansible("ansible-inventory", "-i", PLAYBOOKS / "inventory/lab", "--list", **environment).finish(60)
    assert code == 0, output
    found: dict[str, dict[str, object]] = json.loads(output)
    return found


def test_the_lab_is_an_inventory_before_anything_is_up(ansible: Ansible) -> None:
    found = _inventory(ansible)
    assert found["lab"]["hosts"] == ["lab1", "lab2"]
    assert found["servers"]["hosts"] == ["lab1", "lab2"]
    assert "hosts" not in found.get("clients", {})


def test_hosts_of_the_lab_that_only_send_the_load(ansible: Ansible) -> None:
    found = _inventory(ansible, FORKTAIL_LAB_HOSTS="one", FORKTAIL_LAB_CLIENTS="two")
    assert found["lab"]["hosts"] == ["one", "two"]
    assert (found["servers"]["hosts"], found["clients"]["hosts"]) == (["one"], ["two"])


@pytest.mark.parametrize(
    ("environment", "icount"),
    [({}, True), ({"FORKTAIL_LAB_CPUS": "2"}, False), ({"FORKTAIL_LAB_CLIENTS": "two"}, False)],
)
def test_guests_measure_side_by_side_where_their_host_does_not_matter(
    ansible: Ansible, environment: dict[str, str], icount: bool
) -> None:
    variables = _inventory(ansible, FORKTAIL_LAB_HOSTS="one,three", **environment)["_meta"]["hostvars"]
    assert isinstance(variables, dict)
    assert variables["one"]["forktail_lab_icount"] is icount
    assert variables["one"]["forktail_runs_at_once"] == (len(os.sched_getaffinity(0)) if icount else 1)


def test_a_host_of_the_lab_tells_how_it_is_reached(
    ansible: Ansible, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    accelerator: Accelerator = "tcg"
    kernel = LabKernel("default", "6.1.0", _image(tmp_path))
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    owner = Owner(os.getpid(), ticks)
    disk = tmp_path / "disk.img"
    disk.touch()
    record_host(LabHost("one", kernel, Machine(), accelerator, Image(tmp_path), disk, 4711, Place(3), owner))
    found = _inventory(ansible, FORKTAIL_LAB_HOSTS="one,two")
    variables = found["_meta"]["hostvars"]
    assert isinstance(variables, dict)
    assert variables["one"]["ansible_port"] == 4711
    assert variables["one"]["forktail_emulated"] is True
    assert variables["one"]["forktail_load_address"] == "10.77.0.3"
    assert f"UserKnownHostsFile={tmp_path}/known_hosts" in variables["one"]["ansible_ssh_common_args"]
    assert "ansible_port" not in variables["two"]


def _image(directory: Path) -> Path:
    head = bytearray(0x1000)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x600).to_bytes(2, "little")
    banner = b"6.1.0 (someone@somewhere) #abc SMP\0"
    head[0x800 : 0x800 + len(banner)] = banner
    path = directory / "bzImage"
    path.write_bytes(head)
    return path


@pytest.mark.parametrize(
    ("servers", "clients", "at_once", "sentence"),
    [
        ("a,b,c", "d,e", 0, "The group clients has 2 hosts for 3 servers: give each server one of its own"),
        ("a,b", "b,c", 0, "b is in clients and in servers: take it out of one of them."),
        ("a,b,c", "d,e", 1, "No workload is given"),
        ("a,b", "c,d", 0, "No workload is given"),
        ("a,b", "c,d,e", 0, "No workload is given"),
    ],
)
def test_clients_are_as_many_as_servers_at_work(
    ansible: Ansible, tmp_path: Path, servers: str, clients: str, at_once: int, sentence: str
) -> None:
    inventory = tmp_path / "hosts.json"
    groups = {name: {"hosts": dict.fromkeys(hosts.split(","))} for name, hosts in
              (("servers", servers), ("clients", clients))}  # fmt: skip
    inventory.write_text(json.dumps({"all": {"children": groups, "vars": {"forktail_runs_at_once": at_once}}}))
    code, output = ansible("ansible-playbook", "-i", inventory, "playbooks/sweep.yml").finish(120)
    assert code == 2, output
    assert sentence in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-i", "nowhere"], "The inventory has no host in the group servers"),
        (["-i", "playbooks/inventory/lab"], "No workload is given: add -e workload=workloads/quick.toml"),
        (["-i", "playbooks/inventory/lab", "-e", "workload=nowhere.toml"], "nowhere.toml does not exist"),
        (
            [
                "-i",
                "playbooks/inventory/lab",
                "-e",
                "workload=workloads/quick.toml",
                "-e",
                '{"forktail_kernels": ["odv"]}',
            ],
            "'odv' is no kernel flavour: did you mean odf?",
        ),
        (
            [
                "-i",
                "playbooks/inventory/lab",
                "-e",
                "workload=workloads/quick.toml",
                "-e",
                '{"settings": ["load.rat=5"]}',
            ],
            "did you mean 'rate'?",
        ),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_before_anything_is_booted(
    ansible: Ansible, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    code, output = ansible("ansible-playbook", "playbooks/sweep.yml", *arguments).finish(120)
    assert code == 2, output
    assert sentence in " ".join(output.split())
    assert not list(tmp_path.rglob("*.console"))
