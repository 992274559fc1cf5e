"""Caps as MPS namespaces (protocol 3): one for each job, and a door to it only once its limit and share stand. Pure.

A namespace without limits gives the whole GPU, so its pipe directory is opened to the container only after its values
were read back, and taken away where they are not the wanted ones. Its share can't be changed while it has clients. Only
namespaces that bear a name of ours are touched, and removed only when their pod is certainly gone and they are empty.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from enforcer.model import (
    MIB,
    Cap,
    CapKey,
    CapState,
    CloseDoor,
    EnsureNamespace,
    OpenDoor,
    RemoveNamespace,
    Seen,
    Step,
)
from exporter.errors import Failure
from exporter.model import MpsNamespace, MpsServer, PinnedLimit
from exporter.naming import job_namespaces

_OURS = re.compile(r"j_([0-9a-f]{8}(?:_[0-9a-f]{4}){3}_[0-9a-f]{12}|[0-9a-f]{32})(?:_[0-9a-f]{12})?", re.ASCII)
_NOTHING_ELSE = 100  # percent: no share is asked for


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """Steps, and where the caps stand as far as namespaces go. `ready`: containers whose door is open."""

    steps: tuple[Step, ...]
    states: Mapping[CapKey, CapState]
    ready: frozenset[tuple[str, str]]  # (pod uid, container)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One container's namespace."""

    pipe_directory: str
    server: MpsServer
    name: str
    mebibytes: int
    percentage: int


def plan_namespaces(caps: Iterable[Cap], seen: Seen) -> NamespacePlan:
    """The plan for caps on GPUs that a server of protocol 3 has, where MPS is asked for or nothing else can hold."""
    by_pod: dict[str, list[Cap]] = defaultdict(list)
    capped: set[str] = set()
    for cap in caps:
        capped.add(cap.key.pod.uid)
        if _is_for_mps(cap, seen):
            by_pod[cap.key.pod.uid].append(cap)
    steps: list[Step] = []
    states: dict[CapKey, CapState] = {}
    ready: set[tuple[str, str]] = set()
    for uid, mine in sorted(by_pod.items()):
        for container, wanted in _namespaces(mine, seen).items():
            door = (uid, container)
            state = _stands(wanted)
            steps += _steps(door, wanted, state, seen)
            if state is CapState.APPLIED and seen.records.doors.get(door) == _directory(wanted):
                ready.add(door)
            found = state if state is not CapState.APPLIED or door in ready else CapState.WANTED
            states.update({cap.key: found for cap in mine if cap.key.container == container})
    # Whatever else may hold its cap: what a pod with a cap has been given is kept as long as it has one.
    steps += _closed(seen, keep=capped)
    steps += _removed(seen, keep=capped)
    return NamespacePlan(tuple(steps), states, frozenset(ready))


def _is_for_mps(cap: Cap, seen: Seen) -> bool:
    gpu = seen.gpus.get(cap.key.gpu_uuid)
    if gpu is None or not gpu.mps:
        return False
    return cap.percentage is not None or (cap.limit is not None and gpu.cgroup is None)


def _namespaces(caps: Sequence[Cap], seen: Seen) -> dict[str, _Wanted]:
    """The namespace of each container of a pod; one for the whole pod where all want the same."""
    found: dict[str, tuple[str, MpsServer, int, int]] = {}
    for container in sorted({cap.key.container for cap in caps}):
        mine = [cap for cap in caps if cap.key.container == container]
        place = _server({cap.key.gpu_uuid for cap in mine}, seen)
        if place is None:
            continue
        # A namespace has one limit for each of its GPUs, so the smallest cap is the one that holds them all.
        limits = [cap.limit for cap in mine if cap.limit is not None]
        limits = limits or [seen.gpus[cap.key.gpu_uuid].capacity or 0 for cap in mine]
        shares = [cap.percentage for cap in mine if cap.percentage is not None]
        if mebibytes := min(limits) // MIB:
            found[container] = (*place, mebibytes, min(shares, default=_NOTHING_ELSE))
    same = len({(pipe, server.name, *values) for pipe, server, *values in found.values()}) == 1
    wanted = {}
    for container, (pipe, server, mebibytes, percentage) in found.items():
        for_pod, for_container = job_namespaces(caps[0].key.pod.uid, container)
        wanted[container] = _Wanted(pipe, server, for_pod if same else for_container, mebibytes, percentage)
    return wanted


def _server(gpus: set[str], seen: Seen) -> tuple[str, MpsServer] | None:
    """The first server of protocol 3 that is known to have all these GPUs."""
    for pipe_directory, daemon in sorted(seen.daemons.items()):
        if daemon.protocol >= 3:
            for server in sorted(daemon.servers, key=lambda server: server.name):
                if server.devices is not None and gpus <= set(server.devices):
                    return pipe_directory, server
    return None


def _steps(door: tuple[str, str], wanted: _Wanted, state: CapState, seen: Seen) -> Iterator[Step]:
    uid, container = door
    opened = seen.records.doors.get(door)
    if state is CapState.APPLIED:
        if opened != _directory(wanted):
            yield Step(OpenDoor(uid, container, _directory(wanted)), uid)
        return
    if state is CapState.PENDING:
        return
    if opened is not None and _of(wanted) is None:
        yield Step(CloseDoor(uid, container), uid)  # it leads nowhere, or soon to a namespace without limits
    yield Step(
        EnsureNamespace(wanted.pipe_directory, wanted.server.name, wanted.name, wanted.mebibytes, wanted.percentage),
        uid,
    )


def _stands(wanted: _Wanted) -> CapState:
    """APPLIED with the wanted values; PENDING where clients keep the share from being changed."""
    namespace = _of(wanted)
    if namespace is None:
        return CapState.WANTED
    share = isinstance(namespace.ratio, float) and round(namespace.ratio * 100) == wanted.percentage
    if share and isinstance(namespace.pinned, PinnedLimit) and shows(namespace.pinned, wanted.mebibytes):
        return CapState.APPLIED
    clients = wanted.server.clients
    attached = isinstance(clients, Failure) or any(client.namespace == wanted.name for client in clients)
    return CapState.PENDING if attached and not share else CapState.WANTED


def shows(limit: PinnedLimit, mebibytes: int) -> bool:
    """Whether a limit as it is shown can be so many MiB: some daemons show whole GiB."""
    return limit.shown <= mebibytes * MIB < limit.below


def _of(wanted: _Wanted) -> MpsNamespace | None:
    return next((found for found in wanted.server.namespaces if found.name == wanted.name), None)


def _directory(wanted: _Wanted) -> str:
    """Where the namespace's clients connect: as the daemon says, else by the daemon's own rule."""
    namespace = _of(wanted)
    said = namespace.pipe_directory if namespace is not None else ""
    return said or f"{wanted.pipe_directory}/{wanted.server.name}/{wanted.name}"


def _closed(seen: Seen, *, keep: set[str]) -> Iterator[Step]:
    """The doors of pods that are gone, or have no cap any more."""
    for uid, container in sorted(seen.records.doors):
        if uid not in keep and seen.pods is not None:
            yield Step(CloseDoor(uid, container), uid)


def _removed(seen: Seen, *, keep: set[str]) -> Iterator[Step]:
    """The namespaces of ours whose pod is gone, or has no cap any more, once nobody is in them."""
    if seen.pods is None:
        return
    for pipe_directory, daemon in sorted(seen.daemons.items()):
        for server in daemon.servers if daemon.protocol >= 3 else ():
            if isinstance(server.clients, Failure):
                continue
            busy = {client.namespace for client in server.clients}
            for namespace in server.namespaces:
                match = _OURS.fullmatch(namespace.name)
                uid = _uid(match[1]) if match is not None else None
                if uid is not None and uid not in keep and namespace.name not in busy:
                    yield Step(RemoveNamespace(pipe_directory, server.name, namespace.name), uid)


def _uid(text: str) -> str:
    return text.replace("_", "-")
