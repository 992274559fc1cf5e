"""What has been counted since the exporter started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.errors import Reason
from exporter.model.integrals import Integrals
from exporter.model.kubernetes import ContainerName
from exporter.model.snapshot import DomainKey


@dataclass(frozen=True, slots=True)
class MpsStarts:
    """How often a daemon and its servers were seen to start, and who they were when last seen."""

    daemons: int = 0
    servers: int = 0
    daemon: tuple[int | None, int | None] | None = None  # pid, start time
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been counted since the exporter started, as it stood when the snapshot was taken."""

    errors: Mapping[tuple[str, Reason], int]  # (source, reason) -> failures
    last_success: Mapping[str, float]  # source -> Unix time
    cycles: Mapping[str, int]  # result -> cycles
    peaks: Mapping[tuple[ContainerName, DomainKey], int] = field(default_factory=dict)  # bytes
    integrals: Integrals = field(default_factory=Integrals)
    mps: Mapping[str, MpsStarts] = field(default_factory=dict)  # by pipe directory
