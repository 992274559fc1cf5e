"""Who holds each byte: readings in, snapshot out. Pure: the same readings always give the same snapshot.

Per memory domain the rows of the driver's lists are merged per process by the maximum (each row carries the process's
total, so adding would count it twice), each process is placed, and the bytes fall into classes that partition the
capacity. What could not be read is absent; nothing is scaled, shared out or guessed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from exporter.allocation import Holdings, holdings, without_finished
from exporter.conditions import conditions_of, partial_failures
from exporter.errors import Failure, Reason
from exporter.model import (
    NO_NAMES,
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
    LivePods,
    MemoryClass,
    MemoryInfo,
    PodNames,
    ProcessReading,
    Reading,
    SliceReading,
    Snapshot,
    SourceState,
)
from exporter.owners import Owners
from exporter.processes import Process, Use, merge, partition

_FIRST_WITH_CLIENT_ROWS = (7, 0)  # Volta: since then each MPS client has a row of its own


def attribute(
    *,
    driver: Reading[DriverReading],
    processes: Reading[ProcessReading],
    names: Reading[PodNames],
    allocations: Reading[AllocationReading],
    live: Reading[LivePods],
    slices: Reading[SliceReading] | None = None,
    timestamp: float,
    monotonic: float = 0.0,
) -> Snapshot:
    """The snapshot that the readings give. `timestamp` is the Unix time at which they were complete, `monotonic` too.

    `slices` is None where nobody asked for them: on a node without claims they say nothing.
    """
    readings: tuple[Reading[Any], ...] = (driver, processes, names, allocations, live)
    if slices is not None:
        readings = (*readings, slices)
    devices = driver.value.devices if driver.value is not None else ()
    held = None
    if allocations.value is not None:
        present = without_finished(allocations.value, names.value, live.value)
        pods = names.value.by_uid.values() if names.value is not None else ()
        held = holdings(present, devices, slices.value if slices is not None else None, pods)
    domains = _Domains(processes.value, names.value, held)
    states = tuple(
        domains.device(reading) for reading in sorted(devices, key=lambda d: (d.device.index, d.device.uuid))
    )
    conditions = conditions_of(driver.value, processes, held, states)
    if driver.value is not None:
        conditions[Condition.CLIENT_MEMORY_HIDDEN] = domains.client_memory_hidden
    return Snapshot(
        timestamp=timestamp,
        driver=(driver.value.driver_version, driver.value.cuda_version) if driver.value is not None else None,
        devices=states,
        containers=tuple(sorted(domains.containers, key=lambda state: (state.name, state.domain))),
        sources=tuple(
            SourceState(reading.source, reading.failure, reading.seconds, partial_failures(reading))
            for reading in sorted(readings, key=lambda reading: reading.source)
        ),
        conditions=MappingProxyType(dict(sorted(conditions.items()))),
        monotonic=monotonic,
    )


class _Domains:
    """Attributes one memory domain after the other and gathers the containers found on them."""

    def __init__(self, processes: ProcessReading | None, names: PodNames | None, held: Holdings | None) -> None:
        self._owners = Owners(processes, names or NO_NAMES, held) if processes is not None else None
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
        listed = merge(domain.lists, reading.process_utilization)
        merged = listed if self._owners is not None else None
        classes: dict[MemoryClass, int] = {}
        unresolved: dict[Reason, int] = {}
        over = None
        tenants = None
        if merged is None or self._owners is None:
            if memory is not None:
                classes[MemoryClass.UNREAD] = memory.used
            self._add_containers(key, None, hidden=False)
        else:
            uses, by_container, unresolved = self._place(merged, self._owners)
            hidden = _clients_hidden(reading, uses[MemoryClass.MPS_SERVER])
            self.client_memory_hidden = self.client_memory_hidden or hidden
            tenants = self._tenants(key, self._add_containers(key, by_container, hidden=hidden))
            if memory is not None:
                classes, over = partition(memory.used, uses)
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
        self, merged: Mapping[int, Process], owners: Owners
    ) -> tuple[dict[MemoryClass, Use], dict[ContainerName, Use], dict[Reason, int]]:
        """The processes by class, those of the containers by container, and the unplaced ones counted by reason."""
        uses = {kind: Use() for kind in _HOLDERS}
        by_container: dict[ContainerName, Use] = defaultdict(Use)
        unresolved: dict[Reason, int] = defaultdict(int)
        for pid, process in merged.items():
            owner = owners.of(pid, process)
            uses[owner.memory_class].add(pid, process)
            if owner.name is not None:
                by_container[owner.name].add(pid, process)
            if owner.reason is not None:
                unresolved[owner.reason] += 1
        return uses, by_container, unresolved

    def _add_containers(
        self, key: DomainKey, uses: Mapping[ContainerName, Use] | None, *, hidden: bool
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
                use = Use()
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
                    pids=tuple(sorted(use.pids)) if use is not None else (),
                )
            )
        return names


_HOLDERS = (MemoryClass.CONTAINERS, MemoryClass.HOST, MemoryClass.MPS_SERVER, MemoryClass.UNRESOLVED)


def _absent(memory: MemoryInfo | Failure) -> bool:
    """Whether the driver has no such numbers for this GPU at all, which is no failure of this cycle."""
    return isinstance(memory, Failure) and memory.reason is Reason.NOT_SUPPORTED


def _clients_hidden(reading: DeviceReading, servers: Use) -> bool:
    """Before Volta the clients run inside the MPS server: its row is theirs, and theirs do not exist."""
    capability = reading.device.compute_capability
    return capability is not None and capability < _FIRST_WITH_CLIENT_ROWS and sum(servers.kinds.values()) > 0
