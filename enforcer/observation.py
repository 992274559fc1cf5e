"""One look at the node for the plan: the exporter's own sources and joins, and the levels of control groups.

It reads and changes nothing. The exporter beside it reads the same things again by itself, so that a mistake made here
shows there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from enforcer.model import Records, Seen
from enforcer.observed import levels_wanted, seen
from enforcer.wanted import Wanted, wanted
from exporter.clock import Clock
from exporter.errors import Failure
from exporter.model import ContainerRef, MpsDaemon, Snapshot
from exporter.readings import Readings
from exporter.sampler import Sampler
from exporter.sources.container_cgroups import ContainerCgroups
from exporter.sources.memory_limits import MemoryLimits
from exporter.sources.procfs import evidence

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Observation:
    """What is wanted and what is there, at one time. `memory` says why control groups could not be read, if so."""

    wanted: Wanted
    seen: Seen
    snapshot: Snapshot
    readings: Readings
    memory: Failure | None = None


class Observer(Protocol):
    """Whatever looks at the node."""

    def observe(self, records: Records, *, without_cgroup: frozenset[str]) -> Observation:
        """What is there now. GPUs `without_cgroup` have refused limits by control group."""


class NodeObserver:
    """Looks at this node through a sampler of the exporter's. For one thread."""

    def __init__(self, sampler: Sampler, limits: MemoryLimits, *, sysfs: Path, procfs: Path, clock: Clock) -> None:
        self._sampler = sampler
        self._limits = limits
        self._cgroups = ContainerCgroups(sysfs / "fs" / "cgroup", clock=clock)
        self._procfs = procfs
        self._clock = clock

    def observe(self, records: Records, *, without_cgroup: frozenset[str]) -> Observation:
        """What is there now. Waits for each source until its deadline at most."""
        readings = self._sampler.readings()
        snapshot = self._sampler.snapshot(readings)
        found = wanted(readings.pods, self._sampler.caps(readings), snapshot)
        levels = levels_wanted(found, readings, snapshot, records)
        memory = self._limits.read(levels)
        places = self._places({ref for refs in levels.values() for ref in refs})
        there = seen(
            found,
            readings,
            snapshot,
            memory=memory.value,
            places=places,
            records=records,
            starts=self._starts(snapshot),
            without_cgroup=without_cgroup,
            now=self._clock.boottime(),
        )
        return Observation(found, there, snapshot, readings, memory.failure)

    def _places(self, refs: set[ContainerRef]) -> frozenset[ContainerRef]:
        """The pods and containers that have a control group. None of them where the tree can't be read."""
        try:
            found = self._cgroups.find(refs) if self._cgroups.unified else {}
        except OSError:
            return frozenset()
        return frozenset(
            ref for ref, place in found.items() if (place.own if ref.container_id else place.pod) is not None
        )

    def _starts(self, snapshot: Snapshot) -> Mapping[int, float]:
        """When the MPS clients began, in seconds since boot."""
        pids = {
            client.pid
            for daemon in snapshot.mps.values()
            if isinstance(daemon, MpsDaemon)
            for server in daemon.servers
            if not isinstance(server.clients, Failure)
            for client in server.clients
        }
        found = {}
        for pid in pids:
            ticks, _ = evidence(self._procfs, pid)
            if ticks is not None:
                found[pid] = ticks / _TICKS
        return found
