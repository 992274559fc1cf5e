"""What a scenario file says: GPUs, how they are shared, pods, processes, and how these change over time.

A scenario is data: YAML, checked on reading, with errors that name the place. Everything that it leaves out is derived
from names, so that a scenario gives the same node, byte for byte, each time. `simulator/scenarios/mixed.yaml` shows
every field.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


class ScenarioError(Exception):
    """A scenario that can't be used, in one line that names the file and the place."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a process holds: constant, or rising and falling between two values in a period of seconds."""

    least: int
    most: int
    period: float = 0.0

    def at(self, seconds: float) -> int:
        """The bytes at a time. In whole MiB, as allocators ask for memory."""
        mebibytes = (self.most - self.least) >> 20
        return self.least + (round(mebibytes * _height(seconds, self.period)) << 20)


@dataclass(frozen=True, slots=True)
class Load:
    """Percent of the SMs' time that a process takes: constant, or rising and falling as memory does."""

    least: int = 0
    most: int = 0
    period: float = 0.0

    def at(self, seconds: float) -> int:
        """The percent at a time."""
        return self.least + round((self.most - self.least) * _height(seconds, self.period))


def _height(seconds: float, period: float) -> float:
    """0 at the start of each period, 1 in its middle, straight in between; always 0 without a period."""
    if not period:
        return 0.0
    phase = seconds % period / period
    return 2 * phase if phase < 0.5 else 2 * (1 - phase)


@dataclass(frozen=True, slots=True)
class Process:
    """One process on one GPU. `lists` are the driver's lists that show it. Memory None: the driver does not tell."""

    command: tuple[str, ...]
    gpu: int
    memory: Memory | None
    lists: tuple[str, ...]
    gpu_instance: int | None = None
    compute_instance: int = 0
    start: float = 0.0
    end: float = float("inf")
    sm: Load = Load()
    pipe: str = ""  # its MPS pipe directory, below the node's /run; none: it has none; empty: that of the only daemon
    environ: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """What the kubelet gave to a container: slots of a GPU (or of one of its MIG devices)."""

    gpu: int
    slots: int = 1
    gpu_instance: int | None = None
    compute_instance: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim (dynamic resource allocation) of a container: on a GPU, on one of its MIG devices, or on any `device`.

    Containers that give the same name share the claim, and must give the same device.
    """

    name: str
    gpu: int = 0
    gpu_instance: int | None = None
    compute_instance: int = 0
    device: str = ""  # a name as no GPU of the node has it


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod. `memory_limit`: bytes on each of its GPUs that its cgroup is limited to, if it is."""

    name: str
    holds: tuple[Held, ...] = ()
    claims: tuple[Claim, ...] = ()
    processes: tuple[Process, ...] = ()
    memory_limit: int | None = None

    @property
    def gpus(self) -> frozenset[int]:
        """The GPUs that it was given or uses."""
        given = {claim.gpu for claim in self.claims if not claim.device}
        return frozenset(given.union((held.gpu for held in self.holds), (process.gpu for process in self.processes)))


@dataclass(frozen=True, slots=True)
class Owner:
    """What made a pod."""

    kind: str
    name: str
    api_version: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, present from `start` until `end` (seconds). `memory_limit` is that of its own cgroup, in bytes.

    `gated`: it has a gate, an init container after which its containers start when the enforcer has written a receipt.
    """

    namespace: str
    name: str
    qos: str = "burstable"
    runtime: str = "containerd"
    containers: tuple[Container, ...] = ()
    start: float = 0.0
    end: float = float("inf")
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    priority_class: str = ""
    memory_limit: int | None = None
    gated: bool = False

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(uuid.uuid5(_NAMESPACE, f"{self.namespace}/{self.name}"))

    def container_id(self, container: str) -> str:
        """The id of one of its containers."""
        return hashlib.sha256(f"{self.uid}/{container}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One compute instance of one GPU instance. `slot` is its index among the GPU's MIG devices; holes are allowed."""

    gpu_instance: int
    compute_instance: int
    slot: int
    slices: int
    memory: int
    overhead: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `overhead`: bytes in use that no process's row explains."""

    index: int
    name: str
    memory: int
    reserved: int
    overhead: int
    sharing: str
    replicas: int
    resource: str
    compute_capability: tuple[int, int]
    utilization: int
    minor: int
    ids: str = "nvidia"
    mig: tuple[MigDevice, ...] = ()

    @property
    def pci_bus_id(self) -> str:
        """Where it sits, as NVML writes it."""
        return f"00000000:{0x17 + self.index:02X}:00.0"

    @property
    def uuid(self) -> str:
        """The GPU's UUID."""
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'gpu/{self.index}')}"

    def profile(self, mig: MigDevice) -> str:
        """The profile of a MIG device, such as 1g.10gb, or 1c.3g.40gb for a part of a GPU instance."""
        slices = sum(other.slices for other in self.mig if other.gpu_instance == mig.gpu_instance)
        part = "" if mig.slices == slices else f"{mig.slices}c."
        return f"{part}{slices}g.{round(mig.memory / (1 << 30))}gb"

    def mig_uuid(self, gpu_instance: int, compute_instance: int) -> str:
        """The UUID of one of its MIG devices."""
        return f"MIG-{uuid.uuid5(_NAMESPACE, f'gpu/{self.index}/{gpu_instance}/{compute_instance}')}"


@dataclass(frozen=True, slots=True)
class MpsNamespace:
    """A namespace of an MPS server. `limit` is in bytes; None: not set."""

    name: str
    percentage: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class MpsServer:
    """A named MPS server."""

    name: str
    namespaces: tuple[MpsNamespace, ...] = ()


@dataclass(frozen=True, slots=True)
class Daemon:
    """An MPS control daemon. `pipe` is below the node's /run; `devices` are the GPUs that it sees (None: all).

    Protocol 2 has a default percentage and limits (bytes by ordinal), protocol 3 has servers. One that is `managed` is
    not started with the node: the enforcer does that. `restart_every` (seconds): it is ended and started anew so often.
    """

    pipe: str
    protocol: int = 2
    devices: tuple[int, ...] | None = None
    multiuser: bool = False
    percentage: int | None = None
    limits: Mapping[int, int] = field(default_factory=dict)
    servers: tuple[MpsServer, ...] = ()
    managed: bool = False
    restart_every: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole node."""

    name: str
    description: str
    driver: str
    cuda: str
    cgroup_driver: str
    gpus: tuple[Gpu, ...]
    pods: tuple[Pod, ...]
    host: tuple[Process, ...] = field(default=())
    pods_sources: tuple[str, ...] = ("logs",)  # from where an exporter can learn of the pods: kubelet, api, logs
    dmem: bool = False  # the kernel has the dmem controller
    mps: tuple[Daemon, ...] = ()
    enforcer: tuple[str, ...] | None = None  # the flags of the node's enforcer; None: it has none
    memory_limits: str = "off"  # who keeps limits of GPU memory by cgroup: dmem, misc (the driver's own table), off
