# SPDX-License-Identifier: Apache-2.0
"""The part of GRUB's menu that falls back to the stock kernel: its entry once more, as the first one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.playbooks.conftest import PLAYBOOKS

SCRIPT = PLAYBOOKS / "roles/kernel_switch/files/08_forktail"
ID = "gnulinux-6.1.0-40-amd64-advanced-1234"
MENU = f"""\
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1234' {{
\tlinux /boot/vmlinuz-6.1.192-forktail-odf root=UUID=1234 ro
}}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1234' {{
\tmenuentry 'Linux 6.1.192-forktail-odf' $menuentry_id_option 'gnulinux-6.1.192-forktail-odf-advanced-1234' {{
\t\tlinux /boot/vmlinuz-6.1.192-forktail-odf root=UUID=1234 ro
\t}}
\tmenuentry 'Debian, with Linux 6.1.0-40-amd64' --class debian $menuentry_id_option '{ID}' {{
\t\tinsmod ext2
\t\tif [ x$feature_platform_search_hint = xy ]; then
\t\t  search --no-floppy --fs-uuid --set=root 1234
\t\tfi
\t\tlinux /boot/vmlinuz-6.1.0-40-amd64 root=UUID=1234 ro quiet
\t\tinitrd /boot/initrd.img-6.1.0-40-amd64
\t}}
\tmenuentry 'Linux 6.1.0-40-amd64 (recovery)' $menuentry_id_option 'gnulinux-6.1.0-40-amd64-recovery-1234' {{
\t\tlinux /boot/vmlinuz-6.1.0-40-amd64 root=UUID=1234 ro single
\t}}
}}
"""


def _written(directory: Path, menu: str, pinned: str) -> str:
    (directory / "grub.cfg").write_text(menu)
    (directory / "grub-prior.json").write_text(json.dumps({"pinned_entry": pinned}, indent=4))
    places = {
        "FORKTAIL_GRUB_MENU": str(directory / "grub.cfg"),
        "FORKTAIL_GRUB_PRIOR": str(directory / "grub-prior.json"),
    }
    return subprocess.run([SCRIPT], env=os.environ | places, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("pinned", [f"gnulinux-advanced-1234>{ID}", ID])
def test_the_stock_kernel_comes_first_and_is_what_a_failure_falls_back_to(tmp_path: Path, pinned: str) -> None:
    written = _written(tmp_path, MENU, pinned)
    lines = written.splitlines()
    assert lines[0].startswith("menuentry ")
    assert "--id forktail-stock" in lines[0]
    assert [line.split()[1] for line in lines if line.split()[0] in ("linux", "initrd")] == [
        "/boot/vmlinuz-6.1.0-40-amd64",
        "/boot/initrd.img-6.1.0-40-amd64",
    ]
    assert "single" not in written
    assert lines[-2:] == ["}", "set fallback=0"]
    if shutil.which("grub-script-check"):
        subprocess.run(["grub-script-check"], input=written, check=True, text=True)


def test_a_menu_written_twice_is_the_same(tmp_path: Path) -> None:
    once = _written(tmp_path, MENU, ID)
    assert _written(tmp_path, once + MENU, ID) == once


@pytest.mark.parametrize("pinned", ["", "gnulinux-5.10-advanced-1234"])
def test_a_stock_kernel_that_is_not_in_the_menu_is_not_made_up(tmp_path: Path, pinned: str) -> None:
    assert _written(tmp_path, MENU, pinned) == ""
