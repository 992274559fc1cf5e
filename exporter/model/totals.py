"""What has been counted since the exporter started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.errors import Reason
from exporter.model.integrals import Integrals
from exporter.model.kubernetes import ContainerName
from exporter.model.snapshot import DomainKey


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been counted since the exporter started, as it stood when the snapshot was taken."""

    errors: Mapping[tuple[str, Reason], int]  # (source, reason) -> failures
    last_success: Mapping[str, float]  # source -> Unix time
    cycles: Mapping[str, int]  # result -> cycles
    peaks: Mapping[tuple[ContainerName, DomainKey], int] = field(default_factory=dict)  # bytes
    integrals: Integrals = field(default_factory=Integrals)
