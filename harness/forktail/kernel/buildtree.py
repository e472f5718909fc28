# SPDX-License-Identifier: Apache-2.0
"""A build tree: where make compiles the kernel of one configuration after another."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from forktail.errors import RunFailed
from forktail.kernel.options import check_survived
from forktail.kernel.process import failed, run
from forktail.kernel.progress import Progress

_STEP = re.compile(r"^  (?:CC|AS|AR|LD|GEN|HOSTCC)\b")
_FULL_BUILD_STEPS = 2_330


class BuildTree:
    """One directory given to make as O=.

    `log` takes all that make says, `build_id` is what `uname -v` begins with, `watched` are the only objects whose
    accesses KCSAN looks at where the configuration has it.
    """

    def __init__(
        self, tree: Path, directory: Path, log: Path, build_id: str, suffix: str, watched: Sequence[str] = ()
    ) -> None:
        self.tree = tree
        self.directory = directory
        self.log = log
        self._build_id = build_id
        self._suffix = suffix
        self._watched = watched

    def configure(self, defconfig: Path, fragments: Sequence[Path]) -> None:
        """Lay the fragments over a whole configuration; BadInput when an option of theirs does not survive."""
        self.directory.mkdir(parents=True, exist_ok=True)
        merge = self.tree / "scripts" / "kconfig" / "merge_config.sh"
        with self.log.open("w", buffering=1) as log:
            run([merge, "-m", "-O", self.directory, defconfig, *fragments], failed("merge_config.sh"), log)
            run(self._make("olddefconfig"), failed("Configuring the kernel"), log)
        check_survived(fragments, self.directory / ".config")

    def compile(self, name: str, progress: Progress) -> None:
        """Make the image; RunFailed with the compiler's telling lines and the path of the log."""
        fresh = not (self.directory / "vmlinux.o").exists()
        self._run(name, ["bzImage"], progress, _FULL_BUILD_STEPS if fresh else None)

    def package(self, name: str, version: str, progress: Progress) -> None:
        """Make the image, its modules and their Debian packages, beside the build tree; RunFailed as of `compile`."""
        targets = [f"KDEB_PKGVERSION={version}", "KDEB_COMPRESS=zstd", "INSTALL_MOD_STRIP=1", "bindeb-pkg"]
        # From an address given nobody asks the host for its name, which may be unknown to itself.
        self._run(name, targets, progress, None, {"DEBEMAIL": "forktail <forktail@localhost>"})

    def _run(
        self,
        name: str,
        targets: Sequence[str],
        progress: Progress,
        total: int | None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        progress.begin(f"compile {name}", total)
        steps = 0

        def count(line: str) -> None:
            nonlocal steps
            if _STEP.match(line):
                steps += 1
                progress.advance(steps)

        def failure(words: str) -> RunFailed:
            return RunFailed(f"{name} did not compile: {words}. The whole log: {self.log}")

        with self.log.open("a", buffering=1) as log:
            run(self._make(*targets), failure, log, count, self._ccache() | dict(variables or {}))

    def release(self) -> str:
        """What `uname -r` will say."""
        return (self.directory / "include" / "config" / "kernel.release").read_text().strip()

    def _ccache(self) -> dict[str, str]:
        """Paths relative to the work tree's directory, so that the next point release finds what did not change."""
        return {"CCACHE_BASEDIR": str(self.directory.parent), "CCACHE_NOHASHDIR": "1"}

    def _make(self, *targets: str) -> list[str | Path]:
        return [
            "make",
            f"--directory={self.tree}",
            f"O={self.directory}",
            f"--jobs={len(os.sched_getaffinity(0))}",
            "CC=ccache gcc",
            f"LOCALVERSION={self._suffix}",
            *([f"KCSAN_SANITIZE=$(if $(filter {' '.join(self._watched)},$@),y,n)"] if self._watched else []),
            # Who built it, when and how often would make every build of the same inputs another kernel.
            f"KBUILD_BUILD_VERSION={self._build_id}",
            "KBUILD_BUILD_TIMESTAMP=1970-01-01",
            "KBUILD_BUILD_USER=forktail",
            "KBUILD_BUILD_HOST=forktail",
            *targets,
        ]
