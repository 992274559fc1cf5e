"""Which processes are clients of which MPS server, and what limits each of them: the daemons' lists, by pid. Pure.

A daemon's word on a client is what its server enforces, so this is the strong side; what the client's own environment
says is `exporter.mps_variables`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, unique

from exporter.errors import Failure
from exporter.model import Mechanism, MpsClient, MpsDaemon, MpsNamespace, MpsReading, MpsServer, PinnedLimit

DEFAULT_NAMESPACE = "default"  # its values are those of the server


@unique
class Unknown(Enum):
    """The value of something that cannot be told, beside None for "there is none"."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


@dataclass(frozen=True, slots=True)
class Membership:
    """A client with the server that it is connected to, and (protocol 3) its namespace, where that is listed."""

    pipe_directory: str
    protocol: int
    server: MpsServer
    client: MpsClient
    namespace: MpsNamespace | None = None

    @property
    def mechanism(self) -> Mechanism:
        """What a limit of this client's is set on."""
        named = self.protocol >= 3 and self.client.namespace not in ("", DEFAULT_NAMESPACE)
        return Mechanism.MPS_NAMESPACE if named else Mechanism.MPS_SERVER

    def ordinal(self, gpu_uuid: str) -> int | None:
        """The server's ordinal of a GPU."""
        devices = self.server.devices
        return devices.index(gpu_uuid) if devices is not None and gpu_uuid in devices else None

    def pinned(self, gpu_uuid: str) -> PinnedLimit | Unknown | None:
        """The limit that the daemon sets to this client's memory on a GPU. None: no limit."""
        if self.protocol >= 3:
            if self.namespace is None or isinstance(self.namespace.pinned, Failure):
                return UNKNOWN
            return self.namespace.pinned
        ordinal = self.ordinal(gpu_uuid)
        if ordinal is None:
            return UNKNOWN
        if self.client.pinned is not None:
            latched = self.client.pinned.get(ordinal)
            return None if latched is None else PinnedLimit.exactly(latched)
        if isinstance(self.server.pinned, Failure) or ordinal not in self.server.pinned:
            return UNKNOWN
        return self.server.pinned[ordinal]

    @property
    def latched(self) -> bool:
        """Whether the limit is known to be the one under which the client connected.

        Before protocol 3 a server's limit is for clients yet to come, so its present value proves nothing about one
        that is there. A namespace belongs to its clients from before they connect.
        """
        return self.protocol >= 3 or self.client.pinned is not None

    @property
    def ratio(self) -> float | Unknown | None:
        """The share of threads that the daemon sets. None: it sets none."""
        source = self.namespace if self.protocol >= 3 else self.server
        if source is None or isinstance(source.ratio, Failure):
            return UNKNOWN
        return source.ratio


class Memberships:
    """The clients of all daemons of the node, by pid."""

    def __init__(self, reading: MpsReading) -> None:
        self.complete = True  # no list of clients is missing, so a process in none of them is no client
        self._by_pid: dict[int, Membership | None] = {}  # None: two servers claim the pid
        for pipe_directory, daemon in reading.daemons.items():
            if isinstance(daemon, Failure):
                self.complete = False
                continue
            for membership in self._members(pipe_directory, daemon):
                pid = membership.client.pid
                self._by_pid[pid] = None if pid in self._by_pid else membership

    @classmethod
    def unread(cls) -> "Memberships":
        """Those of a node whose daemons could not be asked: nobody is known to be a client, nor not to be one."""
        found = cls(MpsReading({}))
        found.complete = False
        return found

    def of(self, pid: int) -> Membership | None:
        """The membership of a process; None where it has none, or where that is not clear."""
        return self._by_pid.get(pid)

    def is_outside(self, pid: int) -> bool:
        """Whether the process is known to be no client."""
        return self.complete and pid not in self._by_pid

    def _members(self, pipe_directory: str, daemon: MpsDaemon) -> Iterator[Membership]:
        for server in daemon.servers:
            if isinstance(server.clients, Failure):
                self.complete = False
                continue
            namespaces = {namespace.name: namespace for namespace in server.namespaces}
            for client in server.clients:
                namespace = namespaces.get(client.namespace or DEFAULT_NAMESPACE)
                yield Membership(pipe_directory, daemon.protocol, server, client, namespace)
