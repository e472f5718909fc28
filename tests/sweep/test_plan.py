# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: every combination, interleaved, each a valid workload of its own."""

import math
import re
from pathlib import Path

import pytest

from forktail.errors import BadInput
from forktail.sweep.plan import COPY_THREADS, LOCAL, plan_sweep
from forktail.units import parse_size
from forktail.workload import read_workload

WORKLOADS = Path(__file__).parents[2] / "workloads"
KERNELS = ["default", "odf", "async-fork"]

TEXT = """
[sweep]
repeat = 3
[sweep.vary]
"server.size" = ["64MiB", "128MiB"]
"load.rate" = [1000, 2000]
"""


def _workload(directory: Path, text: str = TEXT) -> Path:
    path = directory / "varied.toml"
    path.write_text(text)
    return path


def test_every_combination_is_a_cell(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path), ["sweep.noise_floor=false"], ["default", "odf"])
    combinations = {(cell.kernel, cell.workload.server.size >> 20, cell.workload.load.rate) for cell in plan.cells}
    assert combinations == {
        (kernel, size, rate) for kernel in ("default", "odf") for size in (64, 128) for rate in (1000, 2000)
    }
    assert len(plan.runs) == 8 * 3
    assert len({run.name for run in plan.runs}) == len(plan.runs)


def test_what_is_set_is_not_varied(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path), ["sweep.noise_floor=false", "server.size=32MiB"], ["default"])
    assert [(cell.workload.server.size >> 20, cell.values) for cell in plan.cells] == [
        (32, (("load.rate", 1000),)),
        (32, (("load.rate", 2000),)),
    ]


def test_of_a_value_that_is_set_and_then_varied_the_last_word_holds(tmp_path: Path) -> None:
    words = ["sweep.noise_floor=false", "server.size=32MiB", "sweep.vary={'server.size'=['16MiB', '8MiB']}"]
    plan = plan_sweep(_workload(tmp_path), words, ["default"])
    assert [cell.workload.server.size >> 20 for cell in plan.cells] == [16, 8]


def test_rounds_go_forth_and_back(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path, "[sweep]\nrepeat = 3\nnoise_floor = false"), [], ["a", "b", "c"])
    assert "".join(run.cell.kernel for run in plan.runs) == "abccbaabc"
    assert [run.repeat for run in plan.runs] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_the_noise_floor_is_the_first_kernel_again(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path, "[sweep]\nrepeat = 1"), [], ["default", "odf"])
    assert [(cell.arm, cell.kernel) for cell in plan.cells] == [
        ("default", "default"),
        ("odf", "odf"),
        ("default (again)", "default"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[sweep.vary]\n"server.size" = ["64s"]', "with server.size = 64s: server.size: '64s' is no size"),
        ('[sweep.vary]\n"server.sise" = ["64MiB"]', "did you mean 'size'?"),
        ("[sweep]\nrepeat = 0", "sweep.repeat"),
    ],
)
def test_a_value_that_is_not_valid_is_told_before_anything_runs(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        plan_sweep(_workload(tmp_path, text), [], ["default"])
    assert words in str(caught.value)


THREADS = """
[sweep]
repeat = 1
vary."snapshot.copy_threads" = [1, 2, 4]
"""


def test_threads_are_varied_where_they_copy_and_nowhere_else(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path, THREADS), [], ["default", "odf", "async-fork"])
    assert [(cell.arm, cell.copy_threads) for cell in plan.cells] == [
        ("default", None),
        ("odf", None),
        ("async-fork", 1),
        ("async-fork", 2),
        ("async-fork", 4),
        ("default (again)", None),
    ]
    assert len({run.name for run in plan.runs}) == len(plan.runs) == 6
    assert [cell.workload.snapshot.copy_threads for cell in plan.cells] == [1, 1, 1, 2, 4, 1]
    assert [cell["copy_threads"] for cell in plan.as_json()["cells"]] == [None, None, 1, 2, 4, None]
    assert plan.cells[3].name == "async-fork-snapshot.copy_threads=2"


def test_threads_have_no_effect_where_the_default_fork_is_asked_for(tmp_path: Path) -> None:
    text = THREADS + 'vary."snapshot.fork" = ["kernel", "default"]'
    plan = plan_sweep(_workload(tmp_path, text), ["sweep.noise_floor=false"], ["async-fork"])
    assert [(cell.workload.snapshot.fork, cell.copy_threads) for cell in plan.cells] == [
        ("kernel", 1),
        ("kernel", 2),
        ("kernel", 4),
        ("default", None),
    ]


@pytest.mark.parametrize(("flavour", "threads"), [("default", [None]), ("async-fork", [1, 2, 4])])
def test_the_kernel_at_hand_is_taken_for_what_it_is(tmp_path: Path, flavour: str, threads: list[int | None]) -> None:
    path = _workload(tmp_path, THREADS)
    plan = plan_sweep(path, ["sweep.noise_floor=false"], [LOCAL], local_flavour=flavour)
    assert [cell.copy_threads for cell in plan.cells] == threads


def test_a_number_of_threads_that_no_kernel_takes_is_told_whatever_the_kernels(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"with snapshot\.copy_threads = 65: snapshot\.copy_threads"):
        plan_sweep(_workload(tmp_path, THREADS.replace("4", "65")), [], ["default"])


def test_threads_that_the_whole_sweep_has_are_of_async_fork_alone(tmp_path: Path) -> None:
    plan = plan_sweep(_workload(tmp_path, "[snapshot]\ncopy_threads = 8"), [], ["default", "async-fork"])
    assert [cell.copy_threads for cell in plan.cells] == [None, 8, None]


@pytest.mark.parametrize("path", sorted(WORKLOADS.rglob("*.toml")), ids=lambda path: path.stem)
def test_each_shipped_workload_is_planned_as_its_sweep_says(path: Path) -> None:
    sweep = read_workload(path).sweep
    assert set(sweep.kernels) <= set(KERNELS)
    kernels = sweep.kernels or KERNELS
    plan = plan_sweep(path, [], kernels, emulated=path.parent.name == "lab")
    others = math.prod(len(values) for key, values in sweep.vary.items() if key != COPY_THREADS)
    threads = len(sweep.vary.get(COPY_THREADS, [None]))
    arms = [*kernels, *kernels[:1]] if sweep.noise_floor else kernels
    assert len(plan.cells) == others * sum(threads if kernel == "async-fork" else 1 for kernel in arms)
    assert len({run.name for run in plan.runs}) == len(plan.runs) == len(plan.cells) * sweep.repeat
    assert len({cell.workload.model_dump_json() + cell.arm for cell in plan.cells}) == len(plan.cells)


@pytest.mark.parametrize(
    "path", sorted([*WORKLOADS.glob("fig*.toml"), *WORKLOADS.glob("blog*.toml")]), ids=lambda path: path.stem
)
def test_the_papers_experiments_are_in_its_sizes(path: Path) -> None:
    """P, sections 3 and 6.1: five runs, 50 clients, 50,000 a second, values of 1024 B, 5 million queries."""
    workload = read_workload(path)
    varied = workload.sweep.vary
    assert workload.sweep.repeat == 5
    assert (workload.load.rate, workload.load.clients, workload.server.value_size) == (50_000, 50, 1024)
    assert workload.load.rate * workload.run.duration / 1e9 == 5_000_000
    assert workload.snapshot.count == 1
    if "load.set_get" not in varied:
        assert workload.load.set_get == "1:0"
    if "server.size" not in varied:
        assert workload.server.size == 8 * 2**30
    # 8 GB are persisted in 40 s (P, section 6.2): the window of the largest size closes before the limit.
    sizes = [parse_size(size) for size in varied.get("server.size", ["8GiB"])]
    assert max(sizes) / 2**30 * 5e9 < workload.run.limit
    comments = path.read_text().splitlines()[1:3]
    assert re.match(r"# [PB], Figures? \d", comments[0])
    assert comments[1].startswith("# Not said yet: ")
