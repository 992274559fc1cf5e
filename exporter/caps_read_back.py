"""Adds to a snapshot what limits the containers in it: MPS clients and shares, limits read back, caps that hold. Pure.

Nothing here changes a byte that was measured. Without MPS, and without limits by control group, the snapshot stays as
it is, except that a cap which nothing applies is said not to hold.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from exporter.caps_in_force import Evidence, applied, verdict
from exporter.errors import Failure, Reason
from exporter.memberships import DEFAULT_NAMESPACE, UNKNOWN, Membership, Memberships
from exporter.model import (
    ClientEnvironment,
    Condition,
    ContainerMemory,
    ContainerName,
    ContainerRef,
    ContainerState,
    DeviceState,
    DomainKey,
    EnvironmentReading,
    FractioningReading,
    Isolation,
    LimitReading,
    MpsReading,
    PodNames,
    Reading,
    ShareSource,
    Snapshot,
    SourceState,
)
from exporter.mps_variables import thread_ratio
from exporter.naming import job_namespaces, refs_of

_ABSENT = Reason.NOT_SUPPORTED
_NO_RECORDS = FractioningReading({}, {})


@dataclass(frozen=True, slots=True)
class LimitReadings:
    """What the sources said of limits. None: not asked, for there is nothing of the kind on this node.

    `fractioning` is what another agent keeps on disk: what it was asked for a container, and where it put it.
    """

    mps: Reading[MpsReading] | None = None
    environments: Reading[EnvironmentReading] | None = None
    memory: Reading[LimitReading] | None = None
    fractioning: Reading[FractioningReading] | None = None


def with_limits(
    snapshot: Snapshot, readings: LimitReadings, *, names: PodNames, seen: Iterable[ContainerRef]
) -> Snapshot:
    """The snapshot with the limits that are in force. `seen` are the containers that have processes."""
    refs: Mapping[ContainerName, frozenset[ContainerRef]] = {}
    if any(reading is not None for reading in (readings.mps, readings.memory, readings.fractioning)):
        refs = refs_of({state.name for state in snapshot.containers}, seen, names)
    found = _Found(snapshot, readings, refs, described=names.by_uid.keys())
    daemons = readings.mps.value.daemons if readings.mps is not None and readings.mps.value is not None else {}
    containers = tuple(found.container(state) for state in snapshot.containers)
    return replace(
        snapshot,
        containers=containers,
        devices=_isolated(snapshot.devices, containers),
        sources=tuple(sorted((*snapshot.sources, *_sources(readings)), key=lambda state: state.source)),
        conditions=MappingProxyType(dict(sorted(({**snapshot.conditions, **_conditions(snapshot, readings)}).items()))),
        mps=MappingProxyType(dict(sorted(daemons.items()))),
    )


class _Found:
    """What was found of the containers of one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        readings: LimitReadings,
        refs: Mapping[ContainerName, frozenset[ContainerRef]],
        *,
        described: Collection[str],
    ) -> None:
        self._described = described  # uids of the pods whose annotations are known
        self._refs = refs
        self._fractioning = _NO_RECORDS
        if readings.fractioning is not None and readings.fractioning.value is not None:
            self._fractioning = readings.fractioning.value
        self._memory = readings.memory.outcome if readings.memory is not None else None
        mps = readings.mps
        self._memberships = None
        if mps is not None:
            self._memberships = Memberships(mps.value) if mps.value is not None else Memberships.unread()
        environments = readings.environments.value if readings.environments is not None else None
        self._environments = environments.environments if environments is not None else {}
        self._held: dict[ContainerName, list[str]] = defaultdict(list)
        for state in snapshot.containers:
            if state.allocated:
                self._held[state.name].append(state.domain.gpu_uuid)

    def container(self, state: ContainerState) -> ContainerState:
        """One container on one domain."""
        memory = self._memory_of(state.name, state.domain)
        if state.limit is None and (recorded := self._recorded(state)) is not None:
            state = replace(state, limit=recorded)
        if self._memberships is None and memory is None and state.limit is None:
            return state
        evidence = Evidence(
            gpu_uuid=state.domain.gpu_uuid,
            pids=state.pids,
            used=state.used,
            memberships=self._memberships,
            environments=self._environments,
            memory=memory,
            namespaces=self._namespaces(state.name),
            held=tuple(self._held.get(state.name, ())),
        )
        found = verdict(evidence, state.limit) if state.limit is not None and state.processes is not None else None
        share = self._share(evidence)
        return replace(
            state,
            charged=_charged(memory),
            applied=MappingProxyType(applied(evidence)),
            enforced=found.enforced if found is not None else None,
            cap_conditions=found.conditions if found is not None else (),
            mps_clients=self._clients(state),
            mps_thread_ratio=share[0] if share is not None else None,
            mps_thread_source=share[1] if share is not None else None,
        )

    def _recorded(self, state: ContainerState) -> int | None:
        """The cap by another agent's record, of a pod whose annotations are not known."""
        for ref in self._refs.get(state.name, ()):
            record = self._fractioning.containers.get(ref.container_id)
            if record is None or ref.pod_uid in self._described or record.pod_uid != ref.pod_uid:
                continue
            if record.gpu_uuids is None or state.domain.gpu_uuid in record.gpu_uuids:
                return record.requested
        return None

    def _memory_of(self, name: ContainerName, domain: DomainKey) -> ContainerMemory | Failure | None:
        if self._memory is None or isinstance(self._memory, Failure):
            # A driver or kernel without such limits says nothing of this container; one that fails may hide a limit.
            return self._memory if self._memory is not None and self._memory.reason is not _ABSENT else None
        if domain.gpu_instance:
            return None
        pairs = [(ref, domain.gpu_uuid) for ref in self._refs.get(name, ())]
        found = [self._memory.containers[pair] for pair in pairs if pair in self._memory.containers]
        if len(found) > 1:
            return Failure(Reason.INCONSISTENT, f"{name.pod} has several cgroups for the container {name.container}")
        return found[0] if found else None

    def _namespaces(self, name: ContainerName) -> frozenset[str]:
        """The MPS namespaces that are meant for a container."""
        found: set[str] = set()
        for ref in self._refs.get(name, ()):
            found.update(job_namespaces(ref.pod_uid, name.container))
            lease = self._fractioning.leases.get(ref.container_id)
            if lease is not None and not lease.released:
                found.add(lease.namespace)
        return frozenset(found)

    def _clients(self, state: ContainerState) -> int | None:
        memberships = self._memberships
        if memberships is None or state.processes is None:
            return None
        members = sum(memberships.of(pid) is not None for pid in state.pids)
        outside = sum(memberships.is_outside(pid) for pid in state.pids)
        return members if members + outside == len(state.pids) else None

    def _share(self, evidence: Evidence) -> tuple[float, ShareSource] | None:
        """The share that each client may use at most; of clients with different ones the largest."""
        memberships = self._memberships
        if memberships is None:
            return None
        shares = []
        for pid in evidence.pids:
            member = memberships.of(pid)
            share = _client_share(member, evidence.environments.get(pid)) if member is not None else None
            if member is not None and share is None:
                return None
            if share is not None:
                shares.append(share)
        return max(shares, default=None, key=lambda share: share[0])


def _client_share(
    member: Membership, environment: ClientEnvironment | Failure | None
) -> tuple[float, ShareSource] | None:
    """The smallest share that anything in force sets to a client; None where the daemon's can't be told."""
    ratio = member.ratio
    if ratio is UNKNOWN:
        return None
    named = member.client.namespace not in ("", DEFAULT_NAMESPACE)
    share = (1.0, ShareSource.DEFAULT)
    if isinstance(ratio, float) and ratio < 1:
        share = (ratio, ShareSource.NAMESPACE if named else ShareSource.SERVER)
    own = thread_ratio(environment) if isinstance(environment, ClientEnvironment) else None
    return (own, ShareSource.CLIENT_ENV) if own is not None and own < share[0] else share


def _charged(memory: ContainerMemory | Failure | None) -> int | None:
    """What is charged to the container alone."""
    if not isinstance(memory, ContainerMemory) or memory.shared:
        return None
    level = memory.own if memory.own is not None else memory.pod
    return level.charged if level is not None else None


def _isolated(devices: Iterable[DeviceState], containers: Iterable[ContainerState]) -> tuple[DeviceState, ...]:
    """The devices, where caps hold on every container of a domain that nothing else isolates, with that said."""
    holds: dict[DomainKey, bool] = {}
    for state in containers:
        holds[state.domain] = holds.get(state.domain, True) and state.enforced is True
    return tuple(
        replace(
            device,
            domains=tuple(
                replace(domain, tenants=(domain.tenants[0], Isolation.MEMORY))
                if domain.tenants is not None and domain.tenants[1] is Isolation.NONE and holds.get(domain.key, False)
                else domain
                for domain in device.domains
            ),
        )
        if any(holds.get(domain.key, False) for domain in device.domains)
        else device
        for device in devices
    )


def _sources(readings: LimitReadings) -> Iterable[SourceState]:
    for reading in (readings.mps, readings.environments, readings.memory, readings.fractioning):
        if reading is not None:
            failure = reading.failure
            absent = failure is not None and failure.reason is _ABSENT
            unused = isinstance(reading.value, FractioningReading) and reading.value == _NO_RECORDS
            if not absent and not unused:
                yield SourceState(reading.source, failure, reading.seconds, _partial(reading.value))


def _partial(value: object) -> tuple[Failure, ...]:
    """The failures inside an answer."""
    found: list[Failure] = []
    if isinstance(value, MpsReading):
        for daemon in value.daemons.values():
            found += (daemon,) if isinstance(daemon, Failure) else daemon.errors
    elif isinstance(value, LimitReading):
        found += [answer for answer in value.containers.values() if isinstance(answer, Failure)]
    elif isinstance(value, FractioningReading):
        found += value.errors
    return tuple(sorted(found, key=str))


def _conditions(snapshot: Snapshot, readings: LimitReadings) -> Mapping[Condition, bool]:
    found: dict[Condition, bool] = {}
    memory = readings.memory.value if readings.memory is not None else None
    if memory is not None and memory.own_limited is not None:
        seen = snapshot.conditions.get(Condition.MEMORY_VIEW_LIMITED, False)
        found[Condition.MEMORY_VIEW_LIMITED] = seen or memory.own_limited
    environments = readings.environments.value if readings.environments is not None else None
    if environments is not None:
        found[Condition.CLIENT_ENVIRONMENT_UNREADABLE] = any(
            isinstance(answer, Failure) and answer.reason is not Reason.EXITED
            for answer in environments.environments.values()
        )
    return found
