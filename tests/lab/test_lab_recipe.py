# SPDX-License-Identifier: Apache-2.0
"""The image's recipe: its key follows everything that decides what is in the image, and nothing else."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest

from forktail.errors import EnvironmentLacks
from forktail.lab.recipe import Recipe, recipe

SOME = Recipe(distribution="bookworm", python="3.11", dependencies=("redis==5.0",))


@pytest.mark.parametrize(
    "other",
    [
        replace(SOME, distribution="trixie"),
        replace(SOME, python="3.13"),
        replace(SOME, dependencies=("redis==5.1",)),
        replace(SOME, packages=(*SOME.packages, "stress-ng")),
        replace(SOME, masked=SOME.masked[1:]),
        replace(SOME, files=(*SOME.files[1:], (SOME.files[0][0], "other"))),
        replace(SOME, disk_bytes=2 * SOME.disk_bytes),
    ],
)
def test_any_change_gives_another_key(other: Recipe) -> None:
    assert other.key != SOME.key


def test_the_same_recipe_gives_the_same_key() -> None:
    assert replace(SOME).key == SOME.key


def test_the_recipe_of_this_host_has_what_the_measuring_side_imports() -> None:
    names = {line.partition("==")[0].lower() for line in recipe().dependencies}
    assert names >= {"pydantic", "pydantic_core", "redis", "rich", "tomli_w", "typer"}
    assert not names & {"pandas", "numpy", "pytest", "forktail"}


def test_another_system_is_told_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: {"ID": "arch", "PRETTY_NAME": "Arch Linux"})
    with pytest.raises(EnvironmentLacks, match="this is Arch Linux: use the lab on a Debian host"):
        recipe()
