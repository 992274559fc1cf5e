"""What one cycle found out, joined: devices, containers, sources, conditions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import NamedTuple

from exporter.errors import Failure, Reason
from exporter.model.driver import Device, ListKind, MigDevice
from exporter.model.kubernetes import ContainerName
from exporter.model.mps import MpsDaemon


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
    MEMORY = "memory"  # every tenant has a cap, and each of them holds
    NONE = "none"  # time-slicing, MPS without enforced caps, several compute instances of a GPU instance


@unique
class Mechanism(StrEnum):
    """What applies a cap to a container's memory."""

    CGROUP = "cgroup"  # the driver, by control group: all processes of the container together
    MPS_NAMESPACE = "mps_namespace"  # the MPS server, for each client of the namespace
    MPS_SERVER = "mps_server"  # the MPS server, for each client
    CLIENT_ENV = "client_env"  # the client itself, by a variable that it could have left out


@unique
class ShareSource(StrEnum):
    """What sets a container's share of threads."""

    NAMESPACE = "namespace"
    SERVER = "server"
    CLIENT_ENV = "client_env"
    DEFAULT = "default"  # nothing does


@unique
class CapCondition(StrEnum):
    """Why a container's cap is not known to hold."""

    LIMIT_MISSING = "limit_missing"  # nothing limits some process of it
    LIMIT_UNKNOWN = "limit_unknown"  # what limits it can't be read now
    LIMIT_ABOVE_CAP = "limit_above_cap"
    LIMIT_UNPROVEN = "limit_unproven"  # the reading is rounded, or is not known to be of the time when a client came
    OUTSIDE_MPS = "outside_mps"  # a process is no MPS client
    OTHER_NAMESPACE = "other_namespace"  # a client is not in the namespace that was made for it
    SEVERAL_CLIENTS = "several_clients"  # each is under a limit, and these add up to more than the cap
    VARIABLE_VOIDS_LIMIT = "variable_voids_limit"  # a client's environment names a GPU that it can't see
    ENVIRONMENT_UNREADABLE = "environment_unreadable"
    NOT_ALL_CHARGED = "not_all_charged"  # memory from before the limit does not count against it
    ABOVE_CAP = "above_cap"


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
    pids: tuple[int, ...] = ()
    mps_clients: int | None = None  # how many of its processes are MPS clients
    mps_thread_ratio: float | None = None  # 0..1, the share that each of its MPS clients may use, at most
    mps_thread_source: ShareSource | None = None
    charged: int | None = None  # bytes that the kernel or the driver charges to its cgroup
    applied: Mapping[Mechanism, int] = field(default_factory=lambda: MappingProxyType({}))  # bytes, read back
    enforced: bool | None = None  # None: no cap, or nothing that could show whether it holds
    cap_conditions: tuple[CapCondition, ...] = ()


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
    CLIENT_ENVIRONMENT_UNREADABLE = "client_environment_unreadable"


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
    mps: Mapping[str, MpsDaemon | Failure] = field(default_factory=lambda: MappingProxyType({}))  # by pipe directory
    monotonic: float = 0.0  # the same instant on the monotonic clock, in seconds
