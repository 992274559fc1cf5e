"""Caps on MPS servers of protocol 2, which have one limit for all: each pod connects while the limit is its own. Pure.

A server's limit is what a client gets when it connects, and stays with it. So pods are let in one at a time: the server
gets the pod's limits, the pod's gate is opened, its clients are waited for, and the server gets back what it had. A pod
without a gate can't be told when to connect; it gets what everybody gets, and its cap is not applied. Containers of one
pod come at the same time, so the smallest of their caps on a GPU holds for each of them.

What stands in the way of that is left alone: a daemon that does not say which GPU an ordinal is, and one without a
server, since whoever runs it decides when one starts.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from enforcer.model import MIB, BeginStart, Cap, CapKey, CapState, EndStart, Seen, SetServer, Start, Step
from enforcer.plan_namespaces import shows
from exporter.errors import Failure
from exporter.model import MpsClient, MpsServer, PinnedLimit

ADMISSION = 60.0  # seconds that a pod may take from its gate to the last of its clients
_ROUNDED = 0.06  # percent; daemons keep one decimal


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """Steps, and where the caps stand. `ready`: containers whose gate may open now, by (pod uid, container)."""

    steps: tuple[Step, ...]
    states: Mapping[CapKey, CapState]
    ready: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Place:
    """A server and its ordinal of a GPU."""

    pipe_directory: str
    server: MpsServer
    ordinal: int


def plan_servers(caps: Iterable[Cap], seen: Seen, *, hopeless: Collection[str] = ()) -> ServerPlan:
    """The plan for caps on GPUs that only a server of protocol 2 can hold.

    Of the pods that are `hopeless`, by uid, some other cap can't be applied here: their gates will not open.
    """
    by_server: dict[str, list[tuple[Cap, Place]]] = defaultdict(list)
    for cap in sorted(caps, key=lambda cap: cap.key):
        gpu, place = seen.gpus.get(cap.key.gpu_uuid), server_of(cap.key.gpu_uuid, seen)
        if gpu is not None and gpu.cgroup is None and place is not None:
            by_server[place.pipe_directory].append((cap, place))
    steps: list[Step] = []
    ready: set[tuple[str, str]] = set()
    states = {cap.key: _state(cap, place, seen) for mine in by_server.values() for cap, place in mine}
    for pipe_directory in sorted({*by_server, *seen.records.starts}) if seen.pods is not None else ():
        mine = [(cap, place) for cap, place in by_server[pipe_directory] if cap.key.pod.uid not in hopeless]
        start = seen.records.starts.get(pipe_directory)
        if start is None:
            steps += _begin(pipe_directory, mine, states, seen)
        else:
            let_in = [(cap, place) for cap, place in mine if cap.key.pod.uid == start.pod_uid]
            steps += _let_in(pipe_directory, start, let_in, ready, seen)
    return ServerPlan(tuple(steps), states, frozenset(ready))


def server_of(gpu_uuid: str, seen: Seen) -> Place | None:
    """The one server of protocol 2 that has the GPU, if the GPU is one that can be limited, and its ordinal there."""
    gpu = seen.gpus.get(gpu_uuid)
    if gpu is None or not gpu.mps:
        return None
    found = [
        Place(pipe_directory, server, server.devices.index(gpu_uuid))
        for pipe_directory, daemon in sorted(seen.daemons.items())
        for server in daemon.servers
        if daemon.protocol < 3 and server.pid is not None and server.devices is not None and gpu_uuid in server.devices
    ]
    return found[0] if len(found) == 1 else None


def _begin(
    pipe_directory: str, caps: Sequence[tuple[Cap, Place]], states: Mapping[CapKey, CapState], seen: Seen
) -> Iterator[Step]:
    """The next pod's turn. One with a receipt has had its turn."""
    waiting = [
        cap.key.pod.uid
        for cap, _ in caps
        if cap.gated and states[cap.key] is CapState.WANTED and cap.key.pod.uid not in seen.records.receipts
    ]
    if not waiting:
        return
    places = [place for cap, place in caps if cap.key.pod.uid == waiting[0]]
    usual = {place.ordinal: _usual(place, seen) for place in places}
    share = places[0].server.ratio
    known = {ordinal: mebibytes for ordinal, mebibytes in usual.items() if mebibytes is not None}
    if len(known) == len(usual) and isinstance(share, float):
        yield Step(BeginStart(pipe_directory, waiting[0], known, round(share * 100, 1)), waiting[0])


def _let_in(
    pipe_directory: str,
    start: Start,
    caps: Sequence[tuple[Cap, Place]],
    ready: set[tuple[str, str]],
    seen: Seen,
) -> Iterator[Step]:
    """Give the server the pod's limits until all its containers are there, and then what it had."""
    uid = start.pod_uid
    arrived = all(_clients(cap, place, seen) for cap, place in caps)
    if arrived or seen.now - start.began > ADMISSION:  # also where the pod, or what it asked for, is gone
        yield from _set(pipe_directory, start.usual, start.percentage, uid, seen)
        yield Step(EndStart(pipe_directory), uid)
        return
    limits = dict(start.usual)
    for ordinal in limits:
        asked = [cap.limit // MIB for cap, place in caps if place.ordinal == ordinal and cap.limit is not None]
        limits[ordinal] = min(asked, default=limits[ordinal])
    share = min((cap.percentage for cap, _ in caps if cap.percentage is not None), default=start.percentage)
    steps = list(_set(pipe_directory, limits, share, uid, seen))
    if not steps:
        ready.update((uid, cap.key.container) for cap, _ in caps)
    yield from steps


def _set(pipe_directory: str, limits: Mapping[int, int], percentage: float, uid: str, seen: Seen) -> Iterator[Step]:
    """The steps that make the daemon's server give this to its next clients, by what was read back."""
    daemon = seen.daemons.get(pipe_directory)
    for server in daemon.servers if daemon is not None else ():
        share = isinstance(server.ratio, float) and abs(server.ratio * 100 - percentage) < _ROUNDED
        for ordinal, mebibytes in sorted(limits.items()):
            limit = server.pinned.get(ordinal) if not isinstance(server.pinned, Failure) else None
            if server.pid is not None and not (share and isinstance(limit, PinnedLimit) and shows(limit, mebibytes)):
                yield Step(SetServer(pipe_directory, server.pid, ordinal, mebibytes, percentage), uid)


def _usual(place: Place, seen: Seen) -> int | None:
    """What the server gives to everybody on a GPU, in MiB: without a limit all of it. None: not known.

    Where the daemon shows whole GiB and no log tells more, it is given back what it shows, which is never more.
    """
    server = place.server
    if isinstance(server.pinned, Failure) or server.devices is None:
        return None
    limit = server.pinned.get(place.ordinal)
    capacity = seen.gpus[server.devices[place.ordinal]].capacity
    amount = limit.shown if limit is not None else capacity
    return amount // MIB if amount else None


def _clients(cap: Cap, place: Place, seen: Seen) -> list[MpsClient]:
    """The clients of a container on a server."""
    if isinstance(place.server.clients, Failure):
        return []
    whose = (cap.key.pod.uid, cap.key.container)
    mine = {client.pid for client in seen.clients.values() if (client.pod_uid, client.container) == whose}
    return [client for client in place.server.clients if client.pid in mine]


def _state(cap: Cap, place: Place, seen: Seen) -> CapState:
    """APPLIED where each client is known to have connected under the cap; LATE where one has under more."""
    clients = _clients(cap, place, seen)
    if not clients:
        return CapState.WANTED
    if cap.limit is None:
        return CapState.APPLIED
    latched = [client.pinned.get(place.ordinal) if client.pinned is not None else None for client in clients]
    if all(limit is not None and limit <= cap.limit for limit in latched):
        return CapState.APPLIED
    if any(client.pinned is not None for client in clients):
        return CapState.LATE
    # Without the server's log nobody knows; a client that came after the receipt may well be under the cap.
    began = seen.records.receipts.get(cap.key.pod.uid)
    starts = [seen.clients[client.pid].started for client in clients]
    after = began is not None and all(started is not None and started >= began for started in starts)
    return CapState.PENDING if after else CapState.LATE
