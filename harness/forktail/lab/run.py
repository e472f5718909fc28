# SPDX-License-Identifier: Apache-2.0
"""A workload's run in a guest: the same `forktail run`, its directory brought back to the host."""

from __future__ import annotations

import fcntl
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from forktail import rundir
from forktail.errors import BadInput, EnvironmentLacks, ForktailError, RunFailed
from forktail.lab import registry
from forktail.lab.baggage import baggage, carry
from forktail.lab.guest import Guest
from forktail.lab.machine import Machine
from forktail.lab.outfit import fit_out
from forktail.lab.remote import CONNECTION_LOST, ssh_command
from forktail.measure.child import start_child
from forktail.measure.preflight import cpu_list, disk_needed, memory_needed
from forktail.units import format_size
from forktail.workload import Workload, workload_toml

_GUEST_OWN_BYTES = 256 * 2**20
"""What the guest's kernel, systemd and page cache take of its memory."""
_ENDS_WITHIN_S = 15.0
_ERROR = "forktail: "

# The harness holds standard input open as long as it lives: its end, however it came, ends the run in the guest.
# The directory goes back on standard output, so that one connection serves from the first byte to the last.
# It lies in memory: QEMU serves disk and timers under one lock, so that while a snapshot went to the emulated disk the
# generator woke milliseconds late (docs/lab.md).
_SCRIPT = """\
directory=$(mktemp -d /dev/shm/forktail-run.XXXXXX) || exit
cd "$directory" || exit
head -c {size} > {name}.toml
exec 3<&0
forktail run {name}.toml --no-report --out run </dev/null >/dev/null & run=$!
{{ cat <&3; kill $run; }} >/dev/null 2>&1 & watch=$!
wait $run; code=$?
kill $watch 2>/dev/null
mkdir -p run.partial
[ -d run ] || mv run.partial run
tar -c run
cd / && rm -r "$directory"
exit $code
"""


def memory_for(workload: Workload) -> int:
    """Bytes of memory that a guest must have to carry the workload and its run directory."""
    return memory_needed(workload) + disk_needed(workload) + _GUEST_OWN_BYTES


def fits(workload: Workload, machine: Machine) -> bool:
    """Whether the machine can carry the workload; see `check_fits`."""
    try:
        check_fits(workload, machine)
    except BadInput:
        return False
    return True


def check_fits(workload: Workload, machine: Machine) -> None:
    """BadInput when the machine lacks memory, CPUs or a network that the workload needs, before anything is booted.

    So is told, as EnvironmentLacks, when a program that the guests have to be given is not on this host.
    """
    _check_host(workload)
    _check_memory(workload, machine)
    _check_cpus(workload, machine)
    baggage(workload)


def _check_host(workload: Workload) -> None:
    if workload.load.host:
        raise BadInput(
            f"load.host is {workload.load.host}, but a guest of the lab reaches no other host: leave load.host empty, "
            "or use a lab host in an inventory (docs/ansible.md)."
        )


def _check_memory(workload: Workload, machine: Machine) -> None:
    needed = memory_for(workload)
    if needed > machine.memory_bytes:
        raise BadInput(
            f"server.size {format_size(workload.server.size)} needs a guest of {needed / 2**30:.1f} GiB, "
            f"and --memory is {format_size(machine.memory_bytes)}: raise it, or lower server.size."
        )


def _check_cpus(workload: Workload, machine: Machine) -> None:
    keys = {"server.cpus": cpu_list(workload), "load.cpu": {workload.load.cpu} - {-1}}
    lacking = {key: cpus for key, cpus in keys.items() if any(cpu >= machine.cpus for cpu in cpus)}
    if not lacking:
        return
    named = " and ".join(f"{key} names CPU {max(cpus)}" for key, cpus in lacking.items())
    if machine.icount and machine.cpus == 1:
        free = {"server.cpus": "--set server.cpus=", "load.cpu": "--set load.cpu=-1 --set load.realtime=false"}
        raise BadInput(
            f"{named}, but a guest with --icount has CPU 0 alone: give {' '.join(free[key] for key in lacking)}, "
            "or --cpus."
        )
    raise BadInput(f"{named}, but the guest has {machine.cpus} of them, from 0: raise --cpus, or pin others.")


@contextmanager
def sole_run(guest: Guest) -> Iterator[None]:
    """Have a guest of `lab up` for one run alone, fitted out as this checkout is now.

    Raises BadInput while another run is at work in it.
    """
    with registry.run_lock_path(guest.name).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"The guest of {guest.name} is at work on another run: wait for its end.") from error
        fit_out(guest)
        yield


class _Words(threading.Thread):
    """What the run says on standard error: progress is passed on, the error is kept to be raised."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self.error = ""

    def run(self) -> None:
        for line in self._stream:
            text = line.decode(errors="replace")
            if self.error or text.startswith(_ERROR):
                self.error += text.removeprefix(_ERROR)
            else:
                sys.stderr.write(text)
                sys.stderr.flush()


def run_in(guest: Guest, workload: Workload, final: Path) -> Path:
    """Run the workload in the guest; `final` becomes the whole run directory, and is returned.

    A run that fails leaves what there was of it with the suffix `.partial`, as on this host.
    """
    workload = carry(guest, workload)
    partial = rundir.begin(final)
    text = workload_toml(workload).encode()
    script = _SCRIPT.format(size=len(text), name=shlex.quote(workload.name))
    ssh = start_child([*ssh_command(guest), script], stdin=subprocess.PIPE)
    assert ssh.stdin is not None
    assert ssh.stdout is not None
    assert ssh.stderr is not None
    words = _Words(ssh.stderr)
    words.start()
    unpack = start_child(
        ["tar", "-x", "--no-same-owner", "--strip-components=1", "-C", partial],
        stdin=ssh.stdout,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    ssh.stdout.close()
    try:
        with suppress(BrokenPipeError):
            ssh.stdin.write(text)
            ssh.stdin.flush()
        code = ssh.wait()
        unpacked = unpack.wait()
    finally:
        with suppress(BrokenPipeError):
            ssh.stdin.close()
        for process in (ssh, unpack):
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        words.join()
        ssh.stderr.close()
    if code != 0:
        if not any(partial.iterdir()):
            partial.rmdir()
        raise _failure(guest, code, words.error.strip())
    if unpacked != 0:
        raise RunFailed(f"The run directory did not come back whole: see {partial}.")
    return partial.rename(final)


def _failure(guest: Guest, code: int, words: str) -> ForktailError:
    if code == CONNECTION_LOST or not guest.alive():
        return RunFailed(f"The guest of {guest.name} was lost during the run: {guest.last_words()}")
    kinds: dict[int, type[ForktailError]] = {2: BadInput, 3: EnvironmentLacks}
    sentence = words or f"The run in the guest ended with exit code {code} and without a word."
    return kinds.get(code, RunFailed)(sentence)
