"""What the enforcer's parts hand to each other: caps that are wanted, what is there, and what is to be done. Frozen.

Memory is in bytes, and the limits that are set are whole MiB. Shares are whole percent, as the control commands take
them. A container is known by its pod's uid and its own name; the kernel's id for it changes when it is started anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from exporter.caps.requests import Reaction
from exporter.model import Backend, CgroupMemory, ContainerRef, MpsDaemon

MIB = 1 << 20


class PodId(NamedTuple):
    """A pod of this node. `uid` is the one of its cgroup; `api_uid` the API server's, another only for static pods."""

    namespace: str
    name: str
    uid: str
    api_uid: str = ""


class CapKey(NamedTuple):
    """What a cap is about: one container of a pod on one GPU."""

    pod: PodId
    container: str
    gpu_uuid: str


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap that holds after policy. `limit` is a whole number of MiB; None: no cap of memory, or of threads."""

    key: CapKey
    limit: int | None
    percentage: int | None
    reaction: Reaction = Reaction.WARN
    gated: bool = False  # the pod has a gate, an init container that waits for the receipt


@unique
class CapState(StrEnum):
    """Where a cap stands: the states of `podgpu_enforcer_caps`."""

    WANTED = "wanted"  # there is nothing yet that it could be applied to
    APPLIED = "applied"  # read back
    PENDING = "pending"  # as far as the present use allows; goes on by itself
    LATE = "late"  # applied after the job had begun, so that what was there before is not under it
    FAILED = "failed"
    UNSUPPORTED = "unsupported"  # nothing on this node can apply it


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as far as caps go. `cgroup` None: the node has no limits by control group for it."""

    uuid: str
    capacity: int | None = None
    cgroup: Backend | None = None
    mps: bool = True  # new enough for MPS with limits (Volta), and not in MIG mode
    mig: bool = False


class Level(NamedTuple):
    """A control group that can have a limit on one GPU: a container's, or (no container id) a pod's."""

    ref: ContainerRef
    gpu_uuid: str

    @property
    def order(self) -> tuple[str, str, str]:
        """What levels are sorted by: a pod's comes before those of its containers."""
        return self.ref.pod_uid, self.ref.container_id, self.gpu_uuid


class Client(NamedTuple):
    """A process that an MPS daemon lists, and the container that it is in. `started` is in seconds since boot."""

    pid: int
    pod_uid: str
    container: str
    started: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A pod that is let in while its server has the pod's limits (protocol 2). `began` is in seconds since boot.

    `usual` (MiB by ordinal) and `percentage` are what the server gives otherwise, and gets back afterwards.
    """

    pod_uid: str
    began: float
    usual: Mapping[int, int]
    percentage: float


@dataclass(frozen=True, slots=True)
class Records:
    """What this enforcer has set, as it is kept on disk: whatever is not in here is somebody else's.

    `limits` has what each control group was limited to before (None: nothing), `doors` the pipe directory that was
    opened to a container, `receipts` when each pod's caps had been read back (seconds since boot), `starts` the pod
    that is being let in, by pipe directory.
    """

    limits: Mapping[Level, int | None] = field(default_factory=lambda: MappingProxyType({}))
    doors: Mapping[tuple[str, str], str] = field(default_factory=lambda: MappingProxyType({}))  # (uid, container)
    receipts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    starts: Mapping[str, Start] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Seen:
    """What is there now.

    `pods` None: the pods, or their caps, are not known for certain, and then nothing is undone. `levels` has the
    control groups that exist, with None where nothing is told of their memory. `holders` are the containers that hold
    or use a GPU, by pod and GPU. `containers` are the kernel's names of each container that runs.
    """

    pods: frozenset[str] | None
    gpus: Mapping[str, Gpu]
    levels: Mapping[Level, CgroupMemory | None] = field(default_factory=lambda: MappingProxyType({}))
    holders: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    containers: Mapping[tuple[str, str], ContainerRef] = field(default_factory=lambda: MappingProxyType({}))
    daemons: Mapping[str, MpsDaemon] = field(default_factory=lambda: MappingProxyType({}))  # by pipe directory
    clients: Mapping[int, Client] = field(default_factory=lambda: MappingProxyType({}))  # by pid
    gated: frozenset[PodId] = frozenset()  # pods whose gate waits, if they have no receipt
    records: Records = field(default_factory=Records)
    now: float = 0.0  # seconds since boot


# --- actions: each is applied and read back as a whole, and may be repeated ------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitCgroup:
    """Limit a control group's memory on a GPU to `hard` bytes. `before` is what it was limited to."""

    level: Level
    hard: int
    before: int | None


@dataclass(frozen=True, slots=True)
class FreeCgroup:
    """Give a control group back the limit that it had (None: none)."""

    level: Level
    hard: int | None


@dataclass(frozen=True, slots=True)
class EnsureNamespace:
    """Have a namespace with these values on a server of protocol 3."""

    pipe_directory: str
    server: str
    name: str
    mebibytes: int
    percentage: int


@dataclass(frozen=True, slots=True)
class RemoveNamespace:
    """Remove a namespace of ours that has no clients."""

    pipe_directory: str
    server: str
    name: str


@dataclass(frozen=True, slots=True)
class OpenDoor:
    """Give a container the pipe directory of its namespace, which it could not see before."""

    pod_uid: str
    container: str
    pipe_directory: str


@dataclass(frozen=True, slots=True)
class CloseDoor:
    """Take the pipe directory back."""

    pod_uid: str
    container: str


@dataclass(frozen=True, slots=True)
class BeginStart:
    """Note that a pod is about to be let in by a server, and what the server is to be given back afterwards."""

    pipe_directory: str
    pod_uid: str
    usual: Mapping[int, int]  # MiB by ordinal
    percentage: float


@dataclass(frozen=True, slots=True)
class SetServer:
    """Set what a server of protocol 2 gives to its next clients."""

    pipe_directory: str
    server: int
    ordinal: int
    mebibytes: int
    percentage: float


@dataclass(frozen=True, slots=True)
class EndStart:
    """Note that nobody is being let in by a server any more."""

    pipe_directory: str


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """Tell the pod's gate that all its caps were read back."""

    pod: PodId
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropRecords:
    """Forget a pod that is gone, and its receipt."""

    pod_uid: str


@dataclass(frozen=True, slots=True)
class TerminateClient:
    """End one MPS client through its daemon. `server` is a pid in protocol 2, and not needed in 3."""

    pipe_directory: str
    protocol: int
    server: int | None
    pid: int
    pod: PodId


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Ask the API server to evict the pod, by its uid."""

    pod: PodId


Action: TypeAlias = (
    LimitCgroup
    | FreeCgroup
    | EnsureNamespace
    | RemoveNamespace
    | OpenDoor
    | CloseDoor
    | BeginStart
    | SetServer
    | EndStart
    | WriteReceipt
    | DropRecords
    | TerminateClient
    | EvictPod
)


@dataclass(frozen=True, slots=True)
class Step:
    """An action, and the pod for which it is done ("" for none): when one fails, later ones for that pod wait."""

    action: Action
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, in order, and where each cap stands before it."""

    steps: tuple[Step, ...] = ()
    states: Mapping[CapKey, CapState] = field(default_factory=lambda: MappingProxyType({}))
