"""What adds up over time: amounts times seconds, by container and by class of memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import NamedTuple

from exporter.model.kubernetes import ContainerName
from exporter.model.snapshot import DomainKey


@unique
class Amount(StrEnum):
    """What is integrated of a container on a memory domain. The values of its Integral are in this order."""

    USED = "used"  # bytes
    REQUESTED = "requested"  # bytes
    COMMITTED = "committed"  # bytes: the larger of the two, and where only one is known, that one
    OVERRUN = "overrun"  # bytes above the limit
    OVERRUNNING = "overrunning"  # 1 while above the limit, else 0
    THREAD_RATIO = "thread_ratio"  # 0..1


class Integral(NamedTuple):
    """Amounts times seconds of one container or one domain. Where an amount was never known its sum is None.

    `rates` are the amounts in the last snapshot, which hold until the next one; those not known then are None.
    """

    sums: tuple[float | None, ...]
    rates: tuple[float | None, ...]
    seen: float  # monotonic time of the last snapshot that it was in


@dataclass(frozen=True, slots=True)
class Integrals:
    """Everything that was integrated since the exporter started, and not been forgotten since."""

    containers: Mapping[tuple[ContainerName, DomainKey], Integral] = field(default_factory=lambda: MappingProxyType({}))
    devices: Mapping[DomainKey, Integral] = field(default_factory=lambda: MappingProxyType({}))  # by MemoryClass
    gap: float = 0.0  # seconds that were too long a time between two snapshots, and in no integral
    at: float | None = None  # monotonic time of the last snapshot
