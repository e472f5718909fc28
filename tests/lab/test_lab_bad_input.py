# SPDX-License-Identifier: Apache-2.0
"""Every bad start of `forktail lab`: one sentence that names the thing and the mend, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.lab.conftest import Lab
from tests.run.conftest import Start


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["up", "--kernel", "odv"], 2, "did you mean odf?"),
        (["up", "--kernel", "KERNEL", "--memory", "64MiB"], 2, "A guest of 64MiB cannot boot"),
        (["up", "--kernel", "KERNEL", "--memory", "4"], 2, "--memory '4' is no size"),
        (["up", "--kernel", "KERNEL", "--memory", "999TiB"], 3, "The guests want"),
        (["run", "WORKLOAD", "--kernel", "KERNEL", "--icount", "--set", "load.cpu=1"], 2, "--set load.cpu=-1"),
        (["up", "--kernel", "KERNEL", "--cpus", "2", "--numa-nodes", "3"], 2, "--numa-nodes 3 is not between"),
        (
            ["run", "WORKLOAD", "--kernel", "KERNEL", "--set", "server.size=3GiB"],
            2,
            "server.size 3GiB needs a guest of",
        ),
        (["run", "nowhere.toml", "--kernel", "KERNEL"], 2, "nowhere.toml does not exist"),
        (["ssh", "odf"], 2, "No guest of odf is up"),
        (["down", "odf"], 2, "No guest of odf is up"),
    ],
)
def test_bad_input(lab: Lab, made_up_kernel: Path, tiny: Path, arguments: list[str], code: int, sentence: str) -> None:
    stand_ins = {"KERNEL": str(made_up_kernel), "WORKLOAD": str(tiny)}
    command = lab(*(stand_ins.get(argument, argument) for argument in arguments))
    returned, _, errors = command.finish()
    assert returned == code, errors
    assert sentence in errors
    assert "Traceback" not in errors
    assert not command.orphans()


def test_only_a_guest_counts_instructions(start: Start, tiny: Path) -> None:
    code, _, errors = start("sweep", tiny, "--icount").finish()
    assert code == 2
    assert "--icount is for guests of the lab" in errors


@pytest.mark.parametrize("verb", ["up", "run"])
def test_qemu_is_missing(lab: Lab, made_up_kernel: Path, tiny: Path, verb: str) -> None:
    arguments = [tiny] if verb == "run" else []
    code, _, errors = lab(verb, *arguments, "--kernel", made_up_kernel, PATH="/nonexistent").finish()
    assert code == 3, errors
    assert "qemu-system-x86_64 is not installed: `apt-get install qemu-system-x86`." in errors


def test_nothing_is_up(lab: Lab) -> None:
    assert lab("status").finish()[:2] == (0, "No guest is up.\n")
    code, output, _ = lab("status", "--json").finish()
    assert (code, json.loads(output)["guests"]) == (0, [])
    assert lab("down").finish()[:2] == (0, "")
