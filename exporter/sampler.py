"""The cycle: ask the sources side by side under deadlines, attribute, account, publish.

One sampler, one cycle at a time, on a steady beat, whether anybody scrapes or not. A scrape never starts a cycle.
"""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol, TypeVar

from exporter.accounting import account, account_failure, opened
from exporter.allocation import claimed_devices
from exporter.attribution import attribute
from exporter.caps.book import Caps, NodeCaps
from exporter.caps.keys import NVIDIA_PREFIX
from exporter.caps.policy import Policy
from exporter.caps_read_back import LimitReadings, with_limits
from exporter.clock import Clock
from exporter.description import described
from exporter.errors import Failure, Reason
from exporter.integrals import Bounds
from exporter.limit_pairs import limit_pairs
from exporter.model import (
    NO_NAMES,
    AllocationReading,
    ContainerRef,
    ContainerState,
    Device,
    DraDevice,
    DriverReading,
    EnvironmentReading,
    LimitReading,
    LivePods,
    MpsReading,
    PodNames,
    ProcessReading,
    Reading,
    SliceReading,
    Snapshot,
    Totals,
)
from exporter.processes import listed_pids
from exporter.readings import Readings
from exporter.sources.worker import Worker

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


class MpsDaemons(Protocol):
    """The source that asks MPS control daemons. It keeps its own deadlines, one per daemon."""

    def present(self) -> bool:
        """Whether the node has any daemon to ask."""

    def read(self, gpus: Collection[Device]) -> Reading[MpsReading]:
        """What each daemon says; `gpus` are those that its ordinals may mean."""

    def stop(self) -> None:
        """Let its threads end."""


class Environments(Protocol):
    """The source of processes' environments."""

    def read(self, pids: Collection[int]) -> Reading[EnvironmentReading]:
        """What these processes' environments say about MPS."""


class MemoryLimits(Protocol):
    """The source of limits by control group."""

    def read(self, pairs: Collection[tuple[ContainerRef, Device]]) -> Reading[LimitReading]:
        """The GPU memory of these containers on these GPUs, as their control groups count it."""

    def stop(self) -> None:
        """Let its threads end."""


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
    mps: MpsDaemons | None = None
    environments: Environments | None = None
    memory_limits: MemoryLimits | None = None


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
        self._mps: Worker[Reading[MpsReading]] = Worker("mps", clock=clock)
        self._environments: Worker[Reading[EnvironmentReading]] = Worker("environ", clock=clock)
        self._memory_limits: Worker[Reading[LimitReading]] = Worker("memory limits", clock=clock)
        self._idle: tuple[ContainerState, ...] = ()  # the containers without processes of the last snapshot
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
        workers = (self._kubelet, self._pods, self._live, self._processes, self._slices, self._mps, self._environments)
        for worker in (*workers, self._memory_limits):
            worker.stop()
        for source in (self._sources.driver, self._sources.mps, self._sources.memory_limits):
            if source is not None:
                source.stop()

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
        mps = self._ask_mps(driver.value)
        allocations = _answer("kubelet", self._kubelet, until=until)
        slices = self._ask_slices(allocations.value)
        names = _answer("pods", self._pods, until=until)
        processes = _answer("procfs", self._processes, until=second)
        memory = self._ask_memory_limits(driver.value, processes.value, names.value)
        environments = mps and self._ask_environments(processes.value)
        return Readings(
            driver=driver,
            processes=processes,
            names=names,
            allocations=allocations,
            live=_answer("cgroups", self._live, until=until),
            slices=_answer("resourceslices", self._slices, until=second) if slices else None,
            policy=self._sources.policy.read() if self._sources.policy is not None else None,
            limits=LimitReadings(
                mps=_answer("mps", self._mps, until=second) if mps else None,
                environments=_answer("environ", self._environments, until=second) if environments else None,
                memory=_answer("memory_limits", self._memory_limits, until=second) if memory else None,
            ),
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
        self._idle = tuple(state for state in snapshot.containers if not state.pids)
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

    def _ask_mps(self, driver: DriverReading | None) -> bool:
        """Ask the MPS control daemons, if the node has any."""
        source = self._sources.mps
        if source is None or not source.present():
            return False
        gpus = [reading.device for reading in driver.devices] if driver is not None else []
        self._mps.ask(lambda: source.read(gpus))
        return True

    def _ask_environments(self, processes: ProcessReading | None) -> bool:
        """Ask for the environments of the processes in containers: each of them may be an MPS client."""
        source = self._sources.environments
        if source is None or processes is None:
            return False
        pids = [pid for pid, place in processes.places.items() if place.container is not None]
        self._environments.ask(lambda: source.read(pids))
        return True

    def _ask_memory_limits(
        self, driver: DriverReading | None, processes: ProcessReading | None, names: PodNames | None
    ) -> bool:
        source = self._sources.memory_limits
        if source is None or driver is None:
            return False
        pairs = limit_pairs(driver, processes, idle=self._idle, names=names or NO_NAMES)
        self._memory_limits.ask(lambda: source.read(pairs))
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


def _answer(source: str, worker: Worker[Reading[T]], *, until: float) -> Reading[T]:
    outcome, seconds = worker.answer(until=until)
    return Reading(source, outcome, seconds) if isinstance(outcome, Failure) else outcome
