# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: every combination, interleaved, each a valid workload of its own."""

from pathlib import Path

import pytest

from forktail.errors import BadInput
from forktail.sweep.plan import plan_sweep

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
