# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong in a build: one clear sentence, the documented exit code, no kernel that is not whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel_build.conftest import PATCH, StandIn
from tests.run.conftest import Command


def check(command: Command, code: int, *words: str) -> str:
    returned, output, errors = command.finish()
    assert returned == code, errors
    assert output == ""
    assert "Traceback" not in errors
    for word in words:
        assert word in errors, errors
    assert command.orphans() == {}
    return errors


def test_no_such_flavour(stand_in: StandIn) -> None:
    check(stand_in.build("fast-fork"), 2, "no flavour 'fast-fork'", "has default and other")


def test_both_checks_at_once(stand_in: StandIn) -> None:
    check(stand_in.build("--debug", "--races"), 2, "--debug and --races", "one by one")


def test_no_such_configs(stand_in: StandIn, tmp_path: Path) -> None:
    check(stand_in.start("build", "--configs", tmp_path / "nowhere"), 2, "nowhere/source.toml", "--configs")


def test_configs_that_are_not_toml(stand_in: StandIn) -> None:
    (stand_in.configs / "source.toml").write_text("version = \n")
    check(stand_in.build(), 2, "source.toml is not TOML")


def test_configs_that_do_not_say_the_version(stand_in: StandIn) -> None:
    (stand_in.configs / "source.toml").write_text('defconfig = "defconfig"\n')
    check(stand_in.build(), 2, "source.toml does not say 'version'")


def test_patch_that_does_not_apply(stand_in: StandIn) -> None:
    stand_in.patch.write_text(PATCH.replace("return 1;", "return 7;"))
    check(stand_in.build(), 2, "0001-another-answer.patch does not apply", "Hunk #1 FAILED at 1 of mm/memory.c")
    stand_in.patch.write_text(PATCH)
    stand_in.built()


def test_patch_of_a_file_that_is_not_there(stand_in: StandIn) -> None:
    stand_in.patch.write_text(PATCH.replace("mm/memory.c", "mm/nowhere.c"))
    check(stand_in.build(), 2, "0001-another-answer.patch does not apply", "mm/nowhere.c")


def test_patch_that_is_none(stand_in: StandIn) -> None:
    stand_in.patch.write_text("not a patch\n")
    check(stand_in.build(), 2, "0001-another-answer.patch does not apply")


def test_compile_error(stand_in: StandIn) -> None:
    stand_in.patch.write_text(PATCH.replace("return 2;", "return two;"))
    check(stand_in.build(), 1, "default did not compile", "mm/memory.c:3", "'two' undeclared", "default.log")
    assert "'two' undeclared" in (stand_in.work / "default.log").read_text()


def test_missing_tools_are_told_at_once(stand_in: StandIn, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for path in Path(directory).iterdir():
            if path.name not in ("flex", "pahole") and not (programs / path.name).is_symlink():
                (programs / path.name).symlink_to(path)
    check(stand_in.build(PATH=str(programs)), 3, "needs flex, pahole", "apt-get install dwarves flex")


def test_what_packs_is_missing(stand_in: StandIn, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for path in Path(directory).iterdir():
            if path.name not in ("dpkg-buildpackage", "cpio") and not (programs / path.name).is_symlink():
                (programs / path.name).symlink_to(path)
    command = stand_in.build("--deb", "--host-config", "lab", PATH=str(programs))
    check(command, 3, "a package needs cpio, dpkg-buildpackage: apt-get install cpio dpkg-dev")
    code, _, errors = stand_in.build(PATH=str(programs)).finish()
    assert code == 0, errors


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (None, "nowhere", "--host-config nowhere cannot be read (No such file or directory): give debian, lab"),
        (b"no xz", "config.xz", "--host-config config.xz is no xz file"),
        (b"hello\n", "config", "--host-config config is no configuration of a kernel"),
    ],
)
def test_a_host_configuration_that_is_none(
    stand_in: StandIn, tmp_path: Path, content: bytes | None, name: str, words: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    check(stand_in.build("--deb", "--host-config", name), 2, words)


def test_a_host_configuration_without_a_package(stand_in: StandIn) -> None:
    check(stand_in.build("--host-config", "lab"), 2, "--host-config", "give --deb")


def test_configs_without_what_hosts_need(stand_in: StandIn, tmp_path: Path) -> None:
    (stand_in.configs / "host.config").unlink()
    (tmp_path / "config").write_text("CONFIG_MINE=y\n")
    check(stand_in.build("--deb", "--host-config", "config"), 2, "host.config is missing", "--configs")


class TestSource:
    def test_that_does_not_exist(self, stand_in: StandIn, tmp_path: Path) -> None:
        check(stand_in.build("--source", tmp_path / "nowhere"), 2, "nowhere does not exist")

    def test_that_is_no_tarball(self, stand_in: StandIn, tmp_path: Path) -> None:
        bogus = tmp_path / "linux-6.1.tar.xz"
        bogus.write_text("not a tarball")
        check(stand_in.build("--source", bogus), 2, f"{bogus} is no tarball of a kernel")

    def test_tarball_of_something_else(self, stand_in: StandIn, tmp_path: Path) -> None:
        other = tmp_path / "other.tar"
        subprocess.run(["tar", "-cf", other, "-C", stand_in.directory, "configs"], check=True)
        check(stand_in.build("--source", other), 2, f"{other} is no kernel source")

    def test_tarball_of_a_kernel(self, stand_in: StandIn, tmp_path: Path) -> None:
        tarball = tmp_path / "linux.tar.xz"
        subprocess.run(["tar", "-cJf", tarball, "-C", stand_in.directory, "tree"], check=True)
        assert stand_in.built("--source", tarball)["source"] == str(tarball)

    def test_directory_that_is_no_kernel(self, stand_in: StandIn, tmp_path: Path) -> None:
        check(stand_in.build("--source", stand_in.configs), 2, "configs is no kernel source")

    def test_tree_of_another_version(self, stand_in: StandIn) -> None:
        makefile = stand_in.tree / "Makefile"
        makefile.write_text(makefile.read_text().replace("PATCHLEVEL = 1", "PATCHLEVEL = 12"))
        check(stand_in.build(), 2, "is Linux 6.12.999, and the patches are for 6.1")

    def test_tree_that_was_built_in_place(self, stand_in: StandIn) -> None:
        (stand_in.tree / ".config").touch()
        check(stand_in.build(), 2, "was built in place", "make mrproper")

    @pytest.mark.skipif(shutil.which("apt-get") is None, reason="the mend is Debian's")
    def test_none_at_all(self, stand_in: StandIn) -> None:
        command = stand_in.start("build", "--configs", stand_in.configs)
        check(command, 3, "no kernel source at /nonexistent/linux.tar.xz", "apt-get install forktail-no-such-package")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 16 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


class TestFullDisk:
    @pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
    def test_too_little_to_begin_with(self, stand_in: StandIn, small_disk: Path) -> None:
        command = stand_in.build(XDG_CACHE_HOME=str(small_disk))
        check(command, 3, f"GiB at {small_disk}", "0.0 GiB are free", "XDG_CACHE_HOME")

    def test_that_fills_up_under_the_compiler(self, stand_in: StandIn) -> None:
        stand_in.rule("cat Makefile > /dev/full")
        check(stand_in.build(), 3, "The disk became full", "No space left on device", "free space")


def test_cache_that_cannot_be_made(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check(stand_in.build(XDG_CACHE_HOME=str(tmp_path / "file")), 3, "Not a directory", "XDG_CACHE_HOME")
