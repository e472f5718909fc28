# SPDX-License-Identifier: Apache-2.0
"""`forktail kernel build`, `list` and `clean` on a stand-in for the kernel that make builds at once."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.kernel_build.conftest import PATCH, StandIn

from forktail.kernel.series import CHECKS


def listed(stand_in: StandIn) -> list[dict[str, str]]:
    code, output, errors = stand_in.start("list", "--json").finish()
    assert code == 0, errors
    return list(json.loads(output)["kernels"])


def test_a_kernel_and_all_that_tells_what_it_is(stand_in: StandIn) -> None:
    kernel = stand_in.built()
    for name in ("image", "vmlinux", "config", "log"):
        assert Path(kernel[name]).stat().st_size > 0
    assert kernel["release"] == "6.1.999-forktail-default"
    assert stand_in.builds == [kernel["key"][:12]]
    assert "CONFIG_DEFAULT=y\nCONFIG_BASE=y\nCONFIG_FLAVOUR=1\n" in Path(kernel["config"]).read_text()
    assert "CC      mm/memory.o" in Path(kernel["log"]).read_text()


def test_nothing_is_built_twice(stand_in: StandIn) -> None:
    first = stand_in.built()
    assert stand_in.built() == first
    assert len(stand_in.builds) == 1


def test_flavours_share_a_build_tree_and_what_checks_them_has_its_own(stand_in: StandIn) -> None:
    code, _, errors = stand_in.build("all").finish()
    assert code == 0, errors
    for checks in CHECKS:
        assert stand_in.built(f"--{checks}")["release"] == f"6.1.999-forktail-default-{checks}"
    assert {kernel["flavour"] for kernel in listed(stand_in)} == {"default", "other"}
    assert len(stand_in.builds) == 4
    trees = sorted(path.name for path in stand_in.work.glob("build*") if path.is_dir())
    assert trees == ["build", "build-debug", "build-races"]


def test_races_are_looked_for_in_what_the_patches_make_and_nowhere_else(stand_in: StandIn) -> None:
    makefile = stand_in.tree / "Makefile"
    objects = "mm/new.o mm/other.o drivers/mm/new.o"
    makefile.write_text(f"{makefile.read_text()}\n{objects}:\n\t@echo '$@ $(KCSAN_SANITIZE).'\n")
    stand_in.rule(f"$(MAKE) {objects}")
    races = Path(stand_in.built("--races")["log"]).read_text().splitlines()
    assert {"mm/new.o y.", "mm/other.o n.", "drivers/mm/new.o n."} <= set(races)
    assert "mm/new.o ." in Path(stand_in.built()["log"]).read_text().splitlines()


def test_a_changed_patch_touches_its_files_alone(stand_in: StandIn) -> None:
    stand_in.built()
    tree = stand_in.work / "linux"
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*.c")}
    assert "return 2;" in (tree / "mm" / "memory.c").read_text()
    stand_in.patch.write_text(PATCH.replace("return 2;", "return 3;"))
    stand_in.built()
    after = {path: path.stat().st_mtime_ns for path in tree.rglob("*.c")}
    assert [path.name for path in before if before[path] != after[path]] == ["memory.c"]
    stand_in.patch.unlink()
    stand_in.built()
    assert "return 1;" in (tree / "mm" / "memory.c").read_text()
    assert not (tree / "mm" / "new.c").exists()


def test_a_tree_that_changes_is_built_again_and_never_written_to(stand_in: StandIn) -> None:
    stand_in.built()
    original = (stand_in.tree / "mm" / "memory.c").read_text()
    assert "return 1;" in original
    (stand_in.tree / "mm" / "other.c").write_text("int another;\n")
    stand_in.built()
    assert len(stand_in.builds) == 2
    assert (stand_in.work / "linux" / "mm" / "other.c").read_text() == "int another;\n"
    assert (stand_in.tree / "mm" / "memory.c").read_text() == original


def test_calls_at_the_same_time_build_once(stand_in: StandIn) -> None:
    stand_in.rule("sleep 2")
    commands = [stand_in.build() for _ in range(3)]
    ended = [command.finish() for command in commands]
    assert [code for code, _, _ in ended] == [0, 0, 0]
    assert len({output for _, output, _ in ended}) == 1
    assert len(stand_in.builds) == 1
    assert sum("wait for another build" in errors for _, _, errors in ended) == 2


def test_what_is_built_is_had_while_another_kernel_is_building(stand_in: StandIn) -> None:
    stand_in.rule('if [ -n "$$HOLD" ]; then sleep 60; fi')
    first = stand_in.built()
    slow = stand_in.build("other", HOLD="yes")
    slow.pid_of("sleep")
    assert stand_in.built() == first


def test_clean_says_what_it_freed_and_leaves_nothing(stand_in: StandIn) -> None:
    stand_in.built()
    code, output, _ = stand_in.start("list").finish()
    assert code == 0
    assert "6.1.999-forktail-default" in output
    code, output, _ = stand_in.start("clean").finish()
    assert code == 0
    assert "Freed 0.0 GiB in" in output
    assert [path.name for path in stand_in.kernels.iterdir()] == ["lock"]
    assert listed(stand_in) == []


def test_ctrl_c_ends_the_compiler_and_keeps_nothing_half_built(stand_in: StandIn) -> None:
    stand_in.rule("sleep 60 & sleep 60")
    command = stand_in.build()
    command.pid_of("sleep")
    command.process.send_signal(signal.SIGINT)
    code, _, errors = command.finish()
    assert code == 130
    assert "Traceback" not in errors
    assert command.orphans() == {}
    assert listed(stand_in) == []


def test_a_killed_build_leaves_no_orphan_and_no_lock(stand_in: StandIn) -> None:
    stand_in.rule("sleep 60 & sleep 60")
    command = stand_in.build()
    command.pid_of("sleep")
    command.process.kill()
    command.process.wait()
    assert command.orphans() == {}
    makefile = stand_in.tree / "Makefile"
    makefile.write_text(makefile.read_text().replace("sleep 60 & sleep 60", ":"))
    stand_in.built()


def test_an_outer_make_has_no_say(stand_in: StandIn) -> None:
    environment = {"MAKEFLAGS": "n", "KBUILD_OUTPUT": "/nonexistent", "LOCALVERSION": "-mine", "ARCH": "arm64"}
    code, output, errors = stand_in.build(**environment).finish()
    assert code == 0, errors
    assert output.startswith("6.1.999-forktail-default ")
