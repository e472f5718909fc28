# SPDX-License-Identifier: Apache-2.0
"""A simulated first-come-first-served server whose stalls are known, and what each of them truly cost every query.

The server takes time for nothing while it is paused. So its queue is an ordinary one in the time that it has to itself
("own time"), and a pause is put back afterwards. The truth about a cause is a counterfactual: the same arrivals with
the same service times, served once with the cause and once without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from tests.analysis.synthetic import FAULT, FORK, ORIGIN, RUN_QUEUE, Event

Int64 = npt.NDArray[np.int64]

US, MS, S = 1_000, 1_000_000, 1_000_000_000
UNSEEN = 0
"""The kind of a pause that leaves no event."""
KINDS = {"fork": FORK, "run_queue": RUN_QUEUE, "cow_fault": FAULT}


@dataclass(frozen=True)
class Pause:
    """A time in which no thread of the server serves; `kind` is that of its event, or UNSEEN."""

    start: int
    length: int
    kind: int = UNSEEN


@dataclass(frozen=True)
class Scenario:
    """A load and a server; times in ns, from ORIGIN on."""

    intended: Int64
    service: Int64
    """The time that each query takes to serve."""
    pauses: tuple[Pause, ...] = ()
    """Disjoint, ascending."""
    faults: Int64 | None = None
    """How much longer each query takes because it faults; 0 for most."""
    stops: tuple[tuple[int, int], ...] = ()
    """When the generator stopped, and for how long: what was due is sent at the end of it."""
    batches: bool = False
    """Whether the server reads all that has arrived and writes all replies when it has served them, as Redis does."""
    write_ns: int = 0
    """How much of the service time of a batch's query is spent on writing its reply, after all have been served."""
    servers: int = 1
    transit: Int64 | None = None
    """The time that each query and its reply are on their way, in all."""
    servers_of_pause: dict[int, int] = field(default_factory=dict)
    """The one server that a pause stops, by the start of the pause; those that are absent stop all."""

    def sent(self) -> Int64:
        sent = self.intended.copy()
        for start, length in self.stops:
            sent[(sent >= start) & (sent < start + length)] = start + length
        return sent

    def run(self) -> tuple[Int64, list[Event]]:
        """When each query is completed, and what a probe would record."""
        sent, completed = self.sent(), np.empty_like(self.intended)
        faults = np.zeros_like(self.service) if self.faults is None else self.faults
        events = [Event(one.kind, one.start, one.length, aux=1) for one in self.pauses if one.kind != UNSEEN]
        for server in range(self.servers):
            mine = np.arange(len(sent)) % self.servers == server
            pauses = [one for one in self.pauses if self.servers_of_pause.get(one.start, server) == server]
            starts = np.array([one.start for one in pauses], dtype=np.int64)
            lengths = np.array([one.length for one in pauses], dtype=np.int64)
            served, wrote = self._serve(_own_time(sent[mine], starts, lengths), (self.service + faults)[mine])
            completed[mine] = _real_time(wrote, starts, lengths, "left")
            begun = _real_time(served - faults[mine], starts, lengths, "right")
            events += [
                Event(FAULT, int(start), int(length), aux=3)
                for start, length in zip(begun, faults[mine], strict=True)
                if length
            ]
        if self.transit is not None:
            completed += self.transit
        return completed, events

    def _serve(self, arrived: Int64, service: Int64) -> tuple[Int64, Int64]:
        """When each query is served, and when its reply is written, in own time."""
        if not self.batches:
            work = np.cumsum(service)
            served = work + np.maximum.accumulate(arrived - (work - service))
            return served, served
        served, wrote = np.empty_like(arrived), np.empty_like(arrived)
        now, first = 0, 0
        while first < len(arrived):
            now = max(now, int(arrived[first]))
            last = int(np.searchsorted(arrived, now, side="right"))
            served[first:last] = now + np.cumsum(service[first:last] - self.write_ns)
            wrote[first:last] = served[last - 1] + np.arange(1, last - first + 1) * self.write_ns
            now, first = int(wrote[last - 1]), last
        return served, wrote

    def without(self, *, known: bool = False, unseen: bool = False, stops: bool = False) -> Scenario:
        """The same scenario without the named causes."""
        kept = tuple(one for one in self.pauses if not (unseen if one.kind == UNSEEN else known))
        return replace(
            self,
            pauses=kept,
            faults=None if known else self.faults,
            stops=() if stops else self.stops,
        )


def _own_time(times: Int64, starts: Int64, lengths: Int64) -> Int64:
    paused = np.concatenate(([0], np.cumsum(lengths)))
    place = np.searchsorted(starts, times, side="right")
    if not len(starts):
        return times
    last = np.maximum(place - 1, 0)
    inside = np.where(place > 0, np.maximum(starts[last] + lengths[last] - times, 0), 0)
    return times - paused[place] + inside


def _real_time(own: Int64, starts: Int64, lengths: Int64, side: str) -> Int64:
    paused = np.concatenate(([0], np.cumsum(lengths)))
    found: Int64 = own + paused[np.searchsorted(starts - paused[:-1], own, side=side)]  # type: ignore[call-overload]
    return found


def constant(rate: float, seconds: float) -> Int64:
    return ORIGIN + (np.arange(round(rate * seconds)) * (S / rate)).astype(np.int64)


def poisson(rate: float, seconds: float, seed: int) -> Int64:
    gaps = np.random.default_rng(seed).exponential(S / rate, round(rate * seconds))
    return ORIGIN + np.cumsum(gaps).astype(np.int64)


def fixed(count: int, service_ns: float) -> Int64:
    return np.full(count, round(service_ns), dtype=np.int64)


def exponential(count: int, service_ns: float, seed: int) -> Int64:
    return np.maximum(np.random.default_rng(seed).exponential(service_ns, count), 1).astype(np.int64)


def some_faults(count: int, length_ns: int, share: float, since: int, seed: int) -> Int64:
    """Faults of about `length_ns` in a share of the queries from number `since` on."""
    random = np.random.default_rng(seed)
    lengths = random.integers(length_ns // 5, length_ns * 9 // 5, count)
    faults: Int64 = np.where((random.random(count) < share) & (np.arange(count) >= since), lengths, 0)
    return faults


def pauses(*of: Iterable[int]) -> tuple[Pause, ...]:
    """Pauses of (start after ORIGIN, length, kind)."""
    return tuple(Pause(ORIGIN + start, length, kind) for start, length, kind in of)
