"""What adds up over snapshots: error counts, last successes, cycles, and each container's peak. Pure: a fold."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, unique
from types import MappingProxyType

from exporter.errors import Reason
from exporter.model import ContainerName, DomainKey, Snapshot, Totals


@unique
class CycleResult(StrEnum):
    """How a sampling cycle ended."""

    COMPLETE = "complete"  # every source gave everything
    PARTIAL = "partial"  # a snapshot, with something missing
    FAILED = "failed"  # no snapshot


@dataclass(frozen=True, slots=True)
class Books:
    """What was counted so far. Counters start at zero with the process and only grow."""

    totals: Totals = field(
        default_factory=lambda: Totals({}, {}, MappingProxyType({result.value: 0 for result in CycleResult}))
    )
    peaks: Mapping[tuple[ContainerName, DomainKey], int] = field(default_factory=dict)  # bytes


def account(before: Books, snapshot: Snapshot) -> tuple[Books, Snapshot]:
    """Enter a snapshot: the new books, and the snapshot with each container's peak filled in."""
    errors = dict(before.totals.errors)
    last_success = dict(before.totals.last_success)
    complete = True
    for state in snapshot.sources:
        failures = (*state.errors, *((state.failure,) if state.failure is not None else ()))
        complete = complete and not failures
        for problem in failures:
            key = (state.source, problem.reason)
            errors[key] = errors.get(key, 0) + 1
        if state.failure is None:
            last_success[state.source] = snapshot.timestamp
    peaks = _peaks(before.peaks, snapshot)
    totals = Totals(errors, last_success, _counted(before.totals, complete=complete))
    containers = tuple(replace(state, peak=peaks.get((state.name, state.domain))) for state in snapshot.containers)
    return Books(totals, peaks), replace(snapshot, containers=containers)


def account_failure(before: Books, source: str, reason: Reason) -> Books:
    """Enter a cycle that gave no snapshot."""
    errors = dict(before.totals.errors)
    errors[source, reason] = errors.get((source, reason), 0) + 1
    cycles = dict(before.totals.cycles)
    cycles[CycleResult.FAILED] += 1
    return replace(before, totals=replace(before.totals, errors=errors, cycles=cycles))


def _counted(totals: Totals, *, complete: bool) -> Mapping[str, int]:
    cycles = dict(totals.cycles)
    cycles[CycleResult.COMPLETE if complete else CycleResult.PARTIAL] += 1
    return cycles


def _peaks(
    before: Mapping[tuple[ContainerName, DomainKey], int], snapshot: Snapshot
) -> dict[tuple[ContainerName, DomainKey], int]:
    """The peaks after a snapshot. A container that a readable domain no longer shows is gone, and so is its peak.

    While a domain cannot be read nobody on it is known to be gone, so the peaks there are kept, unprinted.
    """
    read = {domain.key for device in snapshot.devices for domain in device.domains if domain.up}
    present = {(state.name, state.domain): state.used for state in snapshot.containers}
    peaks = {key: peak for key, peak in before.items() if key in present or key[1] not in read}
    for key, used in present.items():
        if used is not None:
            peaks[key] = max(used, peaks.get(key, 0))
    return peaks
