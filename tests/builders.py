"""Readings for tests, built from the little that a test is about."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from exporter.attribution import attribute
from exporter.errors import Failure, Reason
from exporter.model import (
    Allocation,
    AllocationReading,
    ContainerName,
    ContainerRef,
    ContainerState,
    Device,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainReading,
    DomainState,
    DriverReading,
    ListKind,
    LivePods,
    MemoryInfo,
    MigDevice,
    Place,
    Pod,
    PodNames,
    ProcessList,
    ProcessReading,
    ProcessRow,
    Reading,
    SliceReading,
    Snapshot,
)

MIB = 1 << 20
GIB = 1 << 30
U1, U2, U3 = (f"GPU-{n * 8}-0000-0000-0000-000000000000" for n in "123")
UNSUPPORTED = Failure(Reason.NOT_SUPPORTED, "not on this driver")


def uid(pod: str) -> str:
    return f"uid-of-{pod}"


def rows(*entries: tuple[int, int | None]) -> ProcessList:
    return ProcessList(tuple(ProcessRow(pid, used) for pid, used in entries))


_EMPTY = ProcessList()


def lists(
    compute: ProcessList | Failure = _EMPTY,
    graphics: ProcessList | Failure = _EMPTY,
    mps: ProcessList | Failure = _EMPTY,
) -> Mapping[ListKind, ProcessList | Failure]:
    return {ListKind.COMPUTE: compute, ListKind.GRAPHICS: graphics, ListKind.MPS: mps}


def memory(*, used: int, total: int = 80 * GIB, reserved: int | None = 600 * MIB) -> MemoryInfo:
    return MemoryInfo(total, total - used - (reserved or 0), reserved)


def gpu(
    found: Mapping[ListKind, ProcessList | Failure] | None = None,
    info: MemoryInfo | Failure | None = None,
    *,
    index: int = 0,
    uuid: str = U1,
    capability: tuple[int, int] = (9, 0),
    failure: Failure | None = None,
) -> DeviceReading:
    """A GPU without MIG."""
    device = Device(index, uuid, "NVIDIA H100", minor=index, compute_capability=capability, mig_mode=False)
    if failure is not None:
        return DeviceReading(device, failure=failure)
    domain = DomainReading(None, info if info is not None else memory(used=40 * GIB), found or lists())
    return DeviceReading(device, (domain,), utilization=0.5)


def mig_gpu(
    domains: Sequence[DomainReading], migs: Sequence[MigDevice], *, index: int = 0, uuid: str = U1
) -> DeviceReading:
    """A GPU with MIG on."""
    return DeviceReading(Device(index, uuid, "NVIDIA H100", minor=index, mig_mode=True), tuple(domains), tuple(migs))


def in_pod(pod: str, container: str = "main", *, server: bool = False) -> Place:
    return Place(ContainerRef(uid(pod), f"{pod}/{container}"), names_mps_server=server)


HOST = Place()
HOST_SERVER = Place(names_mps_server=True)


def names_of(*containers: str) -> PodNames:
    """Names for containers written as pod/container; the namespace is "ns"."""
    pairs = [entry.split("/") for entry in containers]
    return PodNames(
        {uid(pod): ("ns", pod) for pod, _ in pairs},
        {f"{pod}/{container}": ContainerName("ns", pod, container) for pod, container in pairs},
    )


def ref(raw: str) -> DeviceRef:
    """A device id, by the shapes that these tests use."""
    plain, _, replica = raw.partition("::")
    if plain.startswith("MIG-"):
        return DeviceRef(raw, DeviceKind.MIG, uuid=plain, replica=replica)
    if plain.startswith("GPU-"):
        return DeviceRef(raw, DeviceKind.GPU, uuid=plain, replica=replica)
    return DeviceRef(raw, DeviceKind.ALL if raw == "all" else DeviceKind.UNKNOWN)


def given(pod: str, *ids: str, container: str = "main", resource: str = "nvidia.com/gpu") -> Allocation:
    return Allocation(ContainerName("ns", pod, container), resource, tuple(ref(raw) for raw in ids))


def allocated(*allocations: Allocation, advertised: Sequence[str] = ()) -> AllocationReading:
    return AllocationReading(tuple(allocations), tuple(("nvidia.com/gpu", ref(raw)) for raw in advertised))


def snapshot_of(
    *devices: DeviceReading,
    places: Mapping[int, Place] | Failure | None = None,
    names: PodNames | Failure | None = None,
    allocations: AllocationReading | Failure | None = None,
    driver: Failure | None = None,
    live: LivePods | None = None,
    slices: SliceReading | Failure | None = None,
    pods: Sequence[Pod] = (),
    at: float = 0.0,
) -> Snapshot:
    """The snapshot of GPUs at a monotonic time, with everything else working unless a test says otherwise."""
    found = places if isinstance(places, Failure) else ProcessReading(places or {})
    return attribute(
        driver=Reading("nvml", driver or DriverReading("580.95.05", "13.0", tuple(devices))),
        processes=Reading("procfs", found),
        names=Reading("pods", _described(names if names is not None else PodNames({}, {}), pods)),
        allocations=Reading("kubelet", allocations if allocations is not None else AllocationReading(())),
        live=Reading("cgroups", live if live is not None else Failure(Reason.MISSING, "no pod's cgroup is visible")),
        slices=Reading("resourceslices", slices) if slices is not None else None,
        timestamp=1000.0,
        monotonic=at,
    )


def _described(names: PodNames | Failure, pods: Sequence[Pod]) -> PodNames | Failure:
    return names if isinstance(names, Failure) else replace(names, by_uid={pod.uid: pod for pod in pods})


def only_domain(snapshot: Snapshot) -> DomainState:
    (device,) = snapshot.devices
    (domain,) = device.domains
    return domain


def used_by_pod(snapshot: Snapshot, uuid: str = U1) -> dict[str, int | None]:
    """Bytes by pod (or pod/container for containers not called main) on one GPU."""
    return {_short(state): state.used for state in snapshot.containers if state.domain.gpu_uuid == uuid}


def _short(state: ContainerState) -> str:
    return state.name.pod if state.name.container in ("main", "") else f"{state.name.pod}/{state.name.container}"
