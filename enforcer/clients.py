"""Which MPS clients a pod has, and how each would be ended. Pure.

Guarantees: a client is a pod's only where a daemon lists it, its process is in the pod, and no second server lists the
same pid, as happens with daemons in pid namespaces of their own. Whether these are all that the pod has is another
question, with an answer of its own.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from enforcer.model import PodId, Seen, TerminateClient
from exporter.errors import Failure
from exporter.model import MpsDaemon, MpsReading, ProcessReading, Reading

_NOBODY = PodId("", "", "")


@dataclass(frozen=True, slots=True)
class MpsClients:
    """The listed clients of the node, by pid. `doubtful`: pids that two servers list, which name nobody.

    `complete`: of every client of the node it is known whose it is.
    """

    seen: Seen
    endings: Mapping[int, TerminateClient]
    doubtful: frozenset[int]
    complete: bool

    def of(self, pod: PodId) -> list[TerminateClient]:
        """How each client of a pod would be ended, the newest first."""
        clients = self.seen.clients
        mine = [pid for pid in self.endings if self._is_in(pod, pid)]
        mine.sort(key=lambda pid: (clients[pid].started or 0.0, pid), reverse=True)
        return [replace(self.endings[pid], pod=pod) for pid in mine]

    def knows(self, pod: PodId) -> bool:
        """Whether what `of` gives is certainly all that the pod has."""
        return self.complete and not any(self._is_in(pod, pid) for pid in self.doubtful)

    def _is_in(self, pod: PodId, pid: int) -> bool:
        client = self.seen.clients.get(pid)
        return client is not None and client.pod_uid == pod.uid


def all_known(mps: Reading[MpsReading] | None, processes: ProcessReading | None) -> bool:
    """Whether it is known of each MPS client of the node in which pod, if any, it is. `mps` None: there is no daemon.

    A client that is listed and has no place may be anybody's: one that has no memory yet, or whose GPU was not read.
    """
    if mps is None:
        return True
    if mps.value is None or processes is None:
        return False
    for daemon in mps.value.daemons.values():
        if not isinstance(daemon, MpsDaemon):
            return False
        for server in daemon.servers:
            if isinstance(server.clients, Failure):
                return False
            places = [processes.places.get(client.pid) for client in server.clients]
            if any(place is None or place.reason is not None for place in places):
                return False
    return True


def clients_of(seen: Seen, *, all_clients: bool) -> MpsClients:
    """The clients that are listed now. `all_clients`: of each of the node's it is known whose it is (`all_known`)."""
    found: dict[int, TerminateClient] = {}
    twice: set[int] = set()
    for ending in _endings(seen):
        if found.setdefault(ending.pid, ending) != ending:
            twice.add(ending.pid)
    told = not any(isinstance(server.clients, Failure) for daemon in seen.daemons.values() for server in daemon.servers)
    endings = {pid: ending for pid, ending in found.items() if pid not in twice}
    return MpsClients(seen, endings, frozenset(twice), all_clients and told)


def _endings(seen: Seen) -> Iterator[TerminateClient]:
    for pipe_directory, daemon in sorted(seen.daemons.items()):
        for server in daemon.servers:
            for client in server.clients if not isinstance(server.clients, Failure) else ():
                yield TerminateClient(pipe_directory, daemon.protocol, server.pid, client.pid, _NOBODY)
