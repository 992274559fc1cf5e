"""What the kubelet gave to whom, per memory domain: slots held, slots advertised, shares. Pure.

Allocation and use are two facts. This module knows only the first: it turns device ids into memory domains and counts
them, and never looks at a process.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exporter.model import (
    AllocationReading,
    ContainerName,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainKey,
    LivePods,
    PodNames,
)


@dataclass(frozen=True, slots=True)
class DomainHoldings:
    """Who holds slots of one memory domain, and how many the kubelet advertises by resource."""

    slots: Mapping[ContainerName, int]
    advertised: Mapping[str, int]
    pods: frozenset[tuple[str, str]]  # namespace and name of the pods that hold any
    total: int  # all slots advertised

    def allocated(self, name: ContainerName) -> bool | None:
        """Whether the kubelet gave the container a device of the domain; None where that cannot be told."""
        if name in self.slots:
            return True
        if not name.namespace:
            return None  # without its name a container cannot be looked up
        if not name.container and (name.namespace, name.pod) in self.pods:
            return None  # some container of the pod holds one, and which one this is is not known
        return False

    def share(self, name: ContainerName) -> float | None:
        """Slots held of slots advertised, 0..1. None where the kubelet does not advertise what it gave."""
        held = self.slots.get(name)
        return None if held is None or held > self.total else held / self.total


_NOBODY = DomainHoldings({}, {}, frozenset(), 0)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The kubelet's allocations by memory domain. `unknown` counts device ids that no visible device answers to."""

    domains: Mapping[DomainKey, DomainHoldings]
    holders: frozenset[ContainerName]
    unknown: int

    def of(self, key: DomainKey) -> DomainHoldings:
        """The holdings of one domain."""
        return self.domains.get(key, _NOBODY)


def without_finished(reading: AllocationReading, names: PodNames | None, live: LivePods | None) -> AllocationReading:
    """The reading without the pods that are known to be over: named, and without a cgroup under any of their uids.

    Where either is not known nobody is dropped. Two pods of one name (the old and the new of a StatefulSet) count as
    one: it is over only when both are.
    """
    if names is None or live is None:
        return reading
    running: dict[tuple[str, str], bool] = {}
    for uid, pod in names.pods.items():
        running[pod] = running.get(pod, False) or uid in live.uids
    return replace(
        reading,
        allocations=tuple(a for a in reading.allocations if running.get((a.name.namespace, a.name.pod), True)),
    )


def holdings(reading: AllocationReading, devices: Iterable[DeviceReading]) -> Holdings:
    """Join the kubelet's device ids with the driver's devices. Several replicas of a domain are several slots."""
    index = _Index(devices)
    unknown = 0
    held: dict[DomainKey, dict[ContainerName, set[str]]] = defaultdict(lambda: defaultdict(set))
    for allocation in reading.allocations:
        for ref in allocation.devices:
            found = index.find(ref)
            unknown += not found
            for key in found:
                held[key][allocation.name].add(f"{allocation.resource}/{ref.raw}")
    advertised: dict[DomainKey, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for resource, ref in reading.allocatable or ():
        for key in index.find(ref):
            advertised[key][resource].add(ref.raw)
    domains = {}
    for key in sorted({*held, *advertised}):
        slots = {name: len(ids) for name, ids in sorted(held[key].items())}
        by_resource = {resource: len(ids) for resource, ids in sorted(advertised[key].items())}
        pods = frozenset((name.namespace, name.pod) for name in slots)
        domains[key] = DomainHoldings(slots, by_resource, pods, sum(by_resource.values()))
    return Holdings(domains, frozenset(name for found in domains.values() for name in found.slots), unknown)


class _Index:
    """Finds memory domains by uuid, by minor number and by GPU instance."""

    def __init__(self, devices: Iterable[DeviceReading]) -> None:
        self._by_uuid: dict[str, DomainKey] = {}
        self._by_minor: dict[tuple[int, int | None], DomainKey] = {}
        self._all: list[DomainKey] = []
        for reading in devices:
            device = reading.device
            whole = DomainKey(device.index, device.uuid)
            if not device.mig_mode:
                self._all.append(whole)
                self._by_uuid[device.uuid] = whole
                if device.minor is not None:
                    self._by_minor[device.minor, None] = whole
            for mig in reading.mig_devices:
                key = DomainKey(device.index, device.uuid, str(mig.gpu_instance))
                self._by_uuid[mig.uuid] = key
                self._by_uuid[f"{device.uuid}/{mig.gpu_instance}"] = key
                if device.minor is not None:
                    self._by_minor[device.minor, mig.gpu_instance] = key

    def find(self, ref: DeviceRef) -> list[DomainKey]:
        """The domains that a device id names; none where it names nothing that the driver shows."""
        key: DomainKey | None = None
        match ref.kind:
            case DeviceKind.ALL:
                return self._all
            case DeviceKind.GPU | DeviceKind.MIG if ref.minor is not None:
                key = self._by_minor.get((ref.minor, ref.gpu_instance))
            case DeviceKind.MIG if ref.gpu_instance is not None:
                key = self._by_uuid.get(f"{ref.uuid}/{ref.gpu_instance}")  # the form of drivers before 470
            case DeviceKind.GPU | DeviceKind.MIG:
                key = self._by_uuid.get(ref.uuid)
        return [key] if key is not None else []
