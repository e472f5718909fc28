# SPDX-License-Identifier: Apache-2.0
"""provision.yml and its roles: what is refused before anything is changed, and what a source is built from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.provision.conftest import LOCAL, PLAYBOOKS, Play

ROLES = (
    "added_packages",
    "forktail_measure",
    "host_preflight",
    "host_tuning",
    "kernel_build",
    "kernel_packages",
    "keydb",
    "memtier",
    "redis",
    "source_build",
    "stopped_service",
    "valkey",
)
PROVISION = "playbooks/provision.yml"


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The output as one line, as wide as it may be."""
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_says_what_its_variables_mean(role: str) -> None:
    directory = PLAYBOOKS / "roles" / role
    defaults = yaml.safe_load((directory / "defaults/main.yml").read_text())
    points = yaml.safe_load((directory / "meta/argument_specs.yml").read_text())["argument_specs"]
    options: dict[str, Any] = {}
    for point in points.values():
        options |= point["options"]
    assert set(defaults) <= set(options)
    for name, option in options.items():
        assert option["description"], name
        assert name.startswith(role), name
        # Whatever is not required has a default, and it is the one that the specification names.
        assert option.get("required", False) == (name not in defaults), name
        if "default" in option and option["type"] != "dict":
            assert option["default"] == defaults[name], name
    assert {path.stem for path in (directory / "tasks").glob("restore.yml")} <= set(points)
    assert (directory / "README.md").exists()


SERVER = {"servers": {"here": LOCAL}}


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"host_preflight_memory_mib": 10**9}, "MiB of memory, and 1000000000 are needed"),
        ({"host_preflight_disk_mib": 10**9}, "MiB free on /, and 1000000000 are needed"),
        ({"host_preflight_python": "4.0"}, "and forktail runs on 4.0 and later"),
        ({"host_preflight_distributions": ["Slackware"]}, "provisioning is written for Slackware"),
        ({"forktail_programs": ["mongodb"]}, "it may list redis, keydb, valkey and memtier"),
        ({"redis_version": "5.0.9"}, "redis_version is 5.0.9, and redis_commits pins 5.0.10"),
        ({"kernel_build_flavours": ["tfork"]}, "tfork is no kernel of"),
        ({"kernel_build_forktail": "/nonexistent/forktail"}, "/nonexistent/forktail of localhost does not build"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_changed(
    provision: Play, variables: dict[str, Any], sentence: str
) -> None:
    done = provision(PROVISION, SERVER, "--check", "-e", json.dumps({"forktail_programs": []} | variables))
    assert done.returncode != 0
    assert sentence in said(done), done.stdout
    assert "changed=0" in done.stdout
    assert "changed:" not in done.stdout


def test_an_inventory_without_servers_is_refused(provision: Play) -> None:
    done = provision(PROVISION, {"clients": {"here": LOCAL}}, "--check")
    assert done.returncode != 0
    assert "no host in the group servers" in said(done)


def test_a_host_that_does_not_answer_keeps_the_others_unchanged(provision: Play) -> None:
    away = {"ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_ssh_common_args": "-F none"}
    done = provision(PROVISION, {"servers": {"here": LOCAL, "away": away}}, "--check")
    assert done.returncode != 0
    assert "Connection refused" in said(done)
    assert "away, here failed, did not answer, or waited for one" in said(done), done.stdout
    assert "Check the builder" not in done.stdout


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A program's repository with a release."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "hello.c").write_text('#include <stdio.h>\nint main(void) { puts("hello 1.0"); return 0; }\n')
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Say hello"], ["tag", "-am", "Release", "v1.0"]):
        subprocess.run(["git", *identity, *command], cwd=repository, check=True)
    return repository


def commit_of(repository: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def building(tmp_path: Path, provision: Play) -> Play:
    """Run entry points of source_build here, on a recipe for `source`, with all directories of the test's own."""

    def build(repository: Path, commit: str, *entries: str) -> subprocess.CompletedProcess[str]:
        recipe = {
            "name": "hello",
            "source": str(repository),
            "version": "v1.0",
            "commit": commit,
            "needs": ["git"],
            "commands": ["gcc -o hello hello.c", f"echo built >>{tmp_path}/log"],
            "programs": ["hello"],
            "libraries": ["libc6"],
            "linked": True,
        }
        directories = {
            f"source_build_{name}": str(tmp_path / name) for name in ("directory", "kept", "prefix", "links", "state")
        }
        (tmp_path / "links").mkdir(exist_ok=True)
        roles = [{"ansible.builtin.include_role": {"name": "source_build", "tasks_from": entry}} for entry in entries]
        book = tmp_path / "book.yml"
        variables = directories | {"source_build_recipe": recipe}
        book.write_text(yaml.safe_dump([{"hosts": "here", "gather_facts": True, "vars": variables, "tasks": roles}]))
        return provision(str(book), {"servers": {"here": LOCAL}})

    return build


def test_a_tag_that_is_not_the_pinned_commit_is_refused(building: Play, source: Path, tmp_path: Path) -> None:
    done = building(source, "0" * 40, "preflight", "build")
    assert done.returncode != 0
    assert f"Tag v1.0 of {source} is {commit_of(source)}, and hello_commit pins {'0' * 40}" in said(done)
    assert not (tmp_path / "directory").exists()


def test_a_tag_that_was_moved_after_it_was_asked_for_is_not_built(building: Play, source: Path, tmp_path: Path) -> None:
    done = building(source, "0" * 40, "build")
    assert done.returncode != 0
    assert f"Fetched {commit_of(source)} as v1.0 of {source}, and hello_commit pins {'0' * 40}" in said(done)
    assert not (tmp_path / "log").exists()


def test_a_source_that_is_not_there_is_named(building: Play, tmp_path: Path) -> None:
    done = building(tmp_path / "nowhere", "0" * 40, "preflight")
    assert done.returncode != 0
    assert "set hello_source to a mirror or a local path" in said(done)


def test_the_pinned_commit_is_built_once_installed_and_removed(building: Play, source: Path, tmp_path: Path) -> None:
    commit = commit_of(source)
    first = building(source, commit, "preflight", "build", "install")
    assert first.returncode == 0, first.stdout
    link = tmp_path / "links" / "hello"
    assert subprocess.run([link], check=True, capture_output=True, text=True).stdout == "hello 1.0\n"
    second = building(source, commit, "preflight", "build", "install")
    assert "changed=0" in second.stdout
    assert (tmp_path / "log").read_text() == "built\n"
    assert building(source, commit, "restore").returncode == 0
    assert not link.is_symlink()
    assert not list((tmp_path / "prefix").rglob("hello"))


def test_a_program_of_somebody_else_is_not_replaced(building: Play, source: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "hello").write_text("theirs")
    done = building(source, commit_of(source), "build", "install", "restore")
    assert done.returncode == 0, done.stdout
    assert "is not ours and stays" in said(done)
    assert (tmp_path / "links" / "hello").read_text() == "theirs"
