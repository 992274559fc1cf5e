"""The cycle: ask the sources side by side under deadlines, attribute, account, publish.

One sampler, one cycle at a time, on a steady beat, whether anybody scrapes or not. A scrape never starts a cycle.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from exporter.accounting import account, account_failure, opened
from exporter.allocation import claimed_devices
from exporter.attribution import attribute
from exporter.caps.book import Caps, NodeCaps
from exporter.caps.keys import NVIDIA_PREFIX
from exporter.caps.policy import Policy
from exporter.caps_read_back import with_limits
from exporter.clock import Clock
from exporter.description import described
from exporter.errors import Reason
from exporter.integrals import Bounds
from exporter.limit_questions import LimitQuestions, LimitSources
from exporter.model import (
    NO_NAMES,
    AllocationReading,
    DraDevice,
    DriverReading,
    LivePods,
    PodNames,
    ProcessReading,
    Reading,
    SliceReading,
    Snapshot,
    Totals,
)
from exporter.processes import listed_pids
from exporter.readings import Readings
from exporter.sources.worker import Worker, answer_of

T = TypeVar("T")
log = logging.getLogger(__name__)

# Without a new snapshot for this long, values are withheld and not integrated, and the sampler counts as stuck.
STALE_AFTER_INTERVALS = 3


class Driver(Protocol):
    """The driver's source. It keeps its own deadlines, one per GPU."""

    def read(self) -> Reading[DriverReading]:
        """Every GPU's reading."""

    def stop(self) -> None:
        """Let its threads end."""


class Source(Protocol[T]):
    """A source that is read in one go."""

    def read(self) -> Reading[T]:
        """What the source says now."""


class Processes(Protocol):
    """The source that places processes."""

    def read(self, pids: Collection[int], *, listed_at: float | None = None) -> Reading[ProcessReading]:
        """The places of these processes, which the driver had listed by `listed_at` (seconds of CLOCK_BOOTTIME)."""


class Slices(Protocol):
    """The source that knows what claims' devices are."""

    def read(self, claimed: Collection[DraDevice]) -> Reading[SliceReading]:
        """The node's devices under dynamic resource allocation; those that claims name are `claimed`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a cycle's readings come from. `slices` is asked, and shown, only while the node has claims."""

    driver: Driver
    processes: Processes
    pods: Source[PodNames]
    kubelet: Source[AllocationReading]
    live: Source[LivePods]
    slices: Slices | None = None
    policy: Source[Policy] | None = None
    limits: LimitSources = field(default_factory=LimitSources)


class Sampler:
    """Runs cycles and hands each snapshot to `publish`. A fault inside a cycle costs that cycle, never the loop."""

    def __init__(
        self,
        sources: Sources,
        *,
        interval: float,
        deadline: float,
        clock: Clock,
        publish: Callable[[Snapshot, Totals], None],
        annotation_prefix: str = NVIDIA_PREFIX,
        retain: float = 300.0,
    ) -> None:
        self._sources = sources
        self._interval = interval
        self._deadline = deadline
        self._clock = clock
        self._publish = publish
        self._annotation_prefix = annotation_prefix
        self._policy: Policy | None = Policy()
        self._caps = Caps(policy=self._policy, prefix=annotation_prefix)
        self._totals = opened()
        self._bounds = Bounds(gap=STALE_AFTER_INTERVALS * interval, retain=retain)
        self._kubelet: Worker[Reading[AllocationReading]] = Worker("kubelet", clock=clock)
        self._pods: Worker[Reading[PodNames]] = Worker("pods", clock=clock)
        self._live: Worker[Reading[LivePods]] = Worker("cgroups", clock=clock)
        self._processes: Worker[Reading[ProcessReading]] = Worker("procfs", clock=clock)
        self._slices: Worker[Reading[SliceReading]] = Worker("resourceslices", clock=clock)
        self._claimed: frozenset[DraDevice] = frozenset()  # as the kubelet last told
        self._limits = LimitQuestions(sources.limits, clock=clock)
        self._last_end = clock.monotonic()
        self._logged: dict[str, frozenset[tuple[Reason, str]]] = {}  # by source: reason, and what it is about

    def run(self, stop: threading.Event) -> None:
        """Cycle after cycle until `stop` is set. Beats that a long cycle ran over are skipped, not caught up."""
        beat = self._clock.monotonic()
        while not stop.is_set():
            self.cycle()
            now = self._clock.monotonic()
            beat += self._interval * max(1, -int((beat - now) // self._interval))
            stop.wait(max(0.0, beat - now))
        for worker in (self._kubelet, self._pods, self._live, self._processes, self._slices):
            worker.stop()
        self._limits.stop()
        self._sources.driver.stop()

    def cycle(self) -> None:
        """One cycle, from the readings to the published snapshot."""
        try:
            snapshot = self.snapshot(self.readings())
            self._totals = account(self._totals, snapshot, self._bounds)
            self._log_changes(snapshot)
            self._publish(snapshot, self._totals)
            self._last_end = self._clock.monotonic()
        except Exception:
            log.exception("a sampling cycle failed; its values are missing")
            self._totals = account_failure(self._totals, "sampler", Reason.INTERNAL)

    def stuck(self) -> str | None:
        """One line when no cycle has ended for too long, which a restart may cure; None when all is well."""
        age = self._clock.monotonic() - self._last_end
        if age <= STALE_AFTER_INTERVALS * self._interval + self._deadline:
            return None
        return f"no sampling cycle has ended for {age:.0f} s"

    def readings(self) -> Readings:
        """What every source says now."""
        until = self._clock.monotonic() + self._deadline
        self._kubelet.ask(self._sources.kubelet.read)
        self._pods.ask(self._sources.pods.read)
        self._live.ask(self._sources.live.read)
        driver = self._sources.driver.read()
        listed_at = self._clock.boottime()
        pids = listed_pids(driver.value)
        self._processes.ask(lambda: self._sources.processes.read(pids, listed_at=listed_at))
        second = self._clock.monotonic() + self._deadline
        self._limits.ask_daemons(driver.value)
        allocations = answer_of("kubelet", self._kubelet, until=until)
        slices = self._ask_slices(allocations.value)
        names = answer_of("pods", self._pods, until=until)
        processes = answer_of("procfs", self._processes, until=second)
        self._limits.ask_about(driver.value, processes.value, names.value or NO_NAMES)
        return Readings(
            driver=driver,
            processes=processes,
            names=names,
            allocations=allocations,
            live=answer_of("cgroups", self._live, until=until),
            slices=answer_of("resourceslices", self._slices, until=second) if slices else None,
            policy=self._sources.policy.read() if self._sources.policy is not None else None,
            limits=self._limits.answers(until=second),
        )

    def snapshot(self, readings: Readings) -> Snapshot:
        """The readings, joined."""
        joined = attribute(
            driver=readings.driver,
            processes=readings.processes,
            names=readings.names,
            allocations=readings.allocations,
            live=readings.live,
            slices=readings.slices,
            timestamp=self._clock.unix(),
            monotonic=self._clock.monotonic(),
        )
        capped = described(joined, readings.pods, self.caps(readings), policy=readings.policy)
        names = readings.names.value if readings.names.value is not None else NO_NAMES
        snapshot = with_limits(capped, readings.limits, names=names, seen=readings.containers)
        self._limits.saw(snapshot)
        return snapshot

    def caps(self, readings: Readings) -> NodeCaps:
        """What the pods ask for, within the policy."""
        policy = readings.policy.value if readings.policy is not None else Policy()
        if policy != self._policy:
            self._policy, self._caps = policy, Caps(policy=policy, prefix=self._annotation_prefix)
        return self._caps.of(readings.pods)

    def _ask_slices(self, allocations: AllocationReading | None) -> bool:
        """Ask for the slices if the kubelet has told of claims. A kubelet that fails changes nothing in that."""
        if allocations is not None:
            self._claimed = claimed_devices(allocations)
        source, claimed = self._sources.slices, self._claimed
        if source is None or not claimed:
            return False
        self._slices.ask(lambda: source.read(claimed))
        return True

    def _log_changes(self, snapshot: Snapshot) -> None:
        """One line when something of a source begins to fail for a reason, and one when all of it is well again."""
        for state in snapshot.sources:
            problems = (*((state.failure,) if state.failure is not None else ()), *state.errors)
            before = self._logged.get(state.source, frozenset())
            now = {(problem.reason, problem.detail.partition(":")[0]): problem for problem in problems}
            for key, problem in now.items():
                if key not in before:
                    log.warning("source %s: %s", state.source, problem)
            if before and not now:
                log.info("source %s: well again", state.source)
            self._logged[state.source] = frozenset(now)
