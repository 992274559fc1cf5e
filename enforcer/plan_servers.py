"""Caps on MPS servers of protocol 2, which have one limit for all: each job connects while the limit is its own. Pure.

A server's limit is what a client gets when it connects, and stays with it. So jobs of a GPU are let in one at a time:
the server gets the job's limit, the job's gate is opened, its client is waited for, and the server gets back what it
had. A job without a gate can't be told when to connect; it gets what everybody gets, and its cap is not applied.

What stands in the way of that is left alone: a daemon that does not say which GPU an ordinal is, and one without a
server, since whoever runs it decides when one starts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from enforcer.model import MIB, BeginStart, Cap, CapKey, CapState, EndStart, Seen, SetServer, Step
from enforcer.plan_namespaces import shows
from exporter.errors import Failure
from exporter.model import MpsClient, MpsServer, PinnedLimit

ADMISSION = 60.0  # seconds that a job may take from its gate to its first client
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
    by_gpu: dict[str, list[Cap]] = {}
    for cap in sorted(caps, key=lambda cap: cap.key):
        gpu = seen.gpus.get(cap.key.gpu_uuid)
        if gpu is not None and gpu.cgroup is None and server_of(gpu.uuid, seen) is not None:
            by_gpu.setdefault(gpu.uuid, []).append(cap)
    steps: list[Step] = []
    states: dict[CapKey, CapState] = {}
    ready: set[tuple[str, str]] = set()
    for gpu_uuid in sorted({*by_gpu, *seen.records.starts}):
        place = server_of(gpu_uuid, seen)
        mine = by_gpu.get(gpu_uuid, [])
        states.update({cap.key: _state(cap, place, seen) for cap in mine})
        steps += _turn(gpu_uuid, place, [cap for cap in mine if cap.key.pod.uid not in hopeless], states, ready, seen)
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


def _turn(
    gpu_uuid: str,
    place: Place | None,
    caps: list[Cap],
    states: Mapping[CapKey, CapState],
    ready: set[tuple[str, str]],
    seen: Seen,
) -> Iterator[Step]:
    """The next step of letting in jobs on one GPU: at most one job is on its way in."""
    if seen.pods is None:
        return
    start = seen.records.starts.get(gpu_uuid)
    if start is not None:
        cap = next((c for c in caps if (c.key.pod.uid, c.key.container) == (start.pod_uid, start.container)), None)
        arrived = _clients(start.pod_uid, start.container, place, seen)
        if cap is None or place is None or arrived or seen.now - start.began > ADMISSION:
            if place is not None and not _gives(place, start.mebibytes, start.percentage):
                yield _set(place, start.mebibytes, start.percentage, start.pod_uid)
            yield Step(EndStart(gpu_uuid), start.pod_uid)
            return
        mebibytes = cap.limit // MIB if cap.limit is not None else start.mebibytes
        percentage = cap.percentage if cap.percentage is not None else start.percentage
        if _gives(place, mebibytes, percentage):
            ready.add((start.pod_uid, start.container))
        else:
            yield _set(place, mebibytes, percentage, start.pod_uid)
        return
    waiting = [cap for cap in caps if cap.gated and states[cap.key] is CapState.WANTED and _is_next(cap, seen)]
    if waiting and place is not None and (usual := _usual(place, gpu_uuid, seen)) is not None:
        key = waiting[0].key
        yield Step(BeginStart(gpu_uuid, key.pod.uid, key.container, *usual), key.pod.uid)


def _is_next(cap: Cap, seen: Seen) -> bool:
    """Whether the gate still waits: a pod with a receipt has had its turn."""
    return cap.key.pod.uid not in seen.records.receipts


def _set(place: Place, mebibytes: int, percentage: float, uid: str) -> Step:
    return Step(SetServer(place.pipe_directory, place.server.pid or 0, place.ordinal, mebibytes, percentage), uid)


def _gives(place: Place, mebibytes: int, percentage: float) -> bool:
    """Whether the server's next client will get this, by what was read back."""
    server = place.server
    limit = server.pinned.get(place.ordinal) if not isinstance(server.pinned, Failure) else None
    share = isinstance(server.ratio, float) and abs(server.ratio * 100 - percentage) < _ROUNDED
    return share and isinstance(limit, PinnedLimit) and shows(limit, mebibytes)


def _usual(place: Place, gpu_uuid: str, seen: Seen) -> tuple[int, float] | None:
    """What the server gives to everybody, in MiB and percent: without a limit all of the GPU. None: not known.

    Where the daemon shows whole GiB and no log tells more, it is given back what it shows, which is never more.
    """
    server = place.server
    if isinstance(server.pinned, Failure) or not isinstance(server.ratio, float):
        return None
    limit = server.pinned.get(place.ordinal)
    gpu = seen.gpus.get(gpu_uuid)
    capacity = gpu.capacity if gpu is not None else None
    amount = limit.shown if limit is not None else capacity
    return (amount // MIB, round(server.ratio * 100, 1)) if amount else None


def _clients(uid: str, container: str, place: Place | None, seen: Seen) -> list[MpsClient]:
    """The clients of a container on a server."""
    if place is None or isinstance(place.server.clients, Failure):
        return []
    mine = {client.pid for client in seen.clients.values() if (client.pod_uid, client.container) == (uid, container)}
    return [client for client in place.server.clients if client.pid in mine]


def _state(cap: Cap, place: Place | None, seen: Seen) -> CapState:
    """APPLIED where each client is known to have connected under the cap; LATE where one has under more."""
    uid, container = cap.key.pod.uid, cap.key.container
    clients = _clients(uid, container, place, seen)
    if place is None or not clients:
        return CapState.WANTED
    latched = [client.pinned.get(place.ordinal) if client.pinned is not None else None for client in clients]
    if cap.limit is None:
        return CapState.APPLIED
    if all(limit is not None and limit <= cap.limit for limit in latched):
        return CapState.APPLIED
    if any(client.pinned is not None for client in clients):
        return CapState.LATE
    # Without the server's log: what a job that was let in got, is what its receipt says.
    began = seen.records.receipts.get(uid)
    starts = [seen.clients[client.pid].started for client in clients]
    after = began is not None and all(started is not None and started >= began for started in starts)
    return CapState.PENDING if after else CapState.LATE
