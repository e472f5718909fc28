# SPDX-License-Identifier: Apache-2.0
"""The cells of a sweep against runs made by hand: means of per-run figures, only of valid runs, emulation marked."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.synthetic import FORK, PAGE_TABLE_COPY, RunDirectory, async_fork

from forktail import rundir
from forktail.analysis.sweep import analyse_sweep
from forktail.analysis.sweep.axes import subtitle
from forktail.analysis.sweep.table import print_sweep
from forktail.errors import BadInput
from forktail.sweep.plan import Plan, plan_sweep
from forktail.sweep.sweep import open_sweep

MS = 1_000_000
THREADS = 'vary."snapshot.copy_threads" = [1, 4]'


def _run(path: Path, fork_ms: int, valid: bool = True, lab: dict[str, Any] | None = None) -> None:
    run = RunDirectory.whole()
    for event in run.events:
        if event.kind in (FORK, PAGE_TABLE_COPY):
            event.duration = fork_ms * MS
            event.start = run.fork_start
    run.manifest["info"]["latest_fork_usec"] = fork_ms * 1000
    run.manifest["marks"]["snapshots"][0]["replied_ns"] = run.fork_start + (fork_ms + 1) * MS
    if not valid:
        run.manifest["truncated"] = True
    run.write(path)
    if lab:
        environment = json.loads((path / rundir.ENVIRONMENT).read_text())
        (path / rundir.ENVIRONMENT).write_text(json.dumps(environment | {"lab": lab}))


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 3\nnoise_floor = false")
    plan = plan_sweep(path, [], ["default", "odf"])
    open_sweep(plan, tmp_path / "sweep")
    return plan


def _path(tmp_path: Path, kernel: str, repeat: int) -> Path:
    return tmp_path / "sweep" / rundir.RUNS / f"{kernel}-r{repeat}"


def test_a_closed_loop_is_named_wherever_its_figures_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "peers.toml"
    path.write_text(
        "[sweep]\nrepeat = 1\nnoise_floor = false\n"
        'vary."load.generator" = ["forktail-load", "memtier_benchmark", "redis-benchmark"]'
    )
    open_sweep(plan_sweep(path, [], ["default"]), tmp_path / "sweep")
    sweep = analyse_sweep(tmp_path / "sweep")
    assert [cell["generator"] for cell in sweep.cells] == ["forktail-load", "memtier_benchmark", "redis-benchmark"]
    print_sweep(sweep)
    for told in ((tmp_path / "sweep" / rundir.REPORT).read_text(), capsys.readouterr().out):
        assert "Closed loop: memtier_benchmark, redis-benchmark." in told
    open_loop = tmp_path / "open.toml"
    open_loop.write_text("[sweep]\nrepeat = 1")
    open_sweep(plan_sweep(open_loop, [], ["default"]), tmp_path / "open")
    analyse_sweep(tmp_path / "open")
    assert "Closed loop" not in (tmp_path / "open" / rundir.REPORT).read_text()


@pytest.mark.usefixtures("plan")
def test_a_cell_is_the_mean_over_its_valid_runs(tmp_path: Path) -> None:
    for repeat, fork_ms in ((1, 10), (2, 30)):
        _run(_path(tmp_path, "default", repeat), fork_ms)
    _run(_path(tmp_path, "default", 3), 500, valid=False)
    sweep = analyse_sweep(tmp_path / "sweep")
    default, odf = sweep.cells
    assert default["fork_us"] == {"mean": 20_000, "min": 10_000, "max": 30_000, "runs": 2, "withheld": []}
    assert (default["runs"], default["finished_runs"], default["valid_runs"]) == (3, 3, 2)
    assert odf["valid_runs"] == 0
    assert odf["snapshot.p99_us"]["mean"] is None
    assert not sweep.valid
    assert not sweep.emulated
    states = [run["state"] for run in sweep.document["runs"]]
    assert states.count("missing") == 3


@pytest.mark.parametrize(
    ("lab", "times", "worth"),
    [
        ({"icount": False, "cpus": 2}, "(tcg): times are several times those of a real machine.", "ratios hold, "),
        ({"icount": True, "cpus": 1}, " = 1 ns): times are instructions, of one CPU.", "times are instructions"),
        ({"icount": True, "cpus": 4}, " = 1 ns): times are instructions, of CPUs that take", "times are instructions"),
    ],
)
@pytest.mark.usefixtures("plan")
def test_emulation_is_marked_in_every_form(
    lab: dict[str, Any], times: str, worth: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kernel in ("default", "odf"):
        for repeat in (1, 2, 3):
            _run(_path(tmp_path, kernel, repeat), 10, lab={"accelerator": "tcg"} | lab)
    sweep = analyse_sweep(tmp_path / "sweep")
    assert sweep.emulated
    assert sweep.valid
    html = (tmp_path / "sweep" / rundir.REPORT).read_text()
    assert "<b>emulated</b>" in html
    assert times in html
    print_sweep(sweep)
    assert f"EMULATED: {worth}" in capsys.readouterr().out
    assert f"EMULATED: {worth}" in subtitle(sweep)


@pytest.mark.usefixtures("plan")
def test_the_report_stands_alone_and_the_pictures_are_there(tmp_path: Path) -> None:
    _run(_path(tmp_path, "default", 1), 10)
    analyse_sweep(tmp_path / "sweep")
    html = (tmp_path / "sweep" / rundir.REPORT).read_text()
    assert not re.search(r"(src|href)=\"https?:", html)
    assert "10 ms" in html
    for name in ("tail", "fork", "interruptions"):
        assert (tmp_path / "sweep" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads((tmp_path / "sweep" / rundir.SWEEP).read_text())
    assert document["schema"] == "forktail.sweep/1"


def test_a_directory_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"plan\.json is missing"):
        analyse_sweep(tmp_path)


def test_the_floor_of_fork_is_that_of_the_empty_server_on_the_same_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.toml"
    path.write_text('[sweep]\nrepeat = 1\nnoise_floor = false\nvary."server.size" = ["1MiB", "1GiB"]')
    plan = plan_sweep(path, [], ["default", "odf"])
    open_sweep(plan, tmp_path / "sweep")
    for run, fork_ms in zip(plan.runs, (2, 3, 42, 7), strict=True):
        _run(tmp_path / "sweep" / rundir.RUNS / run.name, fork_ms)
    sweep = analyse_sweep(tmp_path / "sweep")
    above = {(cell["kernel"], cell["size_bytes"]): cell["fork_above_floor_us"]["mean"] for cell in sweep.cells}
    small, large = 2**20, 2**30
    assert above == {
        ("default", small): None,
        ("odf", small): None,
        ("default", large): 40_000,
        ("odf", large): 4_000,
    }
    print_sweep(sweep)
    assert "above floor" in capsys.readouterr().out
    assert "Above floor" in (tmp_path / "sweep" / rundir.REPORT).read_text()


@pytest.fixture
def three_kernels(tmp_path: Path) -> Path:
    """One run of each kernel; async-fork with one thread and, faster, with four."""
    path = tmp_path / "some.toml"
    path.write_text(f"[sweep]\nrepeat = 1\n{THREADS}")
    plan = plan_sweep(path, [], ["default", "odf", "async-fork"])
    directory = tmp_path / "sweep"
    open_sweep(plan, directory)
    for run in plan.runs:
        threads = run.cell.copy_threads
        if threads:
            made = async_fork(threads=threads, copy_ns=80 * MS // threads)
            made.write(directory / rundir.RUNS / run.name)
        else:
            _run(directory / rundir.RUNS / run.name, 10)
    return directory


def test_threads_are_told_wherever_cells_are(three_kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = analyse_sweep(three_kernels)
    assert sweep.valid, [run["reasons"] for run in sweep.document["runs"]]
    assert {(cell["arm"], cell["copy_threads"]): cell["copy_us"]["mean"] for cell in sweep.cells} == {
        ("default", None): None,
        ("odf", None): None,
        ("async-fork", 1): 80_000,
        ("async-fork", 4): 20_000,
        ("default (again)", None): None,
    }
    print_sweep(sweep)
    html = (three_kernels / rundir.REPORT).read_text()
    for told in (capsys.readouterr().out, html):
        assert "async-fork, 1 thread" in told
        assert "async-fork, 4 threads" in told
        assert "copied after fork" in told.lower()
        assert "snapshot.copy_threads" not in re.sub(r"async-fork-snapshot\.copy_threads=\d-r1", "", told)


@pytest.mark.usefixtures("plan")
def test_a_summary_of_an_earlier_version_has_no_flight(tmp_path: Path) -> None:
    _run(_path(tmp_path, "default", 1), 10)
    analyse_sweep(tmp_path / "sweep")
    path = _path(tmp_path, "default", 1) / rundir.SUMMARY
    summary = json.loads(path.read_text())
    del summary["flight"]
    path.write_text(json.dumps(summary))
    assert analyse_sweep(tmp_path / "sweep").cells[0]["copy_us"]["mean"] is None


def test_each_fork_has_a_colour_of_its_own(three_kernels: Path) -> None:
    from forktail.analysis.sweep.figures import FIGURES
    from forktail.analysis.sweep.label import fork_labels

    sweep = analyse_sweep(three_kernels)
    assert fork_labels(sweep.cells) == [
        "default",
        "odf",
        "async-fork, 1 thread",
        "async-fork, 4 threads",
        "default (again)",
    ]
    left, _, right = FIGURES["fork"](sweep).axes
    drawn = [bars.lines[0].get_color() for bars in left.containers]  # type: ignore[attr-defined]
    assert len(set(drawn)) == len(drawn) == 5
    assert len(right.containers) == 2


@pytest.mark.usefixtures("plan")
def test_a_figure_that_is_withheld_counts_in_no_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for repeat in (1, 2):
        _run(_path(tmp_path, "default", repeat), 10)
        _run(_path(tmp_path, "odf", repeat), 10)
    analyse_sweep(tmp_path / "sweep")
    of_all = [("default", 1), ("odf", 1), ("odf", 2)]
    for kernel, repeat in of_all:
        path = _path(tmp_path, kernel, repeat) / rundir.SUMMARY
        summary = json.loads(path.read_text())
        summary["queries"]["snapshot"] |= {"max_us": None, "withheld": {"max": "The generator was late by 80 ms."}}
        path.write_text(json.dumps(summary))
    sweep = analyse_sweep(tmp_path / "sweep")
    default, odf = (cell["snapshot.max_us"] for cell in sweep.cells)
    assert (default["runs"], odf["runs"]) == (1, 0)
    assert default["mean"] == default["min"] == default["max"] is not None
    assert odf["mean"] is None
    assert default["withheld"] == odf["withheld"] == ["The generator was late by 80 ms."]
    print_sweep(sweep)
    for told in (capsys.readouterr().out, (tmp_path / "sweep" / rundir.REPORT).read_text()):
        assert "snapshot max of default, 512 MiB, is of 1 of 2 valid runs: The generator was late by 80 ms." in told
        assert "snapshot max of odf, 512 MiB, has none of 2 valid runs: The generator was late by 80 ms." in told


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_terminal_table_has_all_of_a_sweep_in_80_columns(
    width: int, three_kernels: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = analyse_sweep(three_kernels)
    monkeypatch.setenv("COLUMNS", str(width))
    print_sweep(sweep)
    lines = capsys.readouterr().out.splitlines()
    # Sentences wrap on a terminal; a table does not.
    table = lines[next(place for place, line in enumerate(lines) if "default" in line and "odf" in line[20:]) :]
    assert max(len(line) for line in table if not line.startswith(("some:", "not valid", "interruptions a run"))) <= 80
    told = "\n".join(lines)
    for title in ("512 MiB", "valid runs", "fork", "page-table copy", "copied after fork", "normal p99", "snapshot p99",
                  "snapshot max", "out of service", "interruptions"):  # fmt: skip
        assert title in told
    assert sum(line.count("1 of 1") for line in lines) == len(sweep.cells)
    assert "…" not in told


@pytest.mark.usefixtures("plan")
def test_figures_without_a_valid_run_say_so(tmp_path: Path) -> None:
    from forktail.analysis.sweep.figures import FIGURES

    _run(_path(tmp_path, "default", 1), 10, valid=False)
    sweep = analyse_sweep(tmp_path / "sweep")
    said = {
        name: [text.get_text() for axes in draw(sweep).axes for text in axes.texts] for name, draw in FIGURES.items()
    }
    assert said == {
        "tail": [
            "No valid run tells the p99 of snapshot queries.",
            "No valid run tells the maximum of snapshot queries.",
        ],
        "fork": ["No valid run tells the fork.", "No valid run tells the page-table copy inside fork."],
        "interruptions": ["No valid run tells interruptions."],
    }
