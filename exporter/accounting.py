"""What adds up over snapshots: errors, last successes, cycles, each container's peak, and integrals. Pure: a fold."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum, unique

from exporter.errors import Failure, Reason
from exporter.integrals import Bounds, integrate
from exporter.model import ContainerName, DomainKey, MpsDaemon, MpsStarts, Snapshot, Totals

_BOUNDS = Bounds()  # for who integrates nothing


@unique
class CycleResult(StrEnum):
    """How a sampling cycle ended."""

    COMPLETE = "complete"  # every source gave everything
    PARTIAL = "partial"  # a snapshot, with something missing
    FAILED = "failed"  # no snapshot


def opened() -> Totals:
    """The totals of a process that has just started. Counters start at zero with it and only grow."""
    return Totals({}, {}, {result.value: 0 for result in CycleResult})


def account(before: Totals, snapshot: Snapshot, bounds: Bounds = _BOUNDS) -> Totals:
    """The totals after a snapshot."""
    errors = dict(before.errors)
    last_success = dict(before.last_success)
    complete = True
    for state in snapshot.sources:
        failures = (*state.errors, *((state.failure,) if state.failure is not None else ()))
        complete = complete and not failures
        for problem in failures:
            key = (state.source, problem.reason)
            errors[key] = errors.get(key, 0) + 1
        if state.failure is None:
            last_success[state.source] = snapshot.timestamp
    return Totals(
        errors,
        last_success,
        _counted(before, CycleResult.COMPLETE if complete else CycleResult.PARTIAL),
        _peaks(before.peaks, snapshot),
        integrate(before.integrals, snapshot, bounds),
        _mps(before.mps, snapshot.mps),
    )


def account_failure(before: Totals, source: str, reason: Reason) -> Totals:
    """The totals after a cycle that gave no snapshot."""
    errors = {**before.errors, (source, reason): before.errors.get((source, reason), 0) + 1}
    return replace(before, errors=errors, cycles=_counted(before, CycleResult.FAILED))


def _counted(before: Totals, result: CycleResult) -> Mapping[str, int]:
    return {**before.cycles, result.value: before.cycles[result.value] + 1}


def _peaks(
    before: Mapping[tuple[ContainerName, DomainKey], int], snapshot: Snapshot
) -> dict[tuple[ContainerName, DomainKey], int]:
    """The peaks after a snapshot. A container that a readable domain no longer shows is gone, and so is its peak.

    While a domain cannot be read nobody on it is known to be gone, so the peaks there are kept, unprinted.
    """
    read = {domain.key for device in snapshot.devices for domain in device.domains if domain.up}
    peaks = {key: peak for key, peak in before.items() if key[1] not in read}
    for state in snapshot.containers:
        key = (state.name, state.domain)
        peak = before.get(key)
        if state.used is not None and (peak is None or state.used > peak):
            peak = state.used
        if peak is not None:
            peaks[key] = peak
    return peaks


def _mps(before: Mapping[str, MpsStarts], daemons: Mapping[str, MpsDaemon | Failure]) -> dict[str, MpsStarts]:
    """The starts after a snapshot. Those that were there when the exporter first looked are not counted."""
    found: dict[str, MpsStarts] = {}
    for pipe_directory, daemon in daemons.items():
        known = before.get(pipe_directory)
        if isinstance(daemon, Failure):
            found[pipe_directory] = known or MpsStarts()
            continue
        pids = frozenset(server.pid for server in daemon.servers if server.pid is not None)
        identity = (daemon.pid, daemon.started)
        if known is None or known.daemon is None:
            found[pipe_directory] = MpsStarts(daemon=identity, pids=pids)
            continue
        found[pipe_directory] = MpsStarts(
            known.daemons + (None not in (*identity, *known.daemon) and identity != known.daemon),
            known.servers + len(pids - known.pids),
            identity if daemon.started is not None else known.daemon,
            pids,
        )
    return found
