"""What one cycle found out, joined: devices, containers, sources, conditions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import Failure, Reason
from exporter.model.driver import Device, ListKind, MigDevice
from exporter.model.kubernetes import ContainerName


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
    requested: int | None = None  # bytes that its pod asks to be guaranteed on this domain
    limit: int | None = None  # bytes that its pod, or the cluster's policy, asks it to stay under
    mps_thread_ratio: float | None = None  # 0..1, the share of the SMs' threads that MPS lets it have


@dataclass(frozen=True, slots=True)
class PodState:
    """A pod that has a container in the snapshot, as Kubernetes describes it."""

    namespace: str
    name: str
    uid: str
    workload_kind: str
    workload: str
    priority_class: str
    qos: str
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


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
    pods: tuple[PodState, ...] = ()
    annotation_errors: Mapping[tuple[ContainerName, str], int] = field(  # by container (may be empty) and reason
        default_factory=lambda: MappingProxyType({})
    )
    monotonic: float = 0.0  # the same instant on the monotonic clock, in seconds
