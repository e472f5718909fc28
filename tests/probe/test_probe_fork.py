# SPDX-License-Identifier: Apache-2.0
"""A fork, its page-table copy and the end of its window, beside what the process itself measured."""

from __future__ import annotations

import time

import pytest
from tests.disturbance import Disturbance, Outcome, settle
from tests.probe.conftest import (
    CHILD_EXIT,
    FAULT,
    FORK,
    FORK_UNMEASURED,
    PAGE_TABLE_COPY,
    WINDOW_END,
    StartProbe,
    StartSnapshotter,
    assert_conserved,
    tell,
)

CLONE_VM = 0x100
PAGES_OF_512_MIB = 512 * 256
EXIT_STATUS = 7 << 8


def test_a_fork_of_512_mib(any_probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    """Being preempted between the process's two clock reads is no fault of the probe."""
    server = snapshotter(512)

    def attempt() -> list[Outcome]:
        probe = any_probe(server.pid)
        armed = probe.arm()
        disturbance = Disturbance(server.pid)
        forked = server.ask("fork 0")
        disturbed = disturbance.so_far_ns()
        said = probe.expect("fork")
        released = server.ask("release")
        ended = probe.expect("window_end")
        trailer = probe.stop()
        log = probe.log()
        assert_conserved(trailer, log)
        (fork,), (copy,) = log.of(FORK), log.of(PAGE_TABLE_COPY)
        (died,), (end,) = log.of(CHILD_EXIT), log.of(WINDOW_END)

        assert fork["tgid"] == fork["tid"] == server.pid
        assert fork["aux"] == said["child"] == ended["child"] == forked.value
        assert not int(fork["context"]) & CLONE_VM
        assert armed < forked.before <= fork["start"] == said["start_ns"]
        fork_end = fork["start"] + fork["duration"]
        assert fork_end <= forked.after
        assert copy["start"] >= fork["start"]
        assert copy["start"] + copy["duration"] <= fork_end
        assert copy["duration"] > fork["duration"] // 2
        # One table maps 512 pages; the rest of the process has a few more.
        assert PAGES_OF_512_MIB // 512 <= copy["context"] < PAGES_OF_512_MIB // 512 + 64

        assert (died["context"], died["tgid"], died["aux"]) == (forked.value, forked.value, EXIT_STATUS)
        assert released.before < died["start"] <= end["start"] == ended["t_ns"] < released.after
        assert (end["context"], end["tgid"]) == (forked.value, server.pid)

        own = forked.after - forked.before
        return [Outcome("fork, ns", abs(int(fork["duration"]) - own), max(own / 10, 50_000), disturbed)]

    settle(attempt)


def test_threads_are_no_forks(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(4)
    follower = probe(server.pid)
    follower.arm()
    for _ in range(20):
        server.ask("thread 1")
    forked = server.ask("fork 0")
    server.ask("release")
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    assert list(log.of(FORK)["aux"]) == [forked.value]
    assert trailer["unmatched"]["fork"] == 0


def test_armed_again_after_each_window(any_probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    probe = any_probe(server.pid)
    forked = []
    unwatched = []
    for _ in range(4):
        probe.arm()
        forked.append(server.ask("fork 0"))
        server.ask("touch 256")
        probe.expect("fork")
        server.ask("release")
        probe.expect("window_end")
        unwatched.append(server.ask("fork 0"))
        server.ask("touch 512")
        server.ask("release")
    trailer = probe.stop()
    log = probe.log()
    assert_conserved(trailer, log)
    windows = {answer.value for answer in forked}
    assert [child for child in log.of(FORK)["aux"] if child in windows] == [answer.value for answer in forked]
    assert len(log.faults_in(server.memory, 512)) == 4 * 256
    for fork in unwatched:
        faults = log.of(FAULT)["start"]
        assert not ((faults > fork.before) & (faults < fork.after)).any()


def test_no_faults_before_arming_nor_after_disarming(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    follower = probe(server.pid)
    server.ask("fork 0")
    server.ask("touch 100")
    server.ask("release")
    follower.arm()
    assert follower.process.stdin is not None
    follower.process.stdin.write(b"disarm\narm\ndisarm\n")
    follower.process.stdin.flush()
    # The second arm is answered once the first disarm is complete.
    follower.await_event("disarmed")
    follower.expect("armed")
    trailer = follower.stop()
    assert trailer["by_kind"]["fault"]["emitted"] == len(follower.log().faults_in(server.memory, 100)) == 0


NOT_MEMORY = "fexit,kprobe,percpu_alloc_percpu"
AVOIDED = ["", "raw_tp", "fexit", "fexit,kprobe", NOT_MEMORY, NOT_MEMORY + ",raw_tp"]


@pytest.mark.parametrize("avoid", AVOIDED)
def test_every_probe_sees_the_same_fork(avoid: str, probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(64)
    follower = probe(server.pid, *(["--avoid", avoid] if avoid else []))
    assert not set(follower.header["probes"]["fork"]["probe"].split(":")) & set(avoid.split(","))
    follower.arm()
    forked = server.ask("fork 0")
    server.ask("touch 1000")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    assert not any(trailer["unmatched"].values())
    (fork,) = log.of(FORK)
    assert forked.before <= fork["start"] < fork["start"] + fork["duration"] <= forked.after
    assert len(log.faults_in(server.memory, 1000)) == 1000


@pytest.mark.parametrize("avoid", AVOIDED)
def test_no_fork_is_silent(avoid: str, probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    """Before arming, in the window, two at once, after the window: each fork is measured, or said not to be."""
    server = snapshotter(16)
    follower = probe(server.pid, *(["--avoid", avoid] if avoid else []))
    always = follower.header["probes"]["fork"]["probe"].split(":")[0] not in ("raw_tp", "tp")
    forked = [server.ask("fork 0")]
    server.ask("release")
    follower.await_event("window_end")
    follower.arm()
    forked.append(server.ask("fork 0"))
    follower.await_event("fork")
    # What is attached for the fork alone is gone soon; a process that forks twice has two children at once.
    time.sleep(0.3)
    forked.append(server.ask("fork 0"))
    server.ask("release")
    server.ask("release-first")
    follower.await_event("disarmed")
    forked.append(server.ask("fork 0"))
    server.ask("release")
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    measured, unmeasured = log.of(FORK), log.of(FORK_UNMEASURED)
    children = [answer.value for answer in forked]
    assert sorted([*measured["aux"], *unmeasured["aux"]]) == sorted(children)
    assert list(measured["aux"]) == (children if always else children[1:2])
    for birth in unmeasured:
        (own,) = [answer for answer in forked if answer.value == birth["aux"]]
        assert own.before < birth["start"] < own.after
        assert (birth["duration"], birth["tgid"]) == (0, server.pid)
    assert sorted(log.of(WINDOW_END)["context"]) == sorted(children)


def test_what_keeps_it_armed_is_told(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(4)
    follower = probe(server.pid)
    before = time.monotonic_ns()
    tell(follower.process, "arm")
    armed = follower.expect("armed")
    assert before < armed["from_ns"] < armed["t_ns"] < time.monotonic_ns()
    server.ask("fork 0")
    server.ask("release")
    follower.expect("fork")
    ended = follower.expect("window_end")["t_ns"]
    assert ended < follower.expect("disarmed")["t_ns"] < time.monotonic_ns()
    follower.stop()
