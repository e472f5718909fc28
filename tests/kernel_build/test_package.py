# SPDX-License-Identifier: Apache-2.0
"""`forktail kernel build --deb`: on a stand-in packed at once, and on the lab's own kernel where that is built."""

from __future__ import annotations

import json
import lzma
import subprocess
from pathlib import Path

import pytest
from tests.kernel_build.conftest import CONFIGS, StandIn

from forktail.kernel import cache
from forktail.kernel.buildtree import BuildTree
from forktail.kernel.options import read_options
from forktail.kernel.package import build_package
from forktail.kernel.series import HOST, Series, read_series
from forktail.kernel.worktree import WorkTree

DEBIAN_CONFIG = Path("/usr/src/linux-config-6.1/config.amd64_none_amd64.xz")


def contents(deb: str | Path) -> list[str]:
    listing = subprocess.run(["dpkg-deb", "--contents", deb], check=True, capture_output=True, text=True).stdout
    return [line.split()[5].removeprefix(".") for line in listing.splitlines()]


def field(deb: str | Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "--field", deb, name], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A host's configuration, packed as Debian's is."""
    path = tmp_path / "config.xz"
    path.write_bytes(lzma.compress(b"CONFIG_MINE=y\n"))
    return path


def test_a_package_and_all_that_tells_what_it_is(stand_in: StandIn, config: Path) -> None:
    package = stand_in.packed("--host-config", config)
    release, version = "6.1.999-forktail-default", f"6.1-{package['key'][:12]}"
    assert (package["release"], package["host_config"]) == (release, str(config))
    assert f"/boot/vmlinuz-{release}" in contents(package["deb"])
    assert field(package["deb"], "Package") == f"linux-image-{release}"
    assert field(package["deb"], "Version") == version
    assert Path(package["config"]).read_text() == "CONFIG_MINE=y\nCONFIG_HOST=y\nCONFIG_FLAVOUR=1\n"
    assert stand_in.packed("--host-config", config) == package
    assert [path.name for path in stand_in.work.rglob("linux-*_*")] == [], "what is not wanted of the packages is left"


def test_it_is_printed_for_who_installs_it(stand_in: StandIn, config: Path) -> None:
    code, output, errors = stand_in.build("--deb", "--host-config", config).finish()
    assert code == 0, errors
    release, path = output.split()
    assert release == "6.1.999-forktail-default"
    assert path.endswith(".deb")
    assert Path(path).is_file()


def test_each_configuration_makes_another_package_and_no_kernel(
    stand_in: StandIn, config: Path, tmp_path: Path
) -> None:
    other = tmp_path / "config"
    other.write_text("CONFIG_MINE=n\n")
    keys = {stand_in.packed("--host-config", path)["key"] for path in (config, other, Path("lab"))}
    assert len(keys) == 3
    listed = json.loads(stand_in.start("list", "--json").finish()[1])
    assert (len(listed["packages"]), listed["kernels"]) == (3, [])


def test_the_lab_s_configuration_is_packed_where_its_kernel_was_compiled(stand_in: StandIn) -> None:
    kernel = stand_in.built()
    package = stand_in.packed("--host-config", "lab")
    assert Path(package["config"]).read_text() == Path(kernel["config"]).read_text()
    assert package["key"] != kernel["key"]
    assert sorted(path.name for path in stand_in.work.glob("*/") if path.name != "linux") == ["build", "staged"]


@pytest.mark.skipif(not DEBIAN_CONFIG.exists(), reason="linux-config-6.1 is not installed")
@pytest.mark.parametrize("flavour", read_series(CONFIGS).flavours)
def test_debian_s_configuration_keeps_every_option(
    series: Series, patched: WorkTree, tmp_path: Path, flavour: str
) -> None:
    base = tmp_path / "debian.config"
    base.write_bytes(lzma.decompress(DEBIAN_CONFIG.read_bytes()))
    tree = BuildTree(patched.tree, tmp_path / "build", tmp_path / "log", "0", "")
    tree.configure(base, series.fragments(flavour, base=HOST))
    options = dict(read_options(tree.directory / ".config"))
    assert options["CONFIG_LOCALVERSION"] == f'"-forktail-{flavour}"'
    assert options["CONFIG_DEBUG_INFO_BTF"] == "y"
    assert {options[name] for name in ("CONFIG_NVME_CORE", "CONFIG_IXGBE", "CONFIG_MEGARAID_SAS")} == {"m"}


def test_the_real_kernel_as_a_package() -> None:
    """With a guest's configuration, which is packed in a minute or two where it is compiled already."""
    if cache.find("default") is None:
        pytest.skip("not built yet: forktail kernel build default")
    package = build_package("default", config="lab")
    release = package.release
    files = contents(package.deb)
    for name in (f"/boot/vmlinuz-{release}", f"/boot/System.map-{release}", f"/boot/config-{release}"):
        assert name in files
    assert f"/lib/modules/{release}/modules.builtin" in files
    assert field(package.deb, "Package") == f"linux-image-{release}"
