# SPDX-License-Identifier: Apache-2.0
"""The mechanism of a kernel: ours by name, a stock one's by evidence, anything else unknown and never the default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forktail.flavour import UNKNOWN, flavour_here, flavour_of, flavour_of_release, signs
from forktail.measure.environment import deviations, environment
from forktail.measure.mechanism import fork_mechanism
from forktail.workload import Snapshot

DEBIAN = "6.1.0-31-amd64"


@pytest.mark.parametrize(
    ("release", "flavour"),
    [
        ("6.1.192-forktail-default", "default"),
        ("6.1.192-forktail-odf", "odf"),
        ("6.1.192-forktail-async-fork", "async-fork"),
        ("6.1.192-forktail-async-fork-debug", "async-fork"),
        (DEBIAN, "default"),
        ("6.8.0-45-generic", "default"),
        ("5.14.0-427.13.1.el9_4.x86_64", "default"),
        ("6.8.0-my-async-fork", UNKNOWN),
        ("5.6.19-odf-rc1", UNKNOWN),
        ("5.6.19-odf", UNKNOWN),
        ("6.1.192-forktail-tfork", UNKNOWN),
        ("6.1.192-forktail-odf2", UNKNOWN),
        ("6.6.0-AsyncFork+", UNKNOWN),
        ("6.2.0-cow-pte", UNKNOWN),
        ("6.2.0-fastfork", UNKNOWN),
    ],
)
def test_a_release_names_our_mechanisms_and_no_other(release: str, flavour: str) -> None:
    assert flavour_of_release(release) == flavour
    assert flavour_of(release, signs(release, Path("/nowhere"))) == flavour


SIGNS = {
    "a switch of the process": ("proc/self/use_odf", "/proc/self/use_odf"),
    "a switch of the cgroup, version 1": ("sys/fs/cgroup/memory/memory.async_fork", "memory.async_fork in memory"),
    "a switch of the cgroup, version 2": ("sys/fs/cgroup/system.slice/memory.async_fork", "memory.async_fork in"),
    "a sysctl": ("proc/sys/vm/cow_pte", "/proc/sys/vm/cow_pte"),
    "a module": ("sys/module/async_fork/parameters/min_tables", "/sys/module/async_fork"),
}


@pytest.mark.parametrize(("path", "phrase"), SIGNS.values(), ids=SIGNS)
def test_a_stock_name_with_the_switch_of_another_fork_is_unknown(tmp_path: Path, path: str, phrase: str) -> None:
    """Planted: the kernel is called as Debian's is, and has a switch that Debian's has not."""
    assert signs(DEBIAN, tmp_path) == []
    planted = tmp_path / path
    planted.parent.mkdir(parents=True)
    planted.write_text("0\n")
    (found,) = signs(DEBIAN, tmp_path)
    assert phrase in found
    assert flavour_of(DEBIAN, [found]) == UNKNOWN
    # Our own kernels have these switches too, and are what they are called.
    assert signs("6.1.192-forktail-odf", tmp_path) == []


@pytest.mark.parametrize(
    ("symbols", "found"),
    [
        ("0 T copy_process\n0 t copy_pmd_range_tfork\n", ["the kernel's symbol copy_pmd_range_tfork"]),
        ("0 T _do_async_fork\n", ["the kernel's symbol _do_async_fork"]),
        ("0 T odf_share_table\n", ["the kernel's symbol odf_share_table"]),
        ("0 T kernel_clone\n0 T kodfish\n0 t sched_post_fork\n0 T print_fork_stats\n", []),
        ("0 t odf_module_of_a_display\t[odf_display]\n", []),
    ],
)
def test_the_kernels_own_symbols_are_looked_at(tmp_path: Path, symbols: str, found: list[str]) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "kallsyms").write_text(symbols)
    assert signs(DEBIAN, tmp_path) == found


def test_this_host_is_what_its_release_says() -> None:
    """Neither a distribution's kernel nor one of ours has a sign of another mechanism."""
    assert signs(os.uname().release) == []
    assert flavour_here() == flavour_of_release(os.uname().release)


def test_an_unknown_mechanism_is_named_with_what_was_looked_for(tmp_path: Path) -> None:
    recorded = environment(tmp_path)
    assert not [sentence for sentence in deviations(recorded) if "mechanism" in sentence]
    recorded["kernel"] |= {"flavour": UNKNOWN, "release": DEBIAN, "mechanism_signs": ["/proc/self/use_odf"]}
    (sentence,) = [sentence for sentence in deviations(recorded) if "mechanism" in sentence]
    assert f"fork mechanism of Linux {DEBIAN} is unknown: /proc/self/use_odf points to another" in sentence
    assert "/proc/kallsyms" in sentence


def test_an_unknown_mechanism_cannot_be_switched_and_the_run_says_so() -> None:
    with fork_mechanism(UNKNOWN, Snapshot()) as mechanism:
        assert (mechanism.name, mechanism.knob, mechanism.note) == (UNKNOWN, None, None)
    with fork_mechanism(UNKNOWN, Snapshot(fork="default", copy_threads=4)) as mechanism:
        assert mechanism.name == UNKNOWN
        assert mechanism.note is not None
        assert "snapshot.fork = default has no effect" in mechanism.note
        assert "snapshot.copy_threads = 4 has no effect: this kernel's fork mechanism is unknown" in mechanism.note
