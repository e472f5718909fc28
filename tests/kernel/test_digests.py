# SPDX-License-Identifier: Apache-2.0
"""Redis' own digest of its data at the instant of a snapshot, and the one of the RDB that the snapshot wrote.

FORKTAIL_DIGESTS says how many snapshots of each kernel are compared, 100 by `make digests`; else it is 3 of one
kernel. What was found is added to the file that FORKTAIL_DIGESTS_REPORT names, if it does.
"""

from __future__ import annotations

import json
import os
import statistics
from contextlib import ExitStack
from pathlib import Path

import pytest

from forktail.errors import BadInput, EnvironmentLacks
from forktail.lab.boot import guest_for_one_command
from forktail.lab.kernel import find_kernel
from forktail.lab.machine import Machine
from forktail.lab.remote import ssh_command
from forktail.measure.child import start_child

_ALL = "FORKTAIL_DIGESTS" in os.environ
_ROUNDS = int(os.environ.get("FORKTAIL_DIGESTS", "3"))
_ROUND_SECONDS = 60
_BEGIN_SECONDS = 600
_SCRIPT = Path(__file__).with_name("digest.py")
_KERNELS = [("default", 0), ("odf", 1), ("async-fork", 1), ("async-fork", 4)]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root")


@pytest.mark.parametrize(("flavour", "threads"), _KERNELS, ids=[f"{name}-{threads}" for name, threads in _KERNELS])
def test_snapshot_is_of_its_instant(flavour: str, threads: int, tmp_path: Path) -> None:
    if not _ALL and (flavour, threads) != _KERNELS[-1]:
        pytest.skip("it takes minutes a kernel: `make digests`")
    try:
        kernel = find_kernel(flavour)
    except (BadInput, EnvironmentLacks) as error:
        pytest.skip(str(error))
    found = tmp_path / "rounds"
    with ExitStack() as stack:
        guest = stack.enter_context(guest_for_one_command(kernel, Machine(memory_bytes=2 * 2**30), print))
        ssh = stack.enter_context(
            start_child(
                [*ssh_command(guest), f"python3 - {flavour} {threads} {_ROUNDS}"],
                stdin=stack.enter_context(_SCRIPT.open("rb")),
                stdout=stack.enter_context(found.open("wb")),
            )
        )
        stack.callback(ssh.kill)
        _, words = ssh.communicate(timeout=_BEGIN_SECONDS + _ROUNDS * _ROUND_SECONDS)
    rounds = [json.loads(line) for line in found.read_text().splitlines()]
    if path := os.environ.get("FORKTAIL_DIGESTS_REPORT"):
        rates = [one["writes_per_s"] for one in rounds] or [0]
        copied = [one["copied_by_parent"] for one in rounds] or [0]
        with Path(path).open("a") as file:
            print(
                f"{flavour} {threads}: {sum(one['equal'] for one in rounds)} of {len(rounds)} equal, "
                f"{sum(one['moved_on'] for one in rounds)} after which the server held something else, "
                f"{statistics.mean(rates):.0f} writes/s, {statistics.mean(copied):.1f} tables copied by the parent "
                f"after fork() ({min(copied)} to {max(copied)})",
                file=file,
            )
    assert [one for one in rounds if not one["equal"]] == []
    assert ssh.returncode == 0, words
    assert len(rounds) == _ROUNDS
    # Else the digests would be equal whatever fork() did.
    assert sum(one["moved_on"] for one in rounds) == _ROUNDS
    if threads:
        assert sum(one["copied_by_parent"] for one in rounds) > 0
