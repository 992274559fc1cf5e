"""Who holds each byte: readings in, snapshot out. Pure: the same readings always give the same snapshot.

Per memory domain the rows of the driver's lists are merged per process by the maximum (each row carries the process's
total, so adding would count it twice), each process is placed, and the bytes fall into classes that partition the
capacity. What could not be read is absent; nothing is scaled, shared out or guessed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import fsum
from types import MappingProxyType
from typing import Any

from exporter.allocation import Holdings, holdings, without_finished
from exporter.errors import Failure, Reason
from exporter.model import (
    AllocationReading,
    Condition,
    ContainerName,
    ContainerState,
    DeviceReading,
    DeviceState,
    DomainKey,
    DomainReading,
    DomainState,
    DriverReading,
    Isolation,
    ListKind,
    LivePods,
    MemoryClass,
    MemoryInfo,
    Place,
    PodNames,
    ProcessList,
    ProcessReading,
    Reading,
    SliceReading,
    Snapshot,
    SourceState,
    UtilizationWindow,
)

_KINDS = (ListKind.MPS, ListKind.COMPUTE, ListKind.GRAPHICS)  # a process is counted under the first that lists it
_NO_PROCESSES = dict.fromkeys(ListKind, 0)  # copied for each container: walking an enum is slow
_NOWHERE = Place(reason=Reason.EXITED)
_NO_NAMES = PodNames({}, {})
_FIRST_WITH_CLIENT_ROWS = (7, 0)  # Volta: since then each MPS client has a row of its own


@dataclass(slots=True)
class _Process:
    """A process of one domain, merged over the lists."""

    kind: ListKind
    used: int | None
    sm: float | None


@dataclass(slots=True)
class _Use:
    """What the processes of one container, or of one class, hold together."""

    used: int = 0
    unknown: int = 0
    kinds: dict[ListKind, int] = field(default_factory=_NO_PROCESSES.copy)
    sm: list[float | None] = field(default_factory=list)

    @property
    def utilization(self) -> float | None:
        """Share 0..1 of the SMs' time. None where it is not known of each process, or there is none."""
        known = [share for share in self.sm if share is not None]
        if not known or len(known) < len(self.sm):
            return None
        return min(1.0, fsum(known))  # processes that took turns cannot have used more than the device

    def add(self, process: _Process) -> None:
        self.kinds[process.kind] += 1
        self.sm.append(process.sm)
        if process.used is None:
            self.unknown += 1
        else:
            self.used += process.used


def attribute(
    *,
    driver: Reading[DriverReading],
    processes: Reading[ProcessReading],
    names: Reading[PodNames],
    allocations: Reading[AllocationReading],
    live: Reading[LivePods],
    slices: Reading[SliceReading] | None = None,
    timestamp: float,
) -> Snapshot:
    """The snapshot that the readings give. `timestamp` is the Unix time at which they were complete.

    `slices` is None where nobody asked for them: on a node without claims they say nothing.
    """
    readings: tuple[Reading[Any], ...] = (driver, processes, names, allocations, live)
    if slices is not None:
        readings = (*readings, slices)
    devices = driver.value.devices if driver.value is not None else ()
    held = None
    if allocations.value is not None:
        present = without_finished(allocations.value, names.value, live.value)
        held = holdings(present, devices, slices.value if slices is not None else None)
    domains = _Domains(processes.value, names.value, held)
    states = tuple(
        domains.device(reading) for reading in sorted(devices, key=lambda d: (d.device.index, d.device.uuid))
    )
    conditions = _conditions(driver.value, processes, held, states)
    if driver.value is not None:
        conditions[Condition.CLIENT_MEMORY_HIDDEN] = domains.client_memory_hidden
    return Snapshot(
        timestamp=timestamp,
        driver=(driver.value.driver_version, driver.value.cuda_version) if driver.value is not None else None,
        devices=states,
        containers=tuple(sorted(domains.containers, key=lambda state: (state.name, state.domain))),
        sources=tuple(
            SourceState(reading.source, reading.failure, reading.seconds, _partial_failures(reading))
            for reading in sorted(readings, key=lambda reading: reading.source)
        ),
        conditions=MappingProxyType(dict(sorted(conditions.items()))),
    )


class _Domains:
    """Attributes one memory domain after the other and gathers the containers found on them."""

    def __init__(self, processes: ProcessReading | None, names: PodNames | None, held: Holdings | None) -> None:
        self._places = processes.places if processes is not None else None
        self._names = names or _NO_NAMES
        self._named = names is not None
        self._held = held
        self.containers: list[ContainerState] = []
        self.client_memory_hidden = False

    def device(self, reading: DeviceReading) -> DeviceState:
        device = reading.device
        if reading.failure is not None:
            key = DomainKey(device.index, device.uuid)
            self._add_containers(key, None, hidden=False)
            return DeviceState(device, (DomainState(key, up=False),), reading.mig_devices)
        states = tuple(self._domain(reading, domain) for domain in reading.domains)
        return DeviceState(device, states, reading.mig_devices, reading.utilization)

    def _domain(self, reading: DeviceReading, domain: DomainReading) -> DomainState:
        instance = "" if domain.gpu_instance is None else str(domain.gpu_instance)
        key = DomainKey(reading.device.index, reading.device.uuid, instance)
        memory = domain.memory if isinstance(domain.memory, MemoryInfo) else None
        listed = _merge(domain.lists, reading.process_utilization)
        merged = listed if self._places is not None else None
        classes: dict[MemoryClass, int] = {}
        unresolved: dict[Reason, int] = {}
        over = None
        tenants = None
        if merged is None:
            if memory is not None:
                classes[MemoryClass.UNREAD] = memory.used
            self._add_containers(key, None, hidden=False)
        else:
            uses, by_container, unresolved = self._place(merged)
            hidden = _clients_hidden(reading, uses[MemoryClass.MPS_SERVER])
            self.client_memory_hidden = self.client_memory_hidden or hidden
            tenants = self._tenants(key, self._add_containers(key, by_container, hidden=hidden))
            if memory is not None:
                classes, over = _partition(memory.used, uses)
        if memory is not None:
            classes[MemoryClass.FREE] = memory.free
            if memory.reserved is not None:
                classes[MemoryClass.RESERVED] = memory.reserved
        return DomainState(
            key,
            up=listed is not None and (memory is not None or _absent(domain.memory)),
            capacity=memory.total if memory is not None else None,
            classes=MappingProxyType(dict(sorted(classes.items()))),
            over_attributed=over,
            unresolved=MappingProxyType(dict(sorted(unresolved.items()))),
            slots=self._held.of(key).advertised if self._held is not None else {},
            tenants=tenants,
        )

    def _tenants(self, key: DomainKey, names: Collection[ContainerName]) -> tuple[int, Isolation] | None:
        """How many namespaces these containers of a domain are in.

        None where one of them has no name, or where it is not known which domain some container holds.
        """
        if self._held is None or self._held.undecided or any(not name.namespace for name in names):
            return None
        held = self._held.of(key)
        alone = max(held.total, len({(name.namespace, name.pod) for name in names})) <= 1 and not held.reserved
        isolation = (Isolation.HARDWARE if key.gpu_instance else Isolation.EXCLUSIVE) if alone else Isolation.NONE
        return len({name.namespace for name in names}), isolation

    def _place(
        self, merged: Mapping[int, _Process]
    ) -> tuple[dict[MemoryClass, _Use], dict[ContainerName, _Use], dict[Reason, int]]:
        """The processes by class, those of the containers by container, and the unplaced ones counted by reason."""
        uses = {kind: _Use() for kind in _HOLDERS}
        by_container: dict[ContainerName, _Use] = defaultdict(_Use)
        unresolved: dict[Reason, int] = defaultdict(int)
        places = self._places or {}
        for pid, process in merged.items():
            place = places.get(pid, _NOWHERE)
            if place.reason is not None:
                holder = MemoryClass.UNRESOLVED
                unresolved[place.reason] += 1
            elif self._is_mps_server(place, process):
                holder = MemoryClass.MPS_SERVER
            elif place.container is None:
                holder = MemoryClass.HOST
            elif not place.container.pod_uid and place.container.container_id not in self._names.containers:
                holder = MemoryClass.UNRESOLVED
                unresolved[Reason.CGROUP_RELATIVE] += 1
            else:
                holder = MemoryClass.CONTAINERS
                by_container[self._name(place)].add(process)
            uses[holder].add(process)
        return uses, by_container, unresolved

    def _is_mps_server(self, place: Place, process: _Process) -> bool:
        """Believe a process that calls itself the MPS server, unless it is a client or its container holds a GPU.

        A name is free to choose, and the server's memory is billed to nobody: so a container that the kubelet gave a
        device is a tenant whatever its processes are called. The server's own pod asks for none.
        """
        if not place.names_mps_server or process.kind is ListKind.MPS:
            return False
        return place.container is None or self._held is None or self._name(place) not in self._held.holders

    def _name(self, place: Place) -> ContainerName:
        """The container's name; where nothing names it, the pod's uid and the start of the container's id."""
        container = place.container
        if container is None:
            return ContainerName("", "", "")
        if (name := self._names.containers.get(container.container_id)) is not None:
            return name
        if (pod := self._names.pods.get(container.pod_uid)) is not None:
            # Known pod, unknown container: a sandbox (gVisor, Kata), or too young to have a log. The pod is certain.
            return ContainerName(*pod, "")
        return ContainerName("", container.pod_uid, container.container_id[:12])

    def _add_containers(
        self, key: DomainKey, uses: Mapping[ContainerName, _Use] | None, *, hidden: bool
    ) -> Collection[ContainerName]:
        """One state for each container that uses the domain or was given a device of it. Returns their names.

        `uses` is None when the process lists could not be read; then what a container holds is not known.
        """
        held = self._held.of(key) if self._held is not None else None
        slots = held.slots if held is not None else {}
        # Processes whose container has no name yet may belong to any container that seems to have none.
        anonymous = not self._named or any(not name.namespace for name in uses or ())
        names = {*slots, *(uses or ())}
        for name in names:
            use = uses.get(name) if uses is not None else None
            if use is None and uses is not None and not anonymous and name._replace(container="") not in uses:
                use = _Use()
            known = use is not None and use.unknown == 0 and not (hidden and not any(use.kinds.values()))
            self.containers.append(
                ContainerState(
                    name=name,
                    domain=key,
                    used=use.used if use is not None and known else None,
                    processes=MappingProxyType(use.kinds) if use is not None else None,
                    processes_memory_unknown=use.unknown if use is not None else None,
                    allocated=self._held.allocated(name, key) if self._held is not None else None,
                    slots=slots.get(name),
                    share=held.share(name) if held is not None else None,
                    utilization=use.utilization if use is not None else None,
                )
            )
        return names


_HOLDERS = (MemoryClass.CONTAINERS, MemoryClass.HOST, MemoryClass.MPS_SERVER, MemoryClass.UNRESOLVED)


def _merge(
    lists: Mapping[ListKind, ProcessList | Failure], window: UtilizationWindow | Failure | None
) -> dict[int, _Process] | None:
    """One entry per pid, or None when a list that may hold processes could not be read.

    A driver without graphics or MPS lists has no such processes to tell of; without the compute list nothing is known.
    A process that a window does not name was idle in it.
    """
    busy = {found.pid: found.sm for found in window.processes} if isinstance(window, UtilizationWindow) else None
    merged: dict[int, _Process] = {}
    for kind in _KINDS:
        rows = lists.get(kind, ProcessList())
        if isinstance(rows, Failure):
            if kind is ListKind.COMPUTE or rows.reason is not Reason.NOT_SUPPORTED:
                return None
            continue
        for row in rows.rows:
            known = merged.get(row.pid)
            if known is None:
                merged[row.pid] = _Process(kind, row.used, busy.get(row.pid, 0.0) if busy is not None else None)
            elif row.used is not None:
                known.used = row.used if known.used is None else max(known.used, row.used)
    return merged


def _absent(memory: MemoryInfo | Failure) -> bool:
    """Whether the driver has no such numbers for this GPU at all, which is no failure of this cycle."""
    return isinstance(memory, Failure) and memory.reason is Reason.NOT_SUPPORTED


def _partition(used: int, uses: Mapping[MemoryClass, _Use]) -> tuple[dict[MemoryClass, int], int]:
    """What is used, split into classes, and by how much the rows exceed it.

    A class with a process of unknown memory is not known, and neither is what no row explains: they are `unread`
    together.
    """
    known = {kind: use.used for kind, use in uses.items() if use.unknown == 0}
    rest = used - sum(known.values())
    least_unknown = sum(use.used for use in uses.values() if use.unknown)
    known[MemoryClass.REMAINDER if len(known) == len(uses) else MemoryClass.UNREAD] = max(0, rest)
    return known, max(0, least_unknown - rest)


def _clients_hidden(reading: DeviceReading, servers: _Use) -> bool:
    """Before Volta the clients run inside the MPS server: its row is theirs, and theirs do not exist."""
    capability = reading.device.compute_capability
    return capability is not None and capability < _FIRST_WITH_CLIENT_ROWS and sum(servers.kinds.values()) > 0


def _partial_failures(reading: Reading[Any]) -> tuple[Failure, ...]:
    """The failures inside a driver's answer: GPUs, memory, lists and samples. An absent call is no error."""
    value = reading.value
    if not isinstance(value, DriverReading):
        return ()
    found = list(value.failures)
    for device in value.devices:
        found += [part for part in (device.failure, device.process_utilization) if isinstance(part, Failure)]
        for domain in device.domains:
            found += [part for part in (domain.memory, *domain.lists.values()) if isinstance(part, Failure)]
    return tuple(sorted((f for f in found if f.reason is not Reason.NOT_SUPPORTED), key=str))


def _conditions(
    driver: DriverReading | None,
    processes: Reading[ProcessReading],
    held: Holdings | None,
    states: Iterable[DeviceState],
) -> dict[Condition, bool]:
    """The conditions that this cycle can tell about."""
    conditions: dict[Condition, bool] = {}
    if processes.failure is None or processes.failure.reason is Reason.BLIND_PID_NAMESPACE:
        conditions[Condition.BLIND_PID_NAMESPACE] = processes.failure is not None
    if held is not None and driver is not None:
        conditions[Condition.UNKNOWN_DEVICE_ALLOCATED] = held.unknown > 0
    if driver is not None:
        domains = [domain for device in driver.devices for domain in device.domains]
        lists = [answer for domain in domains for answer in domain.lists.values()]
        conditions[Condition.PROCESS_LIST_TRUNCATED] = any(
            isinstance(answer, ProcessList) and answer.truncated for answer in lists
        )
        conditions[Condition.ROWS_REJECTED] = any(
            answer.rejected > 0 if isinstance(answer, ProcessList) else answer.reason is Reason.ROWS_REJECTED
            for answer in lists
        )
        conditions[Condition.MPS_DEVICE_ENUMERATION] = driver.mps_enumeration
        conditions[Condition.UTILIZATION_SAMPLES_REJECTED] = any(
            isinstance(device.process_utilization, UtilizationWindow) and device.process_utilization.rejected > 0
            for device in driver.devices
        )
        conditions[Condition.MEMORY_VIEW_LIMITED] = any(domain.memory_view_limited for domain in domains)
        conditions[Condition.OVER_ATTRIBUTED] = any(
            domain.over_attributed for state in states for domain in state.domains
        )
    return conditions
