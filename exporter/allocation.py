"""What the kubelet gave to whom, per memory domain: slots held, slots advertised, shares. Pure.

Allocation and use are two facts. This module knows only the first: it turns device ids into memory domains and counts
them, and never looks at a process.

A claim (DRA) names its device by driver, pool and name. What that is, the ResourceSlices say; where they do not, only a
name that can mean one GPU alone is believed, and else nothing is said of what the container was given.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.groups import PodKey, members
from exporter.model import (
    DRA_DRIVER,
    AllocationReading,
    ContainerName,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainKey,
    DraAttributes,
    DraDevice,
    DraType,
    LivePods,
    Pod,
    PodNames,
    SliceReading,
)


@dataclass(frozen=True, slots=True)
class DomainHoldings:
    """Who holds slots of one memory domain, and how many the kubelet advertises by resource."""

    slots: Mapping[ContainerName, int]
    advertised: Mapping[str, int]
    pods: frozenset[PodKey]  # namespace and name of the pods that hold any
    total: int  # all slots advertised
    reserved: bool = False  # a scheduler's reservation pod holds it for pods of its own choice
    members: frozenset[PodKey] | None = None  # these pods; None where nobody tells

    def allocated(self, name: ContainerName) -> bool | None:
        """Whether the kubelet gave the container a device of the domain; None where that cannot be told."""
        if name in self.slots:
            return True
        if not name.namespace:
            return None  # without its name a container cannot be looked up
        if not name.container and (name.namespace, name.pod) in self.pods:
            return None  # some container of the pod holds one, and which one this is is not known
        if not self.reserved:
            return False
        # Of a reserved device the scheduler gives parts to pods that the kubelet gave nothing.
        return None if self.members is None else (name.namespace, name.pod) in self.members

    def share(self, name: ContainerName) -> float | None:
        """Slots held of slots advertised, 0..1.

        None where what was given is not advertised, and where more is given than there is: the containers of a shared
        claim hold the same slot, and nobody says how they divide it.
        """
        held = self.slots.get(name)
        return None if held is None or sum(self.slots.values()) > self.total else held / self.total


_NOBODY = DomainHoldings({}, {}, frozenset(), 0)


@dataclass(frozen=True, slots=True)
class Holdings:
    """The kubelet's allocations by memory domain. `unknown` counts device ids that no visible device answers to.

    `undecided` are the containers with a claim whose device is not known: it may be any.
    """

    domains: Mapping[DomainKey, DomainHoldings]
    holders: frozenset[ContainerName]
    unknown: int
    undecided: frozenset[ContainerName] = frozenset()
    members: frozenset[PodKey] = frozenset()  # pods to which a scheduler gave a part of some reserved device

    def of(self, key: DomainKey) -> DomainHoldings:
        """The holdings of one domain."""
        return self.domains.get(key, _NOBODY)

    def is_tenant(self, name: ContainerName) -> bool:
        """Whether somebody gave the container a device of any domain."""
        return name in self.holders or (name.namespace, name.pod) in self.members

    def allocated(self, name: ContainerName, key: DomainKey) -> bool | None:
        """Whether the kubelet gave the container a device of the domain; None where that cannot be told."""
        found = self.of(key).allocated(name)
        if found is False and any(name in (who, who._replace(container="")) for who in self.undecided):
            return None
        return found


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


def claimed_devices(reading: AllocationReading) -> frozenset[DraDevice]:
    """The devices of NVIDIA's DRA driver that claims of this node name."""
    return frozenset(_dra_device(ref) for a in reading.allocations if a.resource == DRA_DRIVER for ref in a.devices)


def holdings(
    reading: AllocationReading,
    devices: Iterable[DeviceReading],
    slices: SliceReading | None = None,
    pods: Iterable[Pod] = (),
) -> Holdings:
    """Join the kubelet's device ids with the driver's devices. Several replicas of a domain are several slots.

    A claim's device is one slot, whoever shares it. Without `slices` no such slot is advertised. `pods` tell by their
    labels who shares a device that a scheduler reserved.
    """
    index = _Index(devices)
    claims = _Claims(index, reading, slices)
    unknown = 0
    undecided: set[ContainerName] = set()
    held: dict[DomainKey, dict[ContainerName, set[str]]] = defaultdict(lambda: defaultdict(set))
    reserved: dict[PodKey, set[DomainKey]] = defaultdict(set)
    for allocation in reading.allocations:
        claimed = allocation.resource == DRA_DRIVER
        for ref in allocation.devices:
            found = claims.find(ref) if claimed else index.find(ref)
            unknown += not found
            if claimed and not found and not claims.is_passed_through(ref):
                undecided.add(allocation.name)
            if allocation.reserves:
                reserved[allocation.name.namespace, allocation.name.pod].update(found)
                continue
            for key in found:
                held[key][allocation.name].add(f"{allocation.resource}/{ref.raw}")
    advertised: dict[DomainKey, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for resource, ref in reading.allocatable or ():
        for key in index.find(ref):
            advertised[key][resource].add(ref.raw)
    for device, key in claims.advertised():
        advertised[key][DRA_DRIVER].add("/".join(device))
    domains = {}
    groups = members(pods, reserved)
    kept = frozenset(key for keys in reserved.values() for key in keys)
    for key in sorted({*held, *advertised, *kept}):
        slots = {name: len(ids) for name, ids in sorted(held[key].items())}
        by_resource = {resource: len(ids) for resource, ids in sorted(advertised[key].items())}
        holding = frozenset((name.namespace, name.pod) for name in slots)
        total = sum(by_resource.values())
        domains[key] = DomainHoldings(slots, by_resource, holding, total, key in kept, groups.get(key))
    holders = undecided.union(*(found.slots for found in domains.values()))
    sharing = frozenset(pod for group in groups.values() for pod in group)
    return Holdings(domains, frozenset(holders), unknown, frozenset(undecided), sharing)


class _Index:
    """Finds memory domains by uuid, by minor number and by GPU instance."""

    def __init__(self, devices: Iterable[DeviceReading]) -> None:
        self._by_uuid: dict[str, DomainKey] = {}
        self._by_minor: dict[tuple[int, int | None], DomainKey] = {}
        self._by_number: dict[int, DomainKey] = {}
        self._by_profile: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._all: list[DomainKey] = []
        for reading in devices:
            device = reading.device
            whole = DomainKey(device.index, device.uuid)
            if not device.mig_mode:
                self._all.append(whole)
                self._by_uuid[device.uuid] = whole
                if device.minor is not None:
                    self._by_minor[device.minor, None] = whole
                    if device.minor == device.index:
                        self._by_number[device.index] = whole
            for mig in reading.mig_devices:
                self._by_profile[device.uuid, mig.profile].append(mig.uuid)
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
                whole = ref.kind is DeviceKind.GPU
                key = self._by_minor.get((ref.minor, ref.gpu_instance)) if whole == (ref.gpu_instance is None) else None
            case DeviceKind.MIG if ref.gpu_instance is not None:
                key = self._by_uuid.get(f"{ref.uuid}/{ref.gpu_instance}")  # the form of drivers before 470
            case DeviceKind.GPU | DeviceKind.MIG:
                key = self._by_uuid.get(ref.uuid)
        return [key] if key is not None else []

    def by_uuid(self, uuid: str) -> DomainKey | None:
        """The domain of a GPU without MIG, or of a MIG device."""
        return self._by_uuid.get(uuid)

    def by_number(self, number: int) -> DomainKey | None:
        """The GPU whose minor number and NVML index both are this: whichever of the two is meant, it is this GPU."""
        return self._by_number.get(number)

    def by_profile(self, parent_uuid: str, profile: str) -> Sequence[str]:
        """The UUIDs of the MIG devices of one profile on one GPU."""
        return self._by_profile.get((parent_uuid, profile), ())


class _Claims:
    """Finds the memory domains of claims' devices."""

    def __init__(self, index: _Index, reading: AllocationReading, slices: SliceReading | None) -> None:
        self._index = index
        self._devices: Mapping[DraDevice, DraAttributes] = slices.devices if slices is not None else {}
        self._claimed = claimed_devices(reading)
        self._on_demand = Counter(
            (known.parent_uuid, known.profile)
            for device in self._claimed
            if (known := self._devices.get(device)) is not None and _is_on_demand(known)
        )
        # MIG devices that are known to be something else than one that a claim had made.
        refs = [ref for allocation in reading.allocations for ref in allocation.devices]
        refs += [ref for _, ref in reading.allocatable or ()]
        self._taken = {ref.uuid for ref in refs} | {known.uuid for known in self._devices.values()}

    def find(self, ref: DeviceRef) -> list[DomainKey]:
        """The domain of a claim's device; none where that is not certain."""
        device = _dra_device(ref)
        known = self._devices.get(device)
        if known is None or (known.type is DraType.GPU and not known.uuid):
            # The name gpu-N has the NVML index with the DRA driver's first releases, the minor number since.
            named = ref.kind is DeviceKind.GPU and ref.minor is not None
            key = self._index.by_number(ref.minor) if named and ref.minor is not None else None
        else:
            key = self._described(device, known)
        return [key] if key is not None else []

    def is_passed_through(self, ref: DeviceRef) -> bool:
        """Whether the device is known to belong to a virtual machine, so that no domain here can be it."""
        known = self._devices.get(_dra_device(ref))
        return known is not None and known.type is DraType.VFIO

    def advertised(self) -> Iterator[tuple[DraDevice, DomainKey]]:
        """The devices of the slices that exist, with their domains."""
        for device, known in self._devices.items():
            key = self._described(device, known)
            if key is not None:
                yield device, key

    def _described(self, device: DraDevice, known: DraAttributes) -> DomainKey | None:
        """The domain of a device that a slice describes."""
        if known.type is DraType.VFIO:
            return None
        uuid = known.uuid
        if _is_on_demand(known) and device in self._claimed:
            # It exists since it is claimed. Which one it is, is certain if there is one candidate and one claim for it.
            candidates = [u for u in self._index.by_profile(known.parent_uuid, known.profile) if u not in self._taken]
            alone = len(candidates) == 1 and self._on_demand[known.parent_uuid, known.profile] == 1
            uuid = candidates[0] if alone else ""
        key = self._index.by_uuid(uuid)
        # A slice that calls a MIG device a GPU, or the other way about, is not believed.
        return key if key is not None and bool(key.gpu_instance) == (known.type is DraType.MIG) else None


def _is_on_demand(known: DraAttributes) -> bool:
    """Whether the device is one that is made when it is claimed: it is described by GPU and profile, without a UUID."""
    return known.type is DraType.MIG and not known.uuid and bool(known.parent_uuid) and bool(known.profile)


def _dra_device(ref: DeviceRef) -> DraDevice:
    """A claim's device from its text, driver/pool/device. Only a pool's name may have slashes of its own."""
    driver, _, rest = ref.raw.partition("/")
    pool, _, device = rest.rpartition("/")
    return DraDevice(driver, pool, device)
