"""The questions about limits in a cycle: MPS control daemons, environments of processes, control groups, records.

They depend on what the same cycle has read before: which GPUs there are, and which containers have processes. Each is
asked by a worker of its own, so that none holds up another, and what is not there on a node costs it next to nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.caps_read_back import LimitReadings
from exporter.clock import Clock
from exporter.limited_containers import limited_containers
from exporter.model import (
    ContainerRef,
    ContainerState,
    Device,
    DriverReading,
    EnvironmentReading,
    FractioningReading,
    LimitReading,
    MpsReading,
    PodNames,
    ProcessReading,
    Reading,
    Snapshot,
)
from exporter.sources.worker import Worker, answer_of


class MpsDaemons(Protocol):
    """The source that asks MPS control daemons. It keeps its own deadlines, one per daemon."""

    def read(self, gpus: Collection[Device]) -> Reading[MpsReading]:
        """What each daemon says, if there are any; `gpus` are those that its ordinals may mean."""

    def stop(self) -> None:
        """Let its threads end."""


class Environments(Protocol):
    """The source of processes' environments."""

    def read(self, pids: Collection[int]) -> Reading[EnvironmentReading]:
        """What these processes' environments say about MPS."""


class Fractioning(Protocol):
    """The source of what gpu-fractioning keeps on disk."""

    def read(self, pipe_directories: Collection[str]) -> Reading[FractioningReading]:
        """Its records of containers, and the leases of namespaces in these pipe directories."""


class MemoryLimits(Protocol):
    """The source of limits by control group."""

    def read(self, wanted: Mapping[Device, Collection[ContainerRef]]) -> Reading[LimitReading]:
        """The GPU memory of these containers by GPU, as their control groups count it."""

    def stop(self) -> None:
        """Let its threads end."""


@dataclass(frozen=True, slots=True)
class LimitSources:
    """Where limits are read from. None: nobody asks."""

    mps: MpsDaemons | None = None
    environments: Environments | None = None
    memory: MemoryLimits | None = None
    fractioning: Fractioning | None = None


class LimitQuestions:
    """Asks the sources of limits, cycle by cycle. For one thread."""

    def __init__(self, sources: LimitSources, *, clock: Clock) -> None:
        self._sources = sources
        self._mps: Worker[Reading[MpsReading]] = Worker("mps", clock=clock)
        self._environments: Worker[Reading[EnvironmentReading]] = Worker("environ", clock=clock)
        self._memory: Worker[Reading[LimitReading]] = Worker("memory limits", clock=clock)
        self._fractioning: Worker[Reading[FractioningReading]] = Worker("fractioning", clock=clock)
        self._idle: tuple[ContainerState, ...] = ()  # the containers without processes of the last snapshot
        self._pipe_directories: Collection[str] | None = None  # as last found; None: not looked for yet

    def ask_daemons(self, driver: DriverReading | None) -> None:
        """Ask the MPS control daemons, and for what gpu-fractioning keeps beside them."""
        mps, fractioning, directories = self._sources.mps, self._sources.fractioning, self._pipe_directories or ()
        if mps is not None:
            gpus = [reading.device for reading in driver.devices] if driver is not None else []
            self._mps.ask(lambda: mps.read(gpus))
        if fractioning is not None:
            self._fractioning.ask(lambda: fractioning.read(directories))

    def ask_about(self, driver: DriverReading | None, processes: ProcessReading | None, names: PodNames) -> None:
        """Ask for the limits of the containers on each GPU, and for the environments of their processes."""
        memory, environments = self._sources.memory, self._sources.environments
        if memory is not None:
            wanted = limited_containers(driver, processes, idle=self._idle, names=names)
            self._memory.ask(lambda: memory.read(wanted))
        if environments is not None and self._may_have_mps:
            places = processes.places if processes is not None else {}
            pids = [pid for pid, place in places.items() if place.container is not None]
            self._environments.ask(lambda: environments.read(pids))

    def answers(self, *, until: float) -> LimitReadings:
        """What was said, waiting until the monotonic time `until`; nothing of MPS on a node without any daemon."""
        sources = self._sources
        mps = answer_of("mps", self._mps, until=until) if sources.mps is not None else None
        environments = None
        if sources.environments is not None and self._may_have_mps:
            environments = answer_of("environ", self._environments, until=until)
        memory = answer_of("memory_limits", self._memory, until=until) if sources.memory is not None else None
        records = None
        if sources.fractioning is not None:
            records = answer_of("fractioning", self._fractioning, until=until)
        if mps is not None and mps.value is not None:
            self._pipe_directories = tuple(mps.value.daemons)
            if not mps.value.daemons:
                mps = environments = None
        return LimitReadings(mps, environments, memory, records)

    def saw(self, snapshot: Snapshot) -> None:
        """Note who holds a GPU without a process on it: a limit may be there before the first process is."""
        self._idle = tuple(state for state in snapshot.containers if not state.pids)

    def stop(self) -> None:
        """Let all threads end after their present calls."""
        for worker in (self._mps, self._environments, self._memory, self._fractioning):
            worker.stop()
        for source in (self._sources.mps, self._sources.memory):
            if source is not None:
                source.stop()

    @property
    def _may_have_mps(self) -> bool:
        return self._pipe_directories is None or bool(self._pipe_directories)
