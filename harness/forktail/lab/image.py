# SPDX-License-Identifier: Apache-2.0
"""The guest image: a Debian file system made without loop devices, cached under its recipe's key."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import EnvironmentLacks
from forktail.lab.cache import lab_cache, locked
from forktail.lab.programs import find_program
from forktail.lab.recipe import Recipe, python_dependencies
from forktail.measure.child import run_child

HOST_ALIAS = "forktail-lab"
"""The name that every guest's host key is known by: address and port are the same for none."""

_SCRATCH = "making-"
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Image:
    """An image in the cache: the disk, the key that opens its guests, and the host key to know them by."""

    directory: Path

    @property
    def disk(self) -> Path:
        return self.directory / "disk.img"

    @property
    def key(self) -> Path:
        return self.directory / "key"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"


def _run(command: Sequence[str | Path], what: str) -> str:
    result = run_child(command)
    if result.returncode != 0:
        lines = [line for line in result.stderr.decode(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith("E:")] or lines or ["it left no word"]
        raise EnvironmentLacks(f"{what} failed: {telling[0].strip().rstrip('.')}.")
    return result.stdout.decode(errors="replace")


def host_sources(distribution: str) -> list[str]:
    """The host's own package sources of this distribution, as one-line entries, whatever format they are kept in."""
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    wanted = {distribution, f"{distribution}-updates", f"{distribution}-security"}
    options = f"[signed-by={_KEYRING}] " if _KEYRING.exists() else ""
    targets = [line.split() for line in _run(query, "Reading the host's apt sources").splitlines()]
    entries = [
        f"deb {options}{uri} {release} main"
        for uri, release, component in targets
        if release in wanted and component == "main"
    ]
    if not entries:
        raise EnvironmentLacks(
            f"The host's apt sources name no archive of {distribution}: add one to /etc/apt/sources.list.d/."
        )
    return list(dict.fromkeys(entries))


def _host_acquire_options() -> str:
    """How the host's apt reaches its archives: proxies, certificates, timeouts."""
    foreign = ("IndexTargets", "Changelogs", "CompressionTypes", "cdrom")
    options = _run(["apt-config", "dump", "--no-empty"], "Reading the host's apt configuration").splitlines()
    return "".join(
        line + "\n"
        for line in options
        if line.startswith("Acquire::") and not line.startswith(tuple(f"Acquire::{name}" for name in foreign))
    )


def _bootstrap(recipe: Recipe, root: Path, scratch: Path) -> None:
    sources, options = scratch / "sources.list", scratch / "apt.conf"
    sources.write_text("".join(entry + "\n" for entry in host_sources(recipe.distribution)))
    options.write_text(_host_acquire_options())
    _run(
        [
            # In a PID namespace of its own, so that apt and dpkg end with us, however we end.
            "unshare", "--fork", "--kill-child", "--pid", "--mount-proc",
            find_program("mmdebstrap"), "--quiet", "--mode=root", "--variant=minbase", f"--aptopt={options}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.left_out),
            f"--include={','.join(recipe.packages)}", recipe.distribution, root, sources,
        ],
        "mmdebstrap",
    )  # fmt: skip


def _configure(recipe: Recipe, root: Path) -> None:
    for name, text in recipe.files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    units = root / "etc/systemd/system"
    for unit in recipe.masked:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
    (units / "multi-user.target.wants/lab-network.service").symlink_to("/etc/systemd/system/lab-network.service")
    # The mirrors and proxies of the host are its own affair.
    for name in ("etc/apt/sources.list.d", "var/lib/apt/lists", "var/cache/apt"):
        shutil.rmtree(root / name)
        (root / name).mkdir()
    (root / "etc/apt/apt.conf.d/99mmdebstrap").unlink(missing_ok=True)


def _install_dependencies(recipe: Recipe, root: Path) -> None:
    if not (root / f"usr/bin/python{recipe.python}").exists():
        raise EnvironmentLacks(
            f"The guest's Python is not {recipe.python}, on which forktail runs here: "
            "make forktail's environment with the distribution's own python3."
        )
    target = root / f"usr/local/lib/python{recipe.python}/dist-packages"
    for distribution in python_dependencies("forktail"):
        for file in distribution.files or []:
            if file.parts[0] != "..":  # Scripts of its own stay behind: nothing in the guest calls them.
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(str(distribution.locate_file(file))), target / file)
    # The guest's Python may be another patch release, which may want more: better heard of now.
    _run(["chroot", root, "python3", "-c", "import pydantic, redis, rich, tomli_w, typer"], "Python in the image")


def _make_keys(directory: Path, root: Path) -> None:
    keygen = [find_program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "forktail-lab", "-f"]
    _run([*keygen, directory / "key"], "ssh-keygen")
    for old in (root / "etc/ssh").glob("ssh_host_*"):
        old.unlink()
    _run([*keygen, root / "etc/ssh/ssh_host_ed25519_key"], "ssh-keygen")
    (directory / "known_hosts").write_text(f"{HOST_ALIAS} {(root / 'etc/ssh/ssh_host_ed25519_key.pub').read_text()}")
    authorized = root / "root/.ssh/authorized_keys"
    authorized.parent.mkdir(mode=0o700, exist_ok=True)
    authorized.write_text((directory / "key.pub").read_text())


def _build(recipe: Recipe, final: Path) -> None:
    if os.geteuid() != 0:
        raise EnvironmentLacks("Making the guest image needs root, once: run it under sudo.")
    for program in ("mmdebstrap", "mke2fs", "ssh-keygen"):
        find_program(program)
    for leftover in final.parent.glob(f"{_SCRATCH}*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=final.parent) as name:
        scratch = Path(name)
        root, made = scratch / "root", scratch / "made"
        made.mkdir(mode=0o700)
        _bootstrap(recipe, root, scratch)
        _configure(recipe, root)
        _install_dependencies(recipe, root)
        _make_keys(made, root)
        with (made / "disk.img").open("wb") as disk:
            disk.truncate(recipe.disk_bytes)
        _run(
            [
                find_program("mke2fs"),
                "-q",
                "-t",
                "ext4",
                "-O",
                "^has_journal",
                "-m",
                "0",
                "-d",
                root,
                made / "disk.img",
            ],
            "mke2fs",
        )
        made.rename(final)


def find_or_build(recipe: Recipe, on_build: Callable[[], None]) -> Image:
    """The image of this recipe, made on first use; `on_build` is told when that takes its minute.

    Whoever comes while another makes it waits and takes the same one. Raises EnvironmentLacks.
    """
    cache = lab_cache()
    final = cache / f"image-{recipe.key}"
    if not final.exists():
        with locked(cache / "image.lock"):
            if not final.exists():
                on_build()
                _build(recipe, final)
    return Image(final)
