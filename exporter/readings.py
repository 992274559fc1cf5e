"""All readings of one cycle, as one value."""

from collections.abc import Collection
from dataclasses import dataclass, field

from exporter.caps.policy import Policy
from exporter.caps_read_back import LimitReadings
from exporter.model import (
    AllocationReading,
    ContainerRef,
    DriverReading,
    LivePods,
    Pod,
    PodNames,
    ProcessReading,
    Reading,
    SliceReading,
)


@dataclass(frozen=True, slots=True)
class Readings:
    """What the sources said in one cycle. None: not asked."""

    driver: Reading[DriverReading]
    processes: Reading[ProcessReading]
    names: Reading[PodNames]
    allocations: Reading[AllocationReading]
    live: Reading[LivePods]
    slices: Reading[SliceReading] | None = None
    policy: Reading[Policy] | None = None
    limits: LimitReadings = field(default_factory=LimitReadings)

    @property
    def containers(self) -> frozenset[ContainerRef]:
        """The containers that have processes on a GPU."""
        places = self.processes.value.places.values() if self.processes.value is not None else ()
        return frozenset(place.container for place in places if place.container is not None)

    @property
    def pods(self) -> Collection[Pod]:
        """The pods of the node, where a source tells more of them than names."""
        return self.names.value.by_uid.values() if self.names.value is not None else ()
