# SPDX-License-Identifier: Apache-2.0
"""A guest that GRUB boots, as it boots a host: one-shot entries, fallback, panic, and kexec."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.playbooks.conftest import PLAYBOOKS, Ansible, whole

from forktail.kernel import cache
from forktail.lab.accelerator import find_accelerator
from forktail.lab.boot import wait_until_up
from forktail.lab.guest import Guest, Seat, start_guest, start_ticks
from forktail.lab.image import find_or_build
from forktail.lab.kernel import build_of, find_kernel
from forktail.lab.machine import Machine, qemu_command
from forktail.lab.recipe import recipe
from forktail.lab.remote import ssh_options, tell
from forktail.measure.server import free_port

MODULES = Path("/usr/lib/grub/i386-pc")

pytestmark = [
    whole,
    pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root"),
    pytest.mark.skipif(cache.find("odf") is None, reason="not built yet: forktail kernel build all"),
    pytest.mark.skipif(not MODULES.exists(), reason="no GRUB to boot a guest with: apt-get install grub-pc-bin"),
    pytest.mark.skipif(not shutil.which("grub-mkimage"), reason="no GRUB to boot: apt-get install grub-common"),
]

MACHINE = Machine(memory_bytes=1024 * 2**20)
PLAY_S = 1800
DEFAULTS = """\
GRUB_DEFAULT=saved
GRUB_TIMEOUT=1
GRUB_TERMINAL=serial
GRUB_GFXPAYLOAD_LINUX=text
GRUB_DISABLE_LINUX_UUID=true
GRUB_CMDLINE_LINUX="rw console=ttyS0 clocksource=tsc tsc=reliable net.ifnames=0 systemd.show_status=false"
"""
CORE = ("biosdisk", "ext2", "normal", "configfile", "search", "search_fs_uuid", "linux", "test", "loadenv", "echo",
        "reboot", "sleep", "true", "regexp", "gzio", "minicmd", "serial", "terminal")  # fmt: skip


def _loader(directory: Path) -> Path:
    """A disk with GRUB alone: the boot sector, and behind it the core that reads the menu on the guest's disk."""
    core, disk = directory / "core.img", directory / "loader.img"
    subprocess.run(["grub-mkimage", "-O", "i386-pc", "-p", "(hd1)/boot/grub", "-o", core, *CORE], check=True)
    disk.write_bytes((MODULES / "boot.img").read_bytes() + core.read_bytes())
    os.truncate(disk, 4 * 2**20)
    return disk


def _by_grub(command: list[str], loader: Path) -> list[str]:
    """QEMU's command for a guest that boots from the loader's disk, and may boot again."""
    for option in ("-kernel", "-append"):
        place = command.index(option)
        del command[place : place + 2]
    command.remove("-no-reboot")
    place = command.index("virtio-blk-pci,drive=disk")
    command[place] += ",bootindex=1"
    return [
        *command,
        "-drive", f"file={loader},if=none,id=loader,format=raw",
        "-device", "virtio-blk-pci,drive=loader,bootindex=0",
    ]  # fmt: skip


def _settle(guest: Guest, flavours: list[str]) -> None:
    """Put kernels and records into the guest as provision.yml does, and have GRUB's menu written."""
    for flavour in ["default", *flavours]:
        kernel = find_kernel(flavour)
        tell(guest, f"cat >/boot/vmlinuz-{kernel.release}", kernel.image.read_bytes(), 300)
    stock = find_kernel("default").release
    installed = [
        {
            "flavour": flavour,
            "release": find_kernel(flavour).release,
            "build_id": build_of(find_kernel(flavour).image)[1:],
        }
        for flavour in flavours
    ]
    record = {"schema": "forktail.kernels/1", "kernels": installed}
    script = f"""set -e
mkdir -p /boot/grub /var/lib/forktail /etc/default/grub.d
printf %s {shlex.quote(DEFAULTS)} >/etc/default/grub
grub-mkconfig -o /boot/grub/grub.cfg
submenu=$(grep -oE 'gnulinux-advanced-[^"'"'"' ]+' /boot/grub/grub.cfg | head -n 1)
entry=$(grep -oE 'gnulinux-{stock}-advanced-[^"'"'"' ]+' /boot/grub/grub.cfg | head -n 1)
grub-editenv /boot/grub/grubenv create
grub-set-default "$submenu>$entry"
printf '{{"schema": "forktail.grub/1",\n"pinned_entry": "%s>%s",\n"pinned_release": "%s"}}\n' \
    "$submenu" "$entry" {stock} >/var/lib/forktail/grub-prior.json
printf %s {shlex.quote(json.dumps(record))} >/var/lib/forktail/kernels.json
sync; echo u >/proc/sysrq-trigger
"""
    tell(guest, script, b"", 300)


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """The guest after GRUB has booted its stock kernel, which is our default one."""
    directory = tmp_path_factory.mktemp("grub")
    wanted = recipe()
    image = find_or_build(replace(wanted, packages=(*wanted.packages, "grub2-common", "kexec-tools")), lambda: None)
    stock = find_kernel("default")
    accelerator = find_accelerator(stock.image)
    disk, loader = directory / "disk.img", _loader(directory)
    subprocess.run(["cp", "--sparse=always", image.disk, disk], check=True)
    started: list[Guest] = []
    try:
        first = start_guest(
            stock, MACHINE, accelerator, image, directory / "first", dies_with_us=True, on_start=started.append,
            seat=Seat("grub", disk, free_port()),
        )  # fmt: skip
        wait_until_up(first, guests=3)
        _settle(first, ["odf", "async-fork"])
        first.end()
        port = free_port()
        command = _by_grub(qemu_command(MACHINE, accelerator, stock.image, disk, port, keeps_disk=True), loader)
        console = directory / "console"
        with console.open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        ticks = start_ticks(process.pid)
        assert ticks is not None
        second = Guest("grub", stock, MACHINE, accelerator, image, process.pid, ticks, port, console)
        started.append(second)
        wait_until_up(second, guests=3)
        yield second
    finally:
        for one in started:
            one.end()


def _switch(ansible: Ansible, guest: Guest, directory: Path, method: str, **given: Any) -> tuple[dict[str, str], str]:
    """What became of each kernel, and the release that the host came home to."""
    variables = given | {
        "ansible_host": "127.0.0.1",
        "ansible_port": guest.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(guest.image.key),
        "ansible_ssh_common_args": shlex.join(ssh_options(guest.image)),
        "ansible_python_interpreter": "/usr/bin/python3",
        "forktail_boot_method": method,
        "forktail_controller": "/nonexistent",
        "told": str(directory / "told.json"),
    }
    play = ansible(
        "ansible-playbook", "-i", "grub,", "tests/playbooks/switch.yml", "-e", json.dumps(variables),
        ANSIBLE_ROLES_PATH=str(PLAYBOOKS / "roles"),
    )  # fmt: skip
    code, output = play.finish(PLAY_S)
    assert code == 0, output
    told = json.loads((directory / "told.json").read_text())
    return told["kernels"], told["home"]["release"]


def _release(flavour: str) -> str:
    return find_kernel(flavour).release


def test_grub_boots_each_kernel_once_and_a_panic_ends_at_home(ansible: Ansible, guest: Guest, tmp_path: Path) -> None:
    # Written into the one-shot entry after it was looked at: a kernel that cannot find its init panics.
    sabotage = {"odf": r"sed -i '/vmlinuz-[^ ]*-odf /s|$| init=/nowhere|' /boot/grub/grub.cfg"}
    became, home = _switch(ansible, guest, tmp_path, "grub", kernels=["async-fork", "odf"], sabotage=sabotage)
    assert became["async-fork"] == _release("async-fork")
    assert f"was to boot {_release('odf')}" in became["odf"]
    assert f"and runs {_release('default')}" in became["odf"]
    assert home == _release("default")


def test_grub_falls_back_where_the_kernel_is_gone(ansible: Ansible, guest: Guest, tmp_path: Path) -> None:
    sabotage = {"odf": f"mv /boot/vmlinuz-{_release('odf')} /boot/gone"}
    try:
        became, home = _switch(ansible, guest, tmp_path, "grub", kernels=["odf"], sabotage=sabotage)
    finally:
        tell(guest, f"mv /boot/gone /boot/vmlinuz-{_release('odf')}; update-grub", b"", 300)
    assert f"and runs {_release('default')}" in became["odf"]
    assert home == _release("default")


def test_kexec(ansible: Ansible, guest: Guest, tmp_path: Path) -> None:
    became, home = _switch(ansible, guest, tmp_path, "kexec", kernels=["odf", "async-fork"])
    assert became == {flavour: _release(flavour) for flavour in ("odf", "async-fork")}
    assert home == _release("default")


def test_a_kernel_that_is_not_installed_is_told_before_anything_is_changed(
    ansible: Ansible, guest: Guest, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match="the kernel default is not installed"):
        _switch(ansible, guest, tmp_path, "grub", kernels=["odf", "default"])
