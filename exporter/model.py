"""The values that pass between the parts: frozen, without behaviour beyond their own arithmetic.

Sources make *readings*, attribution joins the readings to a *snapshot*, metrics prints the snapshot. All memory is in
bytes. Monotonic times are seconds of `time.monotonic`, Unix times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from exporter.errors import Failure, Reason

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """One answer of one source: a value or a failure, never both and never neither."""

    source: str
    outcome: T | Failure
    seconds: float = 0.0

    @property
    def value(self) -> T | None:
        """The value, or None when the source failed."""
        return None if isinstance(self.outcome, Failure) else self.outcome

    @property
    def failure(self) -> Failure | None:
        """The failure, or None when the source answered."""
        return self.outcome if isinstance(self.outcome, Failure) else None


# --- the driver ---------------------------------------------------------------------------------------------------


@unique
class ListKind(StrEnum):
    """The three process lists of the driver. One process may stand in several of them with the same total."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


@dataclass(frozen=True, slots=True)
class Device:
    """What does not change while a GPU stays: read once per discovery. None: the driver does not tell."""

    index: int  # NVML index; may differ from the CUDA ordinal
    uuid: str  # "GPU-..."
    name: str
    minor: int | None = None  # N of /dev/nvidiaN
    pci_bus_id: str = ""
    compute_capability: tuple[int, int] | None = None
    compute_mode: str = ""
    persistence: bool | None = None
    mig_mode: bool | None = None


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One compute instance of one GPU instance, as NVML's MIG handles show it."""

    uuid: str  # "MIG-..."
    gpu_instance: int
    compute_instance: int
    profile: str = ""


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """A memory domain's capacity and how much of it is free and reserved, in bytes.

    `reserved` is None where only the first version of the call answers; what is reserved then counts as used. `used`
    is derived, because drivers disagree on whether their own "used" contains the reserved part; total, free and
    reserved do not leave that open.
    """

    total: int
    free: int
    reserved: int | None = None

    @property
    def used(self) -> int:
        """Bytes in use by anything but the driver's reservation."""
        return self.total - self.free - (self.reserved or 0)


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process of one list. `used` is the process's total on this domain in bytes; None: the driver won't tell."""

    pid: int
    used: int | None


@dataclass(frozen=True, slots=True)
class ProcessList:
    """The accepted rows of one list. `truncated`: the kernel stops at 950 processes without saying so."""

    rows: tuple[ProcessRow, ...] = ()
    truncated: bool = False
    rejected: int = 0  # rows that cannot be true (pid 0, memory above capacity)


@dataclass(frozen=True, slots=True)
class DomainReading:
    """One memory domain: a GPU, or one GPU instance under MIG (then `gpu_instance` is its id)."""

    gpu_instance: int | None
    memory: MemoryInfo | Failure
    lists: Mapping[ListKind, ProcessList | Failure]
    memory_view_limited: bool = False  # the driver showed less than the known capacity: we sit in a limited cgroup


@dataclass(frozen=True, slots=True)
class ProcessUtilization:
    """Mean of one process's samples, as the share 0..1 of the SMs' time. None: no sample of it could be used."""

    pid: int
    sm: float | None


@dataclass(frozen=True, slots=True)
class UtilizationWindow:
    """The processes that the driver saw busy since the cycle before, each once. Who is not among them was idle."""

    processes: tuple[ProcessUtilization, ...] = ()
    rejected: int = 0  # samples that cannot be true (pid 0, above 100 %, outside the window)


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One GPU in one cycle. `failure` is set when the GPU itself could not be asked; then there are no domains."""

    device: Device
    domains: tuple[DomainReading, ...] = ()
    mig_devices: tuple[MigDevice, ...] = ()
    utilization: float | None = None  # 0..1, share of time in which at least one kernel ran; None under MIG
    process_utilization: UtilizationWindow | Failure | None = None  # None under MIG, where nobody is asked
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class DriverReading:
    """Everything the driver said in one cycle. `failures`: GPUs that could not even be identified."""

    driver_version: str
    cuda_version: str
    devices: tuple[DeviceReading, ...]
    failures: tuple[Failure, ...] = ()
    mps_enumeration: bool = False  # NVML_MPS_DEVICE_ENUMERATION was set for us, and removed


# --- processes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ContainerRef:
    """A container as the kernel names it. `container_id` is empty when only the pod is known; `pod_uid` likewise."""

    pod_uid: str
    container_id: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process lives: in a container, on the host (both None), or not to be told (`reason` set).

    `names_mps_server` says that the process calls itself nvidia-cuda-mps-server. Names are chosen by whoever runs the
    process, so this is a claim; attribution decides whether to believe it.
    """

    container: ContainerRef | None = None
    reason: Reason | None = None
    names_mps_server: bool = False


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """The places of the processes that were asked for, by pid."""

    places: Mapping[int, Place]


# --- Kubernetes ---------------------------------------------------------------------------------------------------


class ContainerName(NamedTuple):
    """A container as Kubernetes names it, and as the labels of a series say it.

    A named tuple, as `DomainKey` is: both are looked up thousands of times a cycle, and a tuple hashes fastest.
    """

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class PodNames:
    """Names of this node's pods: by pod uid, and by container id."""

    pods: Mapping[str, tuple[str, str]]  # pod uid -> (namespace, pod)
    containers: Mapping[str, ContainerName]  # container id -> name


@dataclass(frozen=True, slots=True)
class LivePods:
    """The uids of the pods that have a cgroup on this node."""

    uids: frozenset[str]


@unique
class DeviceKind(StrEnum):
    """What a device id names."""

    GPU = "gpu"
    MIG = "mig"
    ALL = "all"  # every GPU of the node
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """A device id of the kubelet, taken apart. Which of the fields are set depends on the allocator's way of naming."""

    raw: str
    kind: DeviceKind
    uuid: str = ""  # "GPU-..." or "MIG-..."
    minor: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    replica: str = ""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of one resource that the kubelet gave to one container.

    `reserves`: the container only holds the devices for a scheduler (KAI, Run:ai), which gives parts of them to others.
    """

    name: ContainerName
    resource: str
    devices: tuple[DeviceRef, ...]
    reserves: bool = False


DRA_DRIVER = "gpu.nvidia.com"  # the driver of NVIDIA's GPUs under DRA; allocations of claims carry it as resource


class DraDevice(NamedTuple):
    """A device's identity under dynamic resource allocation (DRA): what claims and ResourceSlices name it by."""

    driver: str
    pool: str
    device: str


@unique
class DraType(StrEnum):
    """What a DRA device is."""

    GPU = "gpu"
    MIG = "mig"
    VFIO = "vfio"  # passed through to a virtual machine: the host's driver does not see it


@dataclass(frozen=True, slots=True)
class DraAttributes:
    """What a ResourceSlice says of one device. Empty: it does not say, as of a MIG device that is made on demand."""

    type: DraType
    uuid: str = ""  # "GPU-..." or "MIG-..."
    parent_uuid: str = ""  # of a MIG device
    profile: str = ""  # of a MIG device


@dataclass(frozen=True, slots=True)
class SliceReading:
    """The DRA devices of this node."""

    devices: Mapping[DraDevice, DraAttributes]


@dataclass(frozen=True, slots=True)
class AllocationReading:
    """What the kubelet handed out, and what it could hand out (None: it would not say)."""

    allocations: tuple[Allocation, ...]
    allocatable: tuple[tuple[str, DeviceRef], ...] | None = None  # (resource, device)


# --- the snapshot -------------------------------------------------------------------------------------------------


@unique
class MemoryClass(StrEnum):
    """The classes that partition a memory domain. Each byte of the capacity is in exactly one."""

    CONTAINERS = "containers"
    HOST = "host"
    MPS_SERVER = "mps_server"
    UNRESOLVED = "unresolved"
    REMAINDER = "remainder"
    UNREAD = "unread"
    RESERVED = "reserved"
    FREE = "free"


class DomainKey(NamedTuple):
    """The labels of a memory domain. `gpu_instance` is empty unless MIG is on."""

    gpu: int
    gpu_uuid: str
    gpu_instance: str = ""


@unique
class Isolation(StrEnum):
    """What keeps the tenants of a memory domain from each other's memory."""

    EXCLUSIVE = "exclusive"  # there is only one
    HARDWARE = "hardware"  # one tenant on a MIG GPU instance
    NONE = "none"  # time-slicing, MPS without enforced caps, several compute instances of a GPU instance


@dataclass(frozen=True, slots=True)
class DomainState:
    """One memory domain in a snapshot."""

    key: DomainKey
    up: bool
    capacity: int | None = None
    classes: Mapping[MemoryClass, int] = field(default_factory=lambda: MappingProxyType({}))
    over_attributed: int | None = None
    unresolved: Mapping[Reason, int] = field(default_factory=lambda: MappingProxyType({}))  # processes, by reason
    slots: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # resource -> replicas advertised
    tenants: tuple[int, Isolation] | None = None  # namespaces that hold or use it, and what is between them


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One GPU in a snapshot. A GPU that was lost stays, with `up` 0 on its domains."""

    device: Device
    domains: tuple[DomainState, ...]
    mig_devices: tuple[MigDevice, ...] = ()
    utilization: float | None = None


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One container on one memory domain. None: not known in this cycle, and then not printed."""

    name: ContainerName
    domain: DomainKey
    used: int | None
    processes: Mapping[ListKind, int] | None  # each process once: mps before compute before graphics
    processes_memory_unknown: int | None
    allocated: bool | None = None
    slots: int | None = None
    share: float | None = None
    utilization: float | None = None  # 0..1, of the SMs' time; an estimate where clients share the GPU


@unique
class Condition(StrEnum):
    """States of the node that make numbers incomplete, each 0 or 1 in `podgpu_condition`."""

    BLIND_PID_NAMESPACE = "blind_pid_namespace"
    OVER_ATTRIBUTED = "over_attributed"
    PROCESS_LIST_TRUNCATED = "process_list_truncated"
    ROWS_REJECTED = "rows_rejected"
    MEMORY_VIEW_LIMITED = "memory_view_limited"
    CLIENT_MEMORY_HIDDEN = "client_memory_hidden"  # pre-Volta MPS: only the server's row exists
    UNKNOWN_DEVICE_ALLOCATED = "unknown_device_allocated"
    MPS_DEVICE_ENUMERATION = "mps_device_enumeration"
    UTILIZATION_SAMPLES_REJECTED = "utilization_samples_rejected"


@dataclass(frozen=True, slots=True)
class SourceState:
    """One source in one cycle. `failure`: it gave nothing. `errors`: it answered, but parts of it failed."""

    source: str
    failure: Failure | None
    seconds: float
    errors: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that one cycle found out. Sorted, so that no output depends on the order of an input."""

    timestamp: float  # Unix time at which the readings were complete
    driver: tuple[str, str] | None  # driver version, CUDA version
    devices: tuple[DeviceState, ...]
    containers: tuple[ContainerState, ...]
    sources: tuple[SourceState, ...]
    conditions: Mapping[Condition, bool]


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been counted since the exporter started, as it stood when the snapshot was taken."""

    errors: Mapping[tuple[str, Reason], int]  # (source, reason) -> failures
    last_success: Mapping[str, float]  # source -> Unix time
    cycles: Mapping[str, int]  # result -> cycles
    peaks: Mapping[tuple[ContainerName, DomainKey], int] = field(default_factory=dict)  # bytes
