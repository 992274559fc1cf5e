"""Where processes live, what Kubernetes calls these places, and which devices it handed out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import NamedTuple

from exporter.errors import Failure, Reason


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


class ContainerName(NamedTuple):
    """A container as Kubernetes names it, and as the labels of a series say it.

    A named tuple, as `DomainKey` is: both are looked up thousands of times a cycle, and a tuple hashes fastest.
    """

    namespace: str
    pod: str
    container: str


@unique
class ContainerKind(StrEnum):
    """When in a pod's life a container runs."""

    MAIN = "main"
    INIT = "init"  # before the main ones
    SIDECAR = "sidecar"  # from before the main ones until after them
    EPHEMERAL = "ephemeral"  # put into a running pod for debugging


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container of a pod. `ids` are those of its present and its last run; empty until it has started."""

    name: str
    kind: ContainerKind = ContainerKind.MAIN
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Owner:
    """What a pod belongs to, as an owner reference says it. `controller`: this one makes and replaces the pod."""

    kind: str
    name: str
    api_version: str = ""
    uid: str = ""
    controller: bool = False


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of this node, as Kubernetes describes it. Labels and annotations are whatever the pod's author wrote.

    `static_uid` is set for the API server's mirror of a static pod: the kubelet's own uid for it, which the pod's
    cgroup has.
    """

    uid: str
    namespace: str
    name: str
    static_uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[Owner, ...] = ()
    containers: tuple[PodContainer, ...] = ()
    phase: str = ""
    qos: str = ""
    priority_class: str = ""

    @property
    def cgroup_uid(self) -> str:
        """The uid under which the kernel knows the pod."""
        return self.static_uid or self.uid


@dataclass(frozen=True, slots=True)
class PodNames:
    """This node's pods: their names by pod uid and by container id, and whole where the source tells more than names.

    A uid never gets another name, so names may outlive the pod and the connection to the source. `by_uid` has the
    present pods, each once, by the uid of its cgroup. `stale` says why the source's last word is not of now.
    """

    pods: Mapping[str, tuple[str, str]]  # pod uid -> (namespace, pod)
    containers: Mapping[str, ContainerName]  # container id -> name
    by_uid: Mapping[str, Pod] = field(default_factory=dict)
    stale: Failure | None = None


NO_NAMES = PodNames({}, {})


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
