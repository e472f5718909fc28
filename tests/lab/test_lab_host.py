# SPDX-License-Identifier: Apache-2.0
"""Lab hosts: a disk that outlives boots, a kernel that is changed by one, and an end when their owner ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.lab.conftest import Lab
from tests.run.conftest import Command

BOOT_S = 400


def _host(lab: Lab) -> dict[str, Any]:
    (host,) = json.loads(lab("status", "--json").finish()[1])["hosts"]
    assert isinstance(host, dict)
    return host


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["up", "--name", "Lab_1", "--kernel", "KERNEL"], "'Lab_1' is no name for a lab host"),
        (["up", "--name", "odf", "--kernel", "KERNEL"], "'odf' is no name for a lab host"),
        (["up", "--name", "lab1", "--kernel", "KERNEL", "--kernel", "KERNEL"], "one stock kernel"),
        (["up", "--name", "lab1", "--kernel", "KERNEL", "--owner", "4194305"], "is no living process"),
        (["up", "--owner", "1", "--kernel", "KERNEL"], "give --name with it"),
        (["boot", "lab1"], "There is no lab host lab1: `forktail lab up --name lab1`"),
        (["down", "lab1"], "No guest of lab1 is up"),
        (["kernels", "odv"], "did you mean odf?"),
    ],
)
def test_bad_input(lab: Lab, made_up_kernel: Path, arguments: list[str], sentence: str) -> None:
    command = lab(*(str(made_up_kernel) if argument == "KERNEL" else argument for argument in arguments))
    code, _, errors = command.finish()
    assert code == 2, errors
    assert sentence in errors
    assert not command.orphans()


def test_kernels_are_told_with_their_build(lab: Lab, made_up_kernel: Path) -> None:
    code, output, errors = lab("kernels", made_up_kernel, "--json").finish()
    assert code == 0, errors
    (kernel,) = json.loads(output)["kernels"]
    assert (kernel["release"], kernel["build"]) == ("6.1.192-forktail-odf", "#1")


@pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root")
def test_a_host_keeps_its_disk_survives_a_panic_and_ends_with_its_owner(lab: Lab, real_kernel: Path) -> None:
    with subprocess.Popen(["sleep", "3600"]) as owner:
        up = lab("up", "--name", "one", "--kernel", real_kernel, "--memory", "512MiB", "--owner", str(owner.pid))
        code, _, errors = up.finish(BOOT_S)
        assert code == 0, errors
        first = _host(lab)
        assert (first["state"], first["owner"]) == ("ready", owner.pid)
        assert lab("ssh", "one", "--", "echo kept >/root/word").finish()[0] == 0

        code, _, errors = lab("boot", "one", "--kernel", real_kernel, "--append", "init=/nowhere").finish(BOOT_S)
        assert code == 1
        assert "Kernel panic" in errors
        assert _host(lab)["state"] == "off"
        assert "is off: `forktail lab boot one`" in lab("ssh", "one").finish()[2]

        assert lab("boot", "one").finish(BOOT_S)[1] == f"one runs {first['stock']['release']}.\n"
        assert lab("ssh", "one", "--", "cat", "/root/word").finish()[1] == "kept\n"
        disk = Path(_host(lab)["disk"])
        assert disk.exists()
        owner.kill()
        owner.wait()
    _gone(up, lab)
    assert not disk.exists()


def _gone(up: Command, lab: Lab) -> None:
    assert not up.orphans(30)
    assert json.loads(lab("status", "--json").finish()[1])["hosts"] == []
