# SPDX-License-Identifier: Apache-2.0
"""The work tree: a copy of the base source with the series applied, kept from build to build.

A file is written only where its content changes, so that make compiles again what a changed patch touches and no more.
"""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import subprocess
from pathlib import Path

from forktail.errors import BadInput
from forktail.kernel.process import failed, run
from forktail.kernel.progress import Progress
from forktail.kernel.series import Series, with_checks
from forktail.kernel.source import Source


def kernel_version(tree: Path) -> str | None:
    """`6.1.192` of a tree; None where it is no kernel."""
    try:
        fields = dict(
            re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", (tree / "Makefile").read_text(), re.MULTILINE)
        )
        return f"{fields['VERSION']}.{fields['PATCHLEVEL']}.{fields['SUBLEVEL']}"
    except (OSError, KeyError):
        return None


def _apply(patch: Path, directory: Path) -> None:
    command = ["patch", "--strip=1", "--batch", "--forward", "--no-backup-if-mismatch", f"--input={patch.resolve()}"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode == 0:
        return
    if match := re.search(r"^can't find file to patch .*?\|\+\+\+ b/(\S+)", done.stdout, re.MULTILINE | re.DOTALL):
        raise BadInput(f"{patch.name} does not apply: this source has no {match[1]}.")
    if match := re.search(
        r"^patching file (\S+)\n(?:(?!patching).*\n)*?(Hunk #\d+ FAILED at \d+)", done.stdout, re.MULTILINE
    ):
        raise BadInput(f"{patch.name} does not apply: {match[2]} of {match[1]}. Renew it against this source.")
    words = (done.stdout + done.stderr).strip().splitlines()
    raise BadInput(f"{patch.name} does not apply: {words[-1] if words else 'patch says nothing'}.")


class WorkTree:
    """The patched copy of one base source, and beside it the build trees of its flavours."""

    def __init__(self, directory: Path, source: Source) -> None:
        self.directory = directory
        self.source = source
        self.tree = directory / "linux"
        self._pristine = source.path if source.is_tree else directory / "pristine"
        self._record = directory / "patched.json"

    def build_directory(self, checks: str | None) -> Path:
        """Flavours share a build tree, for few files know them apart; what checks them reaches every file."""
        return self.directory / with_checks("build", checks)

    def prepare(self, series: Series, progress: Progress) -> None:
        """Bring the tree to exactly the base source and the patches of the series."""
        files = series.touched
        former = set(json.loads(self._record.read_text())) if self._record.exists() else set()
        if self.source.is_tree:
            progress.begin("copy the source")
            self._check_version(self.source.path, series)
            self._synchronise(files | former)
        elif not self.tree.exists():
            progress.begin("unpack the source")
            self._unpack(series)
        progress.begin(f"apply the patches ({len(series.patches)})")
        self._patch(series.patches, files, former)

    def _check_version(self, tree: Path, series: Series) -> None:
        version = kernel_version(tree)
        if version is None:
            raise BadInput(
                f"{self.source.path} is no kernel source: give a tarball or a tree of Linux {series.version}."
            )
        if not version.startswith(f"{series.version}."):
            raise BadInput(f"{self.source.path} is Linux {version}, and the patches are for {series.version}.")
        if (tree / ".config").exists():
            raise BadInput(f"{tree} was built in place: run `make mrproper` in it.")

    def _unpack(self, series: Series) -> None:
        partial = self.directory / "linux.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        run(
            ["tar", "--extract", "--strip-components=1", f"--directory={partial}", f"--file={self.source.path}"],
            lambda words: BadInput(f"{self.source.path} is no tarball of a kernel ({words})."),
        )
        self._check_version(partial, series)
        partial.rename(self.tree)

    def _synchronise(self, except_for: set[str]) -> None:
        self.tree.mkdir(parents=True, exist_ok=True)
        excluded = [f"--exclude=/{name}" for name in sorted(except_for)]
        run(
            ["rsync", "--archive", "--delete", "--exclude=.git", *excluded, f"{self.source.path}/", f"{self.tree}/"],
            failed(f"Copying {self.source.path}"),
        )

    def _keep_pristine(self, files: set[str]) -> None:
        for name in files:
            if (self.tree / name).exists():
                (self._pristine / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.tree / name, self._pristine / name)

    def _patch(self, patches: list[Path], files: set[str], former: set[str]) -> None:
        if not self.source.is_tree:
            self._keep_pristine(files - former)
        # Before the tree is touched: a build that is cut short here must still know what was the base's.
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps(sorted(files | former)))
        fresh.replace(self._record)
        staged = self.directory / "staged"
        shutil.rmtree(staged, ignore_errors=True)
        for name in files | former:
            if (self._pristine / name).exists():
                (staged / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._pristine / name, staged / name)
        staged.mkdir(exist_ok=True)
        for patch in patches:
            _apply(patch, staged)
        for name in files | former:
            self._install(staged / name, self.tree / name)

    def _install(self, staged: Path, target: Path) -> None:
        if not staged.exists():
            target.unlink(missing_ok=True)
        elif not target.exists() or not filecmp.cmp(staged, target, shallow=False):
            target.parent.mkdir(parents=True, exist_ok=True)
            # copyfile gives the file the time of now, which is what make goes by.
            shutil.copyfile(staged, target)
            shutil.copymode(staged, target)
