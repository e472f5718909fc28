# SPDX-License-Identifier: Apache-2.0
"""Two sources to build from: the real one with the real patches, and a stand-in of a few files, built at once."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.run.conftest import Command, Start
from tests.run.conftest import start as start

from forktail.kernel.progress import Silence
from forktail.kernel.series import Series, read_series
from forktail.kernel.source import Source, find_source
from forktail.kernel.worktree import WorkTree

CONFIGS = Path(__file__).parents[2] / "kernel-configs" / "linux-6.1"

MAKEFILE = """
VERSION = 6
PATCHLEVEL = 1
SUBLEVEL = 999
olddefconfig:
	@:
bzImage:
	@mkdir -p $(O)/arch/x86/boot $(O)/include/config
	@echo "  CC      mm/memory.o"
	@$(CC) -c mm/memory.c -o $(O)/memory.o
	@cp $(O)/memory.o $(O)/vmlinux
	@cp $(O)/memory.o $(O)/arch/x86/boot/bzImage
	@echo 6.1.999-forktail-default$(LOCALVERSION) > $(O)/include/config/kernel.release
	@echo $(KBUILD_BUILD_VERSION) >> $(O)/../builds
bindeb-pkg: bzImage
	@rm -rf $(O)/package && mkdir -p $(O)/package/DEBIAN $(O)/package/boot
	@cp $(O)/arch/x86/boot/bzImage $(O)/package/boot/vmlinuz-6.1.999-forktail-default$(LOCALVERSION)
	@printf 'Package: linux-image-6.1.999-forktail-default$(LOCALVERSION)\\nVersion: $(KDEB_PKGVERSION)\\n' \
		> $(O)/package/DEBIAN/control
	@printf 'Architecture: amd64\\nMaintainer: $(DEBEMAIL)\\nDescription: a kernel\\n' >> $(O)/package/DEBIAN/control
	@dpkg-deb --root-owner-group -Z$(KDEB_COMPRESS) --build $(O)/package $(O)/..
	@touch $(O)/../linux-upstream_$(KDEB_PKGVERSION)_amd64.changes
	@touch $(O)/../linux-libc-dev_$(KDEB_PKGVERSION)_amd64.deb
"""

MERGE = """#!/bin/sh
shift 2
out=$1
shift
cat "$@" > "$out/.config"
"""

PATCH = """From: nobody
Subject: [PATCH] memory: another answer

---
diff --git a/mm/memory.c b/mm/memory.c
--- a/mm/memory.c
+++ b/mm/memory.c
@@ -1,4 +1,4 @@
 int memory(void)
 {
-	return 1;
+	return 2;
 }
diff --git a/mm/new.c b/mm/new.c
new file mode 100644
--- /dev/null
+++ b/mm/new.c
@@ -0,0 +1 @@
+int new;
"""


@pytest.fixture(scope="session")
def series() -> Series:
    return read_series(CONFIGS)


@pytest.fixture(scope="session")
def patched(series: Series, tmp_path_factory: pytest.TempPathFactory) -> WorkTree:
    """What Kconfig, checkpatch and the patches need of the real source, a thirtieth of its files, patched."""
    directory = tmp_path_factory.mktemp("kernel")
    tree = directory / "tree"
    # The directories by which checkpatch knows a kernel, whatever is in them.
    for name in ("Documentation", "arch", "drivers", "fs", "include", "init", "ipc", "kernel", "lib", "scripts"):
        (tree / name).mkdir(parents=True)
    whole = find_source(series, None, Silence())
    top = ["COPYING", "CREDITS", "Kbuild", "Kconfig", "MAINTAINERS", "Makefile", "README"]
    parts = ["*/Kconfig*", "scripts/*", "arch/x86/Makefile*", "arch/x86/configs/*", "include/linux/*.h"]
    # Not checked: the files that a patch makes are not in it.
    subprocess.run(
        ["tar", "--extract", f"--file={whole.path}", f"--directory={tree}", "--strip-components=1", "--wildcards"]
        + [f"linux-source-{series.version}/{part}" for part in [*top, *parts, *series.touched]],
        stderr=subprocess.DEVNULL,
    )
    work = WorkTree(directory / "work", Source(tree))
    work.prepare(series, Silence())
    return work


@dataclass
class StandIn:
    """A tree, a directory of configurations, and a cache, all of a test's own."""

    directory: Path
    begin: Start

    @property
    def tree(self) -> Path:
        return self.directory / "tree"

    @property
    def configs(self) -> Path:
        return self.directory / "configs"

    @property
    def patch(self) -> Path:
        return self.configs / "patches" / "0001-another-answer.patch"

    @property
    def kernels(self) -> Path:
        return self.directory / "cache" / "forktail" / "kernels"

    @property
    def work(self) -> Path:
        """The work tree's directory, once there is one."""
        (found,) = (self.kernels / "work").iterdir()
        return found

    @property
    def builds(self) -> list[str]:
        """The build ids that make has made, in their order."""
        return [line for path in self.kernels.glob("work/*/builds") for line in path.read_text().split()]

    def rule(self, recipe: str) -> None:
        """Make bzImage do something first."""
        makefile = self.tree / "Makefile"
        makefile.write_text(makefile.read_text().replace("bzImage:\n", f"bzImage:\n\t@{recipe}\n"))

    def start(self, *arguments: str | Path, **environment: str) -> Command:
        return self.begin("kernel", *arguments, **{"XDG_CACHE_HOME": str(self.directory / "cache")} | environment)

    def build(self, *arguments: str | Path, **environment: str) -> Command:
        return self.start("build", "--source", self.tree, "--configs", self.configs, *arguments, **environment)

    def packed(self, *arguments: str | Path) -> dict[str, str]:
        """Build a package to the end, and return it as JSON tells it."""
        code, output, errors = self.build("--deb", "--json", *arguments).finish()
        assert code == 0, errors
        (package,) = json.loads(output)["packages"]
        return dict(package)

    def built(self, *arguments: str | Path) -> dict[str, str]:
        """Build to the end, and return the kernel as JSON tells it."""
        code, output, errors = self.build("--json", *arguments).finish()
        assert code == 0, errors
        (kernel,) = json.loads(output)["kernels"]
        return dict(kernel)


@pytest.fixture
def stand_in(tmp_path: Path, start: Start) -> StandIn:
    made = StandIn(tmp_path.resolve(), start)
    for path, text in {
        made.tree / "Makefile": MAKEFILE,
        made.tree / "mm" / "memory.c": "int memory(void)\n{\n\treturn 1;\n}\n",
        made.tree / "mm" / "other.c": "int other;\n",
        made.tree / "defconfig": "CONFIG_DEFAULT=y\n",
        made.tree / "scripts" / "kconfig" / "merge_config.sh": MERGE,
        made.configs / "base.config": "CONFIG_BASE=y\n",
        made.configs / "default.config": "CONFIG_FLAVOUR=1\n",
        made.configs / "other.config": "CONFIG_FLAVOUR=2\n",
        made.configs / "debug.config": "CONFIG_DEBUG=y\n",
        made.configs / "races.config": "CONFIG_RACES=y\n",
        made.configs / "host.config": "CONFIG_HOST=y\n",
        made.configs / "source.toml": (
            'version = "6.1"\ndefconfig = "defconfig"\n'
            '[debian]\npackage = "forktail-no-such-package"\ntarball = "/nonexistent/linux.tar.xz"\n'
        ),
        made.patch: PATCH,
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (made.tree / "scripts" / "kconfig" / "merge_config.sh").chmod(0o755)
    return made
