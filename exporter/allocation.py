"""What the kubelet gave to whom, per memory domain: slots held, slots advertised, shares. Pure.

Allocation and use are two facts. This module knows only the first: it turns device ids into memory domains and counts
them, and never looks at a process.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exporter.model import (
    AllocationReading,
    ContainerName,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainKey,
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The kubelet's allocations by memory domain. `unknown` counts device ids that no visible device answers to."""

    slots: Mapping[DomainKey, Mapping[ContainerName, int]]
    advertised: Mapping[DomainKey, Mapping[str, int]]  # domain -> resource -> replicas
    unknown: int

    def allocated(self, name: ContainerName, key: DomainKey) -> bool | None:
        """Whether the kubelet gave the container a device of the domain; None where that cannot be told."""
        holders = self.slots.get(key, {})
        if name in holders:
            return True
        if not name.namespace:
            return None  # without its name a container cannot be looked up
        if not name.container and any((other.namespace, other.pod) == (name.namespace, name.pod) for other in holders):
            return None  # some container of the pod holds one, and which one this is is not known
        return False

    def holds_any(self, name: ContainerName) -> bool:
        """Whether the kubelet gave the container a device of any domain."""
        return any(name in holders for holders in self.slots.values())

    def share(self, name: ContainerName, key: DomainKey) -> float | None:
        """Slots held of slots advertised, 0..1. None where the kubelet does not advertise what it gave."""
        held = self.slots.get(key, {}).get(name)
        advertised = sum(self.advertised.get(key, {}).values())
        return None if held is None or held > advertised else held / advertised


def holdings(reading: AllocationReading, devices: Iterable[DeviceReading]) -> Holdings:
    """Join the kubelet's device ids with the driver's devices. Several replicas of a domain are several slots."""
    domains = _Index(devices)
    unknown = 0
    held: dict[DomainKey, dict[ContainerName, set[str]]] = defaultdict(lambda: defaultdict(set))
    for allocation in reading.allocations:
        for ref in allocation.devices:
            found = domains.find(ref)
            unknown += not found
            for key in found:
                held[key][allocation.name].add(f"{allocation.resource}/{ref.raw}")
    advertised: dict[DomainKey, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for resource, ref in reading.allocatable or ():
        for key in domains.find(ref):
            advertised[key][resource].add(ref.raw)
    return Holdings(
        slots={key: {name: len(ids) for name, ids in sorted(held[key].items())} for key in sorted(held)},
        advertised={
            key: {resource: len(ids) for resource, ids in sorted(advertised[key].items())} for key in sorted(advertised)
        },
        unknown=unknown,
    )


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
