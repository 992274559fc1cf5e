"""What MPS control daemons say in one cycle: servers, namespaces, clients, shares and limits.

Memory is in bytes, shares are ratios above 0 and at most 1. None: the daemon did not say, or nothing is set; where the
two must be told apart, a value is a `Failure` instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from types import MappingProxyType

from exporter.errors import Failure


@unique
class ServerStatus(StrEnum):
    """The states of an MPS server."""

    INITIALIZING = "initializing"
    ACTIVE = "active"  # "Ready" in protocol 3
    FAULT = "fault"
    UNKNOWN = "unknown"  # the control command of this driver does not tell, or tells something else


@dataclass(frozen=True, slots=True)
class PinnedLimit:
    """A limit of device memory for each client, as the daemon shows it.

    From 1 GiB on some daemons show whole GiB, rounded down. `shown` is what they show, `below` the first amount that
    they would show otherwise; with an exact reading `below` is `shown` + 1 MiB.
    """

    shown: int
    below: int

    @classmethod
    def exactly(cls, amount: int) -> "PinnedLimit":
        """A limit that is known to the byte."""
        return cls(amount, amount + (1 << 20))

    @property
    def exact(self) -> bool:
        """Whether it is what is shown."""
        return self.below <= self.shown + (1 << 20)


@dataclass(frozen=True, slots=True)
class MpsClient:
    """A process that is connected to a server. `pid` is in the daemon's pid namespace.

    `device` is the server's ordinal or a GPU's UUID (or its beginning); empty where the daemon does not tell. `pinned`
    is the limit under which it connected, by ordinal, where a log of the server tells; None where nothing tells.
    """

    pid: int
    device: str = ""
    namespace: str = ""
    pinned: Mapping[int, int] | None = None  # bytes


@dataclass(frozen=True, slots=True)
class MpsNamespace:
    """A namespace of protocol 3. Its limit holds for each client, on each device."""

    name: str
    ratio: float | Failure | None = None
    pinned: PinnedLimit | Failure | None = None
    pipe_directory: str = ""


@dataclass(frozen=True, slots=True)
class MpsServer:
    """A server. `name` is the daemon's in protocol 3; before that it is uid_<uid>, as protocol 3 calls such servers.

    `pinned` has the limit by ordinal. In protocol 3 a server's own values are those of its namespace `default`.
    """

    name: str
    pid: int | None
    uid: int | None
    status: ServerStatus
    clients: tuple[MpsClient, ...] | Failure = ()
    ratio: float | Failure | None = None
    pinned: Mapping[int, PinnedLimit | None] | Failure = field(default_factory=lambda: MappingProxyType({}))
    namespaces: tuple[MpsNamespace, ...] = ()
    devices: tuple[str, ...] | None = None  # the UUIDs of its ordinals; None where that can't be told


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """A control daemon that answered. `started` is in clock ticks since boot; None where its process is not seen.

    The default share and limits are those that the next server will start with; protocol 3 has none.
    """

    protocol: int
    pid: int | None = None
    started: int | None = None
    servers: tuple[MpsServer, ...] = ()
    ratio: float | None = None
    pinned: Mapping[int, PinnedLimit | None] = field(default_factory=lambda: MappingProxyType({}))
    errors: tuple[Failure, ...] = ()  # what of it could not be read


@dataclass(frozen=True, slots=True)
class MpsReading:
    """The daemons of the node by pipe directory. A directory whose daemon does not answer has a failure."""

    daemons: Mapping[str, MpsDaemon | Failure]


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """What of MPS the environment of a process says; None: the variable is not set.

    It is what the process was started with. A process may change its own later, before it uses CUDA or in memory, so
    this is a claim.
    """

    pinned: str | None = None  # CUDA_MPS_PINNED_DEVICE_MEM_LIMIT
    percentage: str | None = None  # CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
    pipe_directory: str | None = None  # CUDA_MPS_PIPE_DIRECTORY, as the process sees the file system
    cuda_devices: str | None = None  # CUDA_VISIBLE_DEVICES
    nvidia_devices: str | None = None  # NVIDIA_VISIBLE_DEVICES


@dataclass(frozen=True, slots=True)
class EnvironmentReading:
    """The environments of the processes that were asked for, by pid."""

    environments: Mapping[int, ClientEnvironment | Failure]
