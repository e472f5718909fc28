# SPDX-License-Identifier: Apache-2.0
"""Which kernel a guest boots: a flavour by name, an image by path, anything else by a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from forktail.errors import BadInput, EnvironmentLacks
from forktail.kernel import cache
from forktail.lab.kernel import LabKernel, built_kernels, find_kernel


def test_an_image_tells_its_release(made_up_kernel: Path) -> None:
    assert find_kernel(str(made_up_kernel)) == LabKernel("odf", "6.1.192-forktail-odf", made_up_kernel)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("odv", "'odv' is no kernel flavour: did you mean odf?"),
        ("xyz", "known are default, odf, async-fork"),
        ("/nowhere/bzImage", "The kernel /nowhere/bzImage cannot be read"),
        ("/etc/passwd", "/etc/passwd is no Linux kernel"),
    ],
)
def test_what_is_no_kernel(name: str, sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_kernel(name)
    assert sentence in str(caught.value)


def test_a_kernel_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "find", lambda _flavour: None)
    with pytest.raises(EnvironmentLacks, match="The kernel odf is not built: `forktail kernel build odf`"):
        find_kernel("odf")
    with pytest.raises(EnvironmentLacks, match="No kernel is built"):
        built_kernels()
