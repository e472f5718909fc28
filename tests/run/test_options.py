# SPDX-License-Identifier: Apache-2.0
"""No option and no key is ignored in silence: each is refused in a sentence, or answered in the output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.run.conftest import Start

from forktail.errors import BadInput
from forktail.flavour import flavour_here
from forktail.sweep.plan import plan_sweep
from forktail.workload import idle_keys, read_workload, without_effect

VARIED = "[sweep]\nrepeat = 1\nnoise_floor = false\n"


def _set(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "a kernel without the lab": (["sweep", "WORKLOAD", "--kernel", "odf"], 2, "--kernel is for guests of the lab"),
    "memory without the lab": (["sweep", "WORKLOAD", "--memory", "8GiB"], 2, "--memory is for guests of the lab"),
    "CPUs without the lab": (["sweep", "WORKLOAD", "--cpus", "2"], 2, "--cpus is for guests of the lab"),
    "no icount without the lab": (["sweep", "WORKLOAD", "--no-icount"], 2, "--no-icount is for guests of the lab"),
    "several without the lab": (
        ["sweep", "WORKLOAD", "--memory", "8GiB", "--cpus", "2", "--icount"],
        2,
        "--memory and --cpus and --icount are for guests of the lab",
    ),
    "kernels that this host does not run": (
        ["sweep", "WORKLOAD", *_set('sweep.kernels=["async-fork"]')],
        2,
        f"sweep.kernels names async-fork, and this host's kernel is {flavour_here()}",
    ),
    "kernels by two options": (
        ["sweep", "WORKLOAD", "--lab", "--kernel", "odf", *_set('sweep.kernels=["default"]')],
        2,
        "--kernel and --set sweep.kernels both choose the kernels",
    ),
    "a kernel twice": (["sweep", "WORKLOAD", "--lab", "--kernel", "odf", "--kernel", "odf"], 2, "odf is named twice"),
    "a kernel that is none": (["sweep", "WORKLOAD", "--lab", "--kernel", "odv"], 2, "did you mean odf?"),
    "memory that the host does not have": (
        ["sweep", "WORKLOAD", "--lab", "--memory", "900GiB"],
        3,
        "The guests want 900.0 GiB of memory",
    ),
    "a store that no guest can hold": (
        ["sweep", "WORKLOAD", "--lab", "--memory", "1GiB", *_set("server.size=2GiB")],
        2,
        "server.size 2GiB needs a guest of",
    ),
    "CPUs that a guest does not have": (
        ["sweep", "WORKLOAD", "--lab", "--memory", "1GiB", "--cpus", "2", *_set("load.cpu=7")],
        2,
        "load.cpu names CPU 7",
    ),
    "another host in the lab": (
        ["sweep", "WORKLOAD", "--lab", "--memory", "1GiB", *_set("load.host=10.0.0.2")],
        2,
        "a guest of the lab reaches no other host",
    ),
    "JSON of no report": (["run", "WORKLOAD", "--no-report", "--json"], 2, "--no-report leaves nothing for --json"),
    "no report of a check": (["run", "WORKLOAD", "--no-report", "--check"], 2, "leave --no-report out"),
    "a sweep's key of one run": (["run", "WORKLOAD", *_set("sweep.repeat=5")], 2, "--set sweep.repeat has no effect"),
    "a sweep's key of a guest's run": (
        ["lab", "run", "WORKLOAD", *_set("sweep.spare=5")],
        2,
        "--set sweep.spare has no effect",
    ),
    "theta of uniform keys": (["run", "WORKLOAD", *_set("load.zipf_theta=1.2")], 2, "load.keys is 'uniform'"),
    "theta, written as TOML can": (
        ["run", "WORKLOAD", *_set('"load" . zipf_theta = 1.2')],
        2,
        "load.keys is 'uniform'",
    ),
    "sigma of Zipf's keys": (
        ["run", "WORKLOAD", *_set("load.keys=zipf", "load.gaussian_sigma=0.2")],
        2,
        "--set load.gaussian_sigma has no effect: load.keys is 'zipf'",
    ),
    "the mean of uniform keys": (["sweep", "WORKLOAD", *_set("load.gaussian_mean=0.2")], 2, "load.keys is 'uniform'"),
    "writes without SETs": (["run", "WORKLOAD", *_set("load.writes=insert", "load.set_get=0:1")], 2, "has no SET"),
    "a pause between one snapshot": (["run", "WORKLOAD", *_set("snapshot.every=2s")], 2, "snapshot.count is 1"),
    "spinning of a closed loop": (
        ["run", "WORKLOAD", *_set("load.generator=redis-benchmark", "load.spin=1ms")],
        2,
        "load.spin is 1000000, which redis-benchmark cannot do",
    ),
    "keys of redis-benchmark": (
        ["run", "WORKLOAD", *_set("load.generator=redis-benchmark", "load.keys=zipf")],
        2,
        "load.keys is 'zipf', which redis-benchmark cannot do",
    ),
    "a closed loop from another host": (
        ["run", "WORKLOAD", *_set("load.generator=memtier_benchmark", "load.host=10.0.0.2")],
        2,
        "sends from the server's host",
    ),
    "a path of our generator": (["run", "WORKLOAD", *_set("load.path=/bin/true")], 2, "leave load.path empty"),
    "no rate of our generator": (["run", "WORKLOAD", *_set("load.rate=0")], 2, "forktail-load needs a rate"),
    "the machine's key of emulation": (["run", "WORKLOAD", *_set("emulated.icount=true")], 2, "emulated"),
    "a directive that has a key": (
        ["run", "WORKLOAD", *_set("server.config.port=7000")],
        2,
        "would override server.port",
    ),
    "compression by its directive": (
        ["run", "WORKLOAD", *_set("server.config.RdbCompression=yes")],
        2,
        "would override server.rdb_compression",
    ),
    "threads by their directive": (
        ["run", "WORKLOAD", *_set("server.config.io-threads=4")],
        2,
        "would override server.threads",
    ),
    "an owner without a host": (["lab", "up", "--owner", "1"], 2, "--owner is for a lab host"),
    "two forms of a comparison": (["compare", "A", "B", "--json", "--markdown"], 2, "give one of them"),
    "one kernel of a comparison": (["compare", "A", "B", "--base-kernel", "odf"], 2, "go together"),
    "a host's configuration of a guest's kernel": (["kernel", "build", "--host-config", "lab"], 2, "give --deb"),
    "two kinds of checks": (["kernel", "build", "--debug", "--races"], 2, "build one by one"),
    "kernels of a fleet by two options": (
        ["fleet", "plan", "WORKLOAD", "--host", "a", "--kernel", "odf", *_set('sweep.kernels=["default"]')],
        2,
        "both choose the kernels",
    ),
    "a kernel of a fleet twice": (
        ["fleet", "plan", "WORKLOAD", "--host", "a", "--kernel", "odf", "--kernel", "odf"],
        2,
        "odf is named twice",
    ),
}


@pytest.mark.parametrize(("arguments", "code", "words"), REFUSED.values(), ids=REFUSED)
def test_what_has_no_effect_is_refused_before_anything_is_done(
    start: Start, tiny: Path, tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    """With a cache of its own, so that a kernel which were built or looked for would show."""
    cache = tmp_path / "cache"
    given = [str(tiny) if word == "WORKLOAD" else word for word in arguments]
    command = start(*given, XDG_CACHE_HOME=str(cache))
    returned, output, errors = command.finish()
    assert returned == code, errors
    assert words in errors
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    assert output == ""
    assert not (tmp_path / "results").exists()
    assert not list(cache.rglob("*kernel*"))


def test_a_check_says_what_it_found(start: Start, tiny: Path, tmp_path: Path) -> None:
    code, output, errors = start("run", tiny, "--check").finish()
    assert code == 0, errors
    assert output.startswith("This host can carry tiny: it needs up to 0.1 GiB of memory and 0.1 GiB of disk")
    code, output, errors = start("run", tiny, "--check", "--json").finish()
    assert code == 0, errors
    told = json.loads(output)
    assert (told["able"], told["name"]) == (True, "tiny")
    assert told["memory_bytes"] > 64 * 2**20
    assert told["disk_bytes"] > 32 * 2**20
    assert not (tmp_path / "results").exists()


def test_a_check_of_a_fleet_says_what_it_found(start: Start, tiny: Path, tmp_path: Path) -> None:
    plan = ["fleet", "plan", tiny, "--host", "one", "--host", "two", "--check"]
    assert start(*plan).finish()[:2] == (0, "tiny can be planned: 24 runs of 8 cells.\n")
    told = json.loads(start(*plan, "--json").finish()[1])
    assert told == {"able": True, "name": "tiny", "runs": 24, "cells": 8}
    _, output, errors = start(*plan, "--json", "--set", "sweep.spare=2").finish()
    assert json.loads(output) == told
    assert "sweep.spare = 2 has no effect over hosts" in errors
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('vary."sweep.repeat" = [1, 2]', "sweep.vary.sweep.repeat cannot be varied"),
        ('vary."name" = ["a", "b"]', "sweep.vary.name cannot be varied"),
        ('vary."server.size" = ["64MiB", "64MiB"]', "sweep.vary.server.size has '64MiB' twice"),
        ('vary."server.size" = []', "sweep.vary.server.size has no value"),
        ('vary."load.zipf_theta" = [0.99, 1.2]', "sweep.vary load.zipf_theta has no effect: load.keys is 'uniform'"),
        ('vary."snapshot.every" = ["2s", "4s"]', "sweep.vary snapshot.every has no effect: snapshot.count is 1"),
    ],
)
def test_what_cannot_be_varied_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "varied.toml"
    path.write_text(VARIED + text)
    with pytest.raises(BadInput) as caught:
        plan_sweep(path, [], ["default"])
    assert words in str(caught.value)


def test_what_has_an_effect_in_one_cell_is_not_refused(tmp_path: Path) -> None:
    path = tmp_path / "varied.toml"
    path.write_text(VARIED + 'vary."load.keys" = ["uniform", "zipf"]\nvary."load.zipf_theta" = [0.99, 1.2]')
    assert len(plan_sweep(path, [], ["default"]).cells) == 4
    assert len(plan_sweep(path, ["load.zipf_theta=1.2"], ["default"]).cells) == 2


def test_what_a_file_gives_without_effect_is_known(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('[load]\nzipf_theta = 1.2\ngaussian_mean = 0.5\n[snapshot]\nevery = "60s"')
    workload = read_workload(path)
    # Those that are as by default were not given, or make no difference.
    assert without_effect(workload) == {"load.zipf_theta": "load.keys is 'uniform'"}
    assert set(idle_keys(workload)) == {
        "load.gaussian_mean",
        "load.gaussian_sigma",
        "load.zipf_theta",
        "snapshot.every",
    }
    effective = read_workload(path, ["load.keys=zipf", "snapshot.count=2"])
    assert set(idle_keys(effective)) == {"load.gaussian_mean", "load.gaussian_sigma"}
    assert without_effect(effective) == {}


def test_a_run_says_which_keys_of_its_file_had_no_effect(start: Start, tiny: Path, tmp_path: Path) -> None:
    tiny.write_text(tiny.read_text().replace("clients = 10", "clients = 10\nzipf_theta = 1.2"))
    code, output, errors = start("run", tiny, "--out", tmp_path / "out").finish(120)
    # On a crowded host a tiny run may be invalid, which this test does not judge.
    assert code in (0, 1), errors
    assert "without effect  load.zipf_theta: load.keys is 'uniform'" in output
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["without_effect"] == [
        "load.zipf_theta: load.keys is 'uniform'"
    ]
    assert "load.zipf_theta: load.keys is" in (tmp_path / "out" / "report.html").read_text()
