# SPDX-License-Identifier: Apache-2.0
"""The verdict of a comparison on sweeps made by hand, and that it is never a pass where something is missing."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.synthetic import RunDirectory
from tests.compare.history import BEGAN, ENVIRONMENT, TYPICAL, Document, Values, edit, noisy, sweep
from typer.testing import CliRunner

from forktail import rundir
from forktail.analysis.compare import DEFAULT_THRESHOLDS, Comparison, Verdict, compare, read_thresholds
from forktail.analysis.compare.table import markdown, print_comparison
from forktail.cli import app
from forktail.errors import BadInput
from forktail.sweep.plan import PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep

THRESHOLDS = read_thresholds()
LATER = BEGAN + timedelta(days=1)
QUIET = 0.01
FLOOR = "[sweep]\nrepeat = 10"


def _quiet(seed: int, shift: Values | None = None) -> Callable[[PlannedRun], Values]:
    return noisy(np.random.RandomState(seed), QUIET, shift)


def _pair(tmp_path: Path, shift: Values | None = None, **options: Any) -> tuple[Path, Path]:
    return (
        sweep(tmp_path / "base", _quiet(1), **options),
        sweep(tmp_path / "new", _quiet(2, shift), began=LATER, **options),
    )


def _compare(base: Path, new: Path, toml: str = "", kernels: tuple[str, str] | None = None) -> Comparison:
    path = base.parent / "thresholds.toml"
    path.write_text(toml)
    return compare(base, new, read_thresholds(path), kernels)


def _metric(result: Comparison, name: str, cell: int = 0) -> Document:
    found: Document = next(one for one in result.document["cells"][cell]["metrics"] if one["metric"] == name)
    return found


def _summaries(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{rundir.RUNS}/*/{rundir.SUMMARY}"))


def _environments(directory: Path) -> Iterator[Path]:
    return directory.glob(f"{rundir.RUNS}/*/{rundir.ENVIRONMENT}")


def test_the_ratio_is_that_of_geometric_means(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, {"snapshot.p99_us": 0.5})
    result = _compare(base, new)
    metric = _metric(result, "snapshot.p99_us")
    means = []
    for side in (base, new):
        values = [json.loads(path.read_text())["queries"]["snapshot"]["p99_us"] for path in _summaries(side)]
        means.append(float(np.prod(values)) ** (1 / len(values)))
    assert (metric["base"], metric["new"]) == pytest.approx(means)
    assert metric["ratio"] == pytest.approx(means[1] / means[0])
    assert metric["low"] < metric["ratio"] < metric["high"]
    assert result.verdict == metric["verdict"] == Verdict.REGRESS
    assert metric["reason"] == f"{100 * (means[1] / means[0] - 1):.3g} % worse"


@pytest.mark.parametrize(
    ("shift", "verdict", "words"),
    [
        (-0.5, Verdict.PASS, "better"),
        (0.0, Verdict.PASS, "no change of 20 % for the worse"),
        (0.05, Verdict.PASS, "less than the 10 % that count"),
        (0.2, Verdict.REGRESS, "worse"),
    ],
)
def test_a_change_is_judged_by_its_size_and_direction(
    tmp_path: Path, shift: float, verdict: Verdict, words: str
) -> None:
    result = _compare(*_pair(tmp_path, {"snapshot.p99_us": shift}))
    assert result.verdict == verdict
    assert words in _metric(result, "snapshot.p99_us")["reason"]


def test_where_higher_is_better_a_fall_is_the_regress(tmp_path: Path) -> None:
    toml = '[metrics."snapshot.p99_us"]\nbetter = "higher"'
    base, new = _pair(tmp_path, {"snapshot.p99_us": -0.2})
    fallen, risen = _compare(base, new, toml), _compare(new, base, toml)
    assert (fallen.verdict, risen.verdict) == (Verdict.REGRESS, Verdict.PASS)
    metric = _metric(fallen, "snapshot.p99_us")
    assert metric["low"] < metric["ratio"] < metric["high"] < 1


def test_noise_that_hides_a_change_is_inconclusive_and_tells_how_many_runs_it_takes(tmp_path: Path) -> None:
    generator = np.random.RandomState(3)
    base, new = (sweep(tmp_path / name, noisy(generator, 0.3)) for name in ("base", "new"))
    result = _compare(base, new)
    assert result.verdict == Verdict.INCONCLUSIVE
    metric = _metric(result, "snapshot.p99_us")
    # Runs a side for two independent sides, from the quantile of a single metric to that of a family of three.
    variance = sum(np.log1p(noise) ** 2 for noise in metric["noise"])
    least, most = ((bound + 1.645) ** 2 * variance / np.log(1.2) ** 2 for bound in (1.96, 3.5))
    assert least < metric["runs_wanted"] < most


def test_what_is_not_judged_is_shown_and_has_no_say(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, {"snapshot.max_us": 3.0})
    result = _compare(base, new)
    assert result.verdict == Verdict.PASS
    assert _metric(result, "snapshot.max_us")["ratio"] == pytest.approx(4, rel=0.05)
    assert _metric(result, "snapshot.max_us")["verdict"] is None
    assert _compare(base, new, '[metrics."snapshot.max_us"]\njudged = true').verdict == Verdict.REGRESS


def test_of_nothing_there_is_no_ratio(tmp_path: Path) -> None:
    toml = "[metrics.interruptions]\njudged = true"
    base, new = _pair(tmp_path)
    none = _metric(_compare(base, new, toml), "interruptions")
    assert (none["ratio"], none["verdict"]) == (None, Verdict.PASS)
    edit(_summaries(new)[0], lambda document: document["interruptions"].update(count=7))
    some = _compare(base, new, toml)
    assert some.verdict == Verdict.INCONCLUSIVE
    assert "it is 0 in some runs" in _metric(some, "interruptions")["reason"]


# What is not comparable.


def _absent_cell(base: Path, new: Path) -> None:
    def drop(document: Document) -> None:
        document["cells"] = [cell for cell in document["cells"] if cell["kernel"] != "odf"]

    edit(new / rundir.PLAN, drop)


def _absent_in_base(base: Path, new: Path) -> None:
    _absent_cell(new, base)


def _missing_run(base: Path, new: Path) -> None:
    shutil.rmtree(_summaries(new)[0].parent)


def _invalid_run(base: Path, new: Path) -> None:
    edit(_summaries(new)[0], lambda document: document.update(valid=False, reasons=["The child was killed."]))


def _keep(repeat: int, *sides: Path) -> None:
    """Take all runs after the first `repeat` of each cell out of the plans."""
    for side in sides:
        edit(
            side / rundir.PLAN, lambda plan: plan.update(runs=[run for run in plan["runs"] if run["repeat"] <= repeat])
        )


def _emulated(base: Path, new: Path) -> None:
    for path in _environments(new):
        edit(path, lambda document: document.update(lab={"accelerator": "tcg", "icount": False}))


def _icount(base: Path, new: Path) -> None:
    _emulated(base, base)
    for path in _environments(new):
        edit(path, lambda document: document.update(lab={"accelerator": "tcg", "icount": True}))


def _other_workload(base: Path, new: Path) -> None:
    def change(document: Document) -> None:
        for cell in document["cells"]:
            cell["workload"]["load"]["rate"] = 20_000

    edit(new / rundir.PLAN, change)


def _other_host(base: Path, new: Path) -> None:
    for path in _environments(new):
        edit(path, lambda document: document["cpu"].update(model="Epyc"))


def _other_mitigations(base: Path, new: Path) -> None:
    for path in _environments(new):
        edit(path, lambda document: document["cpu"]["mitigations"].update(meltdown="Vulnerable"))


def _less_memory(base: Path, new: Path) -> None:
    for path in _environments(new):
        edit(path, lambda document: document["memory"].update(total_bytes=16 * 2**30))


def _other_server(base: Path, new: Path) -> None:
    for path in _summaries(new):
        edit(path, lambda document: document["engine"].update(version="7.2.0"))


def _host_changed_meanwhile(base: Path, new: Path) -> None:
    edit(next(_environments(new)), lambda document: document["cpu"].update(governor="powersave"))


def _kernel_changed_meanwhile(base: Path, new: Path) -> None:
    edit(_summaries(new)[0], lambda document: document["kernel"].update(release="6.1.2-forktail-default"))


def _unmeasured(base: Path, new: Path) -> None:
    edit(_summaries(new)[3], lambda document: document["fork"].update(duration_us=None))


def _withheld(_: Path, new: Path) -> None:
    def owe(document: Document) -> None:
        reason = {"p99": "9 ms came from the load generator's own lateness"}
        document["queries"]["snapshot"].update(p99_us=None, withheld=reason)

    edit(_summaries(new)[2], owe)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_absent_cell, "BASE has odf, 512 MiB and NEW has not"),
        (_absent_in_base, "NEW has odf, 512 MiB and BASE has not"),
        (_missing_run, "NEW lacks 1 run: default-r1 is missing"),
        (_invalid_run, "NEW lacks 1 run: default-r1 is not valid (The child was killed.)"),
        (_emulated, "BASE was measured on no guest of the lab and NEW on emulated (tcg)"),
        (_icount, "BASE was measured on emulated (tcg) and NEW on emulated (tcg, 1 instruction = 1 ns)"),
        (_other_workload, "different workloads: load.rate is 10000 in BASE and 20000 in NEW"),
        (_other_host, "cpu.model is 'Xeon' in BASE and 'Epyc' in NEW"),
        (_other_mitigations, "cpu.mitigations.meltdown is 'Mitigation' in BASE and 'Vulnerable' in NEW"),
        (_less_memory, "memory.total_bytes is 34359738368 in BASE and 17179869184 in NEW"),
        (_other_server, "engine.version is '7.0.15' in BASE and '7.2.0' in NEW"),
        (_host_changed_meanwhile, "NEW was measured under several conditions: cpu.governor is "),
        (_kernel_changed_meanwhile, "NEW was measured on several kernels: 6.1.1-forktail-default, 6.1.2"),
        (_unmeasured, "fork_us was not measured in "),
        (_withheld, "NEW lacks 1 run: default-r2 has a figure that is withheld (snapshot.p99_us: 9 ms came from the"),
    ],
)
def test_what_cannot_be_compared_is_told_and_never_a_pass(
    tmp_path: Path, spoil: Callable[[Path, Path], None], words: str
) -> None:
    base, new = _pair(tmp_path, kernels=("default", "odf"))
    assert _compare(base, new).verdict == Verdict.PASS
    spoil(base, new)
    result = _compare(base, new)
    assert result.verdict == Verdict.INFRASTRUCTURE
    assert any(words in failure for cell in result.document["cells"] for failure in cell["failures"])
    assert result.verdict.exit_code == 3


@pytest.mark.parametrize(("repeat", "more"), [(0, 3), (1, 2), (2, 1)])
def test_too_few_runs_are_inconclusive_and_no_failure(
    repeat: int, more: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, new = _pair(tmp_path, {"fork_us": 1.0}, kernels=("default", "odf"))
    _keep(repeat, base, new)
    result = _compare(base, new)
    assert result.verdict == Verdict.INCONCLUSIVE
    assert [cell["more_runs"] for cell in result.document["cells"]] == [more, more]
    assert all(not cell["failures"] for cell in result.document["cells"])
    print_comparison(result)
    words = f"about {more} more run{'s' * (more > 1)} of each side"
    assert words in capsys.readouterr().out
    assert words in markdown(result)


def test_three_runs_a_side_answer_where_the_change_is_large(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, {"fork_us": 1.0}, kernels=("default", "odf"))
    _keep(3, base, new)
    assert _compare(base, new).verdict == Verdict.REGRESS
    assert _compare(new, base).verdict == Verdict.PASS


def test_a_failure_of_all_cells_is_one_of_the_whole(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, kernels=("default", "odf"))
    _other_host(base, new)
    assert len(_compare(base, new).document["failures"]) == 1


@pytest.mark.parametrize(
    ("spoil", "toml"),
    [
        (_other_server, 'may_differ = ["engine.version"]'),
        (_other_workload, 'may_differ = ["load"]'),
        (_other_host, 'may_differ = ["cpu.model"]'),
        (_invalid_run, "[runs]\nlost = 1"),
    ],
)
def test_what_may_differ_is_said_in_the_thresholds(
    tmp_path: Path, spoil: Callable[[Path, Path], None], toml: str
) -> None:
    base, new = _pair(tmp_path, kernels=("default", "odf"))
    spoil(base, new)
    assert _compare(base, new, toml).verdict == Verdict.PASS


def test_another_build_of_a_kernel_is_what_is_compared(tmp_path: Path) -> None:
    base, new = _pair(tmp_path)
    for path in _summaries(new):
        edit(path, lambda document: document["kernel"].update(release="6.1.9-forktail-default"))
    for path in _environments(new):
        # It keeps a little less memory to itself, and words its mitigations in another way, and knows one more.
        edit(path, lambda document: document["memory"].update(total_bytes=32 * 2**30 - 2**27))
        mitigations = {"meltdown": "Mitigation: PTI on", "spectre_v2": "Mitigation: IBRS", "newer": "Vulnerable"}
        edit(path, lambda document, told=mitigations: document["cpu"].update(mitigations=told))  # type: ignore[misc]
    result = _compare(base, new)
    assert result.verdict == Verdict.PASS
    assert result.document["new"]["releases"] == ["6.1.9-forktail-default"]


def test_a_regress_is_told_whatever_else_is_missing(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, {"fork_us": 1.0}, kernels=("default", "odf"))
    _absent_cell(base, new)
    result = _compare(base, new)
    assert result.verdict == Verdict.REGRESS
    assert [cell["verdict"] for cell in result.document["cells"]] == [Verdict.REGRESS, Verdict.INFRASTRUCTURE]


# Which is compared with which.


def test_cells_are_matched_by_what_they_are_and_not_by_their_place(tmp_path: Path) -> None:
    def by_size(run: PlannedRun) -> Values:
        return {"fork_us": run.cell.workload.server.size / 2**20}

    sizes = '[sweep]\nrepeat = 5\nnoise_floor = false\nvary."server.size" = [{}]'
    base = sweep(tmp_path / "base", by_size, workload=sizes.format('"1GiB", "2GiB"'))
    new = sweep(tmp_path / "new", by_size, workload=sizes.format('"2GiB", "1GiB"'))
    assert _compare(base, new).verdict == Verdict.PASS
    other = sweep(tmp_path / "other", by_size, workload=sizes.format('"2GiB", "4GiB"'))
    verdicts = [cell["verdict"] for cell in _compare(base, other).document["cells"]]
    assert verdicts == [Verdict.INFRASTRUCTURE, Verdict.PASS, Verdict.INFRASTRUCTURE]


def test_two_kernels_of_one_sweep_are_paired(tmp_path: Path) -> None:
    generator = np.random.RandomState(5)
    drift = {repeat: float(np.exp(0.3 * generator.standard_normal())) for repeat in range(1, 11)}

    def measure(run: PlannedRun) -> Values:
        times = drift[run.repeat] * (1.2 if run.cell.kernel == "odf" else 1.0)
        return {metric: value * times for metric, value in _quiet(run.repeat)(run).items()}

    both = sweep(tmp_path / "both", measure, kernels=("default", "odf"))
    result = _compare(both, both, kernels=("default", "odf"))
    assert result.verdict == Verdict.REGRESS
    cell = result.document["cells"][0]
    assert (cell["label"], cell["paired"], cell["runs"]) == ("default to odf, 512 MiB", True, [10, 10])
    assert not any("in turn" in warning for warning in result.document["warnings"])
    # Without the pairs the same drift hides the same change.
    later = sweep(tmp_path / "later", measure, kernels=("default", "odf"), began=LATER)
    apart = _compare(both, later, kernels=("default", "odf"))
    assert apart.verdict == Verdict.INCONCLUSIVE
    assert any("were not measured in turn" in warning for warning in apart.document["warnings"])


def test_a_kernel_without_copy_threads_meets_all_of_one_that_has_them(tmp_path: Path) -> None:
    text = '[sweep]\nrepeat = 5\nnoise_floor = false\nvary."snapshot.copy_threads" = [1, 4]'
    both = sweep(tmp_path / "both", lambda _: {}, workload=text, kernels=("default", "async-fork"))
    result = _compare(both, both, kernels=("default", "async-fork"))
    assert [cell["label"] for cell in result.document["cells"]] == [
        "default to async-fork, 1 thread, 512 MiB",
        "default to async-fork, 4 threads, 512 MiB",
    ]
    assert result.verdict == Verdict.PASS


def test_the_kernel_at_hand_is_matched_by_what_its_runs_were(tmp_path: Path) -> None:
    base, new = _pair(tmp_path, kernels=("local",))
    for path in _summaries(new):
        edit(path, lambda document: document["kernel"].update(flavour="odf"))
    assert _compare(base, new).verdict == Verdict.INFRASTRUCTURE
    assert _compare(base, new, kernels=("default", "odf")).verdict == Verdict.PASS


def test_a_kernel_that_differs_from_itself_as_much_proves_nothing(tmp_path: Path) -> None:
    def restless(run: PlannedRun) -> Values:
        return {"fork_us": TYPICAL["fork_us"] * (1.4 if run.cell.arm == "default (again)" else 1.0)}

    base = sweep(tmp_path / "base", restless, workload=FLOOR)

    def slower(times: float) -> Path:
        return sweep(
            tmp_path / f"times-{times * 10:.0f}", lambda _: {"fork_us": TYPICAL["fork_us"] * times}, workload=FLOOR
        )

    less, more = _compare(base, slower(1.3)), _compare(base, slower(1.6))
    assert (less.verdict, more.verdict) == (Verdict.INCONCLUSIVE, Verdict.REGRESS)
    assert "the same kernel measured twice differs by 40 %" in _metric(less, "fork_us")["reason"]
    assert _metric(less, "fork_us")["noise_floor"] == pytest.approx(1.4)
    # Asked for by name the second measurement is compared like another kernel.
    assert _compare(base, base, kernels=("default", "default (again)")).verdict == Verdict.REGRESS


# The real files, and what is printed.


def test_raw_runs_without_a_summary_are_analysed_and_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 5\nnoise_floor = false")
    sides = []
    for name, fork_ms in (("base", 10), ("new", 20)):
        plan = plan_sweep(path, [], ["default"])
        open_sweep(plan, tmp_path / name)
        for run in plan.runs:
            made = RunDirectory.whole()
            for event in made.events:
                if event.kind in (1, 2):
                    event.duration = fork_ms * 1_000_000
            made.manifest["info"]["latest_fork_usec"] = fork_ms * 1000
            made.manifest["marks"]["snapshots"][0]["replied_ns"] = made.fork_start + (fork_ms + 11) * 1_000_000
            made.write(tmp_path / name / rundir.RUNS / run.name)
        sides.append(tmp_path / name)
    before = sorted((path, path.stat().st_mtime_ns) for side in sides for path in side.rglob("*"))
    result = _compare(sides[0], sides[1])
    assert _metric(result, "fork_us")["ratio"] == pytest.approx(2)
    assert result.verdict == Verdict.REGRESS
    assert sorted((path, path.stat().st_mtime_ns) for side in sides for path in side.rglob("*")) == before


def _call(*arguments: object) -> tuple[int, str, str]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)], prog_name="forktail")
    for number, handler in handlers.items():
        signal.signal(number, handler)
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("noise", "shift", "kernels", "code", "verdict"),
    [
        (0.01, 0.0, ("default",), 0, "pass"),
        (0.01, 0.5, ("default",), 1, "regress"),
        (0.01, 0.0, ("odf",), 3, "infrastructure failure"),
        (0.4, 0.0, ("default",), 4, "inconclusive"),
    ],
)
def test_each_verdict_has_its_exit_code_in_every_form(
    tmp_path: Path, noise: float, shift: float, kernels: tuple[str, ...], code: int, verdict: str
) -> None:
    generator = np.random.RandomState(6)
    base = sweep(tmp_path / "base", noisy(generator, noise))
    new = sweep(tmp_path / "new", noisy(generator, noise, {"snapshot.p99_us": shift}), kernels=kernels)
    told_code, told, _ = _call(base, new)
    assert (told_code, told.split(" (")[0].splitlines()[0].partition(":")[0]) == (code, verdict.upper())
    told_code, told, _ = _call(base, new, "--json")
    document = json.loads(told)
    assert (told_code, document["verdict"], document["schema"]) == (code, verdict, "forktail.comparison/1")
    told_code, told, _ = _call(base, new, "--markdown")
    assert (told_code, told.splitlines()[0].partition(":")[0]) == (code, f"## {verdict}")
    rows = [line for line in told.splitlines() if line.startswith("|")]
    assert len(rows) == sum(len(cell["metrics"]) + 2 for cell in document["cells"] if cell["metrics"])
    assert {row.replace("\\|", "").count("|") for row in rows} <= {9}


def test_the_help_tells_every_exit_code() -> None:
    _, told, _ = _call("--help")
    words = " ".join(told.split())
    for verdict in Verdict:
        assert f"{verdict.exit_code} {verdict}" in words


def test_the_shipped_thresholds_are_printed_and_read_back(tmp_path: Path) -> None:
    code, told, _ = _call("--print-thresholds")
    assert code == 0
    (tmp_path / "mine.toml").write_text(told)
    assert told == DEFAULT_THRESHOLDS.read_text()
    assert read_thresholds(tmp_path / "mine.toml") == THRESHOLDS


@pytest.mark.parametrize(
    ("icount", "words"), [(False, "EMULATED: ratios hold"), (True, "EMULATED: times are instructions")]
)
def test_emulation_is_marked(icount: bool, words: str, tmp_path: Path) -> None:
    base, new = _pair(tmp_path)
    lab = {"accelerator": "tcg", "icount": icount}
    for path in [*_environments(base), *_environments(new)]:
        edit(path, lambda document: document.update(lab=lab))
    code, told, _ = _call(base, new)
    assert (code, told.count(words)) == (0, 2)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("familly_error = 0.1", "familly_error is not a known key: did you mean 'family_error'?"),
        ("[metrics.fork_us]\nregres = 1.0", "metrics.fork_us.regres is not a known key: did you mean 'regress'?"),
        ("[metrics.fork]\njudged = true", "metrics.fork is not measured: did you mean 'fork_us'?"),
        ('[metrics.fork_us]\nbetter = "less"', "metrics.fork_us.better: Input should be 'lower' or 'higher'"),
        ("[metrics.fork_us]\nregress = 0.5", "metrics.fork_us: rule_out is 0.2, less than regress, 0.5"),
        ("[runs]\nfewest = 1", "runs.fewest: Input should be greater than or equal to 3"),
        ("".join(f'[metrics."{name}"]\njudged = false\n' for name in THRESHOLDS.metrics), "no metric is judged"),
        ("metrics = 3", "metrics: Input should be a valid dictionary"),
        ("[runs", "is not TOML"),
    ],
)
def test_each_fault_of_the_thresholds_is_named(tmp_path: Path, toml: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(toml)
    with pytest.raises(BadInput) as caught:
        read_thresholds(path)
    assert words in str(caught.value)


def test_bad_input_ends_in_a_sentence_and_its_exit_code(tmp_path: Path) -> None:
    base, new = _pair(tmp_path)
    single = RunDirectory.whole().write(tmp_path / "single")
    damaged = sweep(tmp_path / "damaged", lambda _: {})
    edit(_summaries(damaged)[0], lambda document: document.pop("engine"))
    worded = sweep(tmp_path / "worded", lambda _: {})
    edit(_summaries(worded)[0], lambda document: document["fork"].update(duration_us="long"))
    for arguments, words in (
        ((base, tmp_path / "nowhere"), "nowhere is no sweep: give a directory that `forktail sweep` wrote"),
        ((base, single), "is a single run, and one run shows nothing of the noise"),
        ((base, base), "is BASE and NEW: give two sweeps"),
        ((base, new, "--base-kernel", "default"), "--base-kernel and --new-kernel go together"),
        ((base, new, "--base-kernel", "odf", "--new-kernel", "default"), "has no kernel 'odf': it has default"),
        ((base, new, "--json", "--markdown"), "give one of them"),
        ((base, new, "--thresholds", tmp_path / "none.toml"), "none.toml does not exist"),
        ((base, damaged), "is not as `forktail sweep` writes it (KeyError: 'engine')"),
        ((worded, new), "(TypeError: fork_us is 'long' in default-r1)"),
    ):
        code, _, told = _call(*arguments)
        assert (code, words in told, "Traceback" in told) == (2, True, False), told


def test_the_same_runs_always_give_the_same_comparison(tmp_path: Path) -> None:
    base, new = _pair(tmp_path)
    assert _compare(base, new).document == _compare(base, new).document


def test_other_probes_and_a_single_boot_are_told(tmp_path: Path) -> None:
    base, new = _pair(tmp_path)
    for path in _summaries(new):
        edit(path, lambda document: document["probes"].update(fork="kprobe kernel_clone"))
    for number, path in enumerate(_environments(base)):
        kernel = ENVIRONMENT["kernel"] | {"boot_id": f"boot-{number}"}
        edit(path, lambda document, kernel=kernel: document.update(kernel=kernel))  # type: ignore[misc]
    warnings = _compare(base, new).document["warnings"]
    assert any("different probes" in warning for warning in warnings)
    assert any("of one boot" in warning for warning in warnings)
