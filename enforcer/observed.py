"""What is there, as the plan wants to see it: one cycle's readings, the levels of control groups and our records. Pure.

What could not be read is left out, and what is not certain about the pods makes `Seen.pods` None, so that nothing is
undone for want of knowledge.
"""

from collections.abc import Mapping

from enforcer.model import Client, Gpu, Level, Records, Seen
from enforcer.wanted import Wanted, gpu_of
from exporter.errors import Failure
from exporter.model import (
    NO_NAMES,
    Backend,
    CgroupMemory,
    ContainerMemory,
    ContainerName,
    ContainerRef,
    Device,
    LimitReading,
    MpsDaemon,
    Snapshot,
)
from exporter.naming import name_of, refs_of
from exporter.readings import Readings

_WITH_LIMITS = (7, 0)  # Volta: before it MPS has no limits for clients


def levels_wanted(
    found: Wanted, readings: Readings, snapshot: Snapshot, records: Records
) -> dict[Device, set[ContainerRef]]:
    """Of which pods and containers, on which GPUs, limits by control group must be known: by caps, and by records."""
    devices = {state.device.uuid: state.device for state in snapshot.devices if not state.device.mig_mode}
    wanted: dict[Device, set[ContainerRef]] = {device: set() for device in devices.values()}
    containers = running(found, readings)
    for cap in found.caps:
        if (device := devices.get(cap.key.gpu_uuid)) is not None:
            wanted[device].add(ContainerRef(cap.key.pod.uid))
            if (ref := containers.get((cap.key.pod.uid, cap.key.container))) is not None:
                wanted[device].add(ref)
    for level in records.limits:
        if (device := devices.get(level.gpu_uuid)) is not None:
            wanted[device].add(level.ref)
    return wanted


def running(found: Wanted, readings: Readings) -> dict[tuple[str, str], ContainerRef]:
    """The kernel's name of each container with a cap, where there is exactly one."""
    names = readings.names.value or NO_NAMES
    keys = {(cap.key.pod, cap.key.container) for cap in found.caps}
    wanted = {ContainerName(pod.namespace, pod.name, container): (pod.uid, container) for pod, container in keys}
    refs = refs_of(wanted, readings.containers, names)
    present: dict[tuple[str, str], ContainerRef] = {}
    for name, key in wanted.items():
        mine = [ref for ref in refs.get(name, ()) if ref.pod_uid == key[0]]
        if len(mine) == 1:
            present[key] = mine[0]
    return present


def seen(
    found: Wanted,
    readings: Readings,
    snapshot: Snapshot,
    *,
    memory: LimitReading | None,
    places: frozenset[ContainerRef],
    records: Records,
    starts: Mapping[int, float],
    without_cgroup: frozenset[str],
    now: float,
) -> Seen:
    """What is there now.

    Args:
        found: The caps that are wanted.
        readings: One cycle's readings.
        snapshot: What they give.
        memory: The levels of control groups that were asked for.
        places: The pods and containers, of those asked for, that have a control group.
        records: What this enforcer has set.
        starts: When processes began, in seconds since boot, by pid.
        without_cgroup: GPUs whose driver has refused such limits, whatever it seems to offer.
        now: Seconds since boot.
    """
    limits = memory if memory is not None else LimitReading({})
    backends = {uuid: backend for uuid, backend in limits.backends.items() if uuid not in without_cgroup}
    uids = {(pod.namespace, pod.name): pod.uid for pod in found.pods.values()}
    holders: dict[tuple[str, str], set[str]] = {}
    for state in snapshot.containers:
        if (uid := uids.get((state.name.namespace, state.name.pod))) is not None:
            holders.setdefault((uid, gpu_of(state.domain)), set()).add(state.name.container)
    daemons = {path: daemon for path, daemon in snapshot.mps.items() if isinstance(daemon, MpsDaemon)}
    return Seen(
        pods=frozenset(found.pods) if _is_certain(readings) else None,
        gpus=_gpus(snapshot, backends),
        levels=_levels(limits, backends, places),
        holders={key: frozenset(names) for key, names in holders.items()},
        containers=running(found, readings),
        daemons=daemons,
        clients=_clients(daemons, readings, uids, starts),
        gated=found.gated,
        records=records,
        now=now,
    )


def _is_certain(readings: Readings) -> bool:
    """Whether all pods of the node, and what they may have, are known as of now."""
    names = readings.names.value
    policy = readings.policy is None or readings.policy.value is not None
    return policy and names is not None and names.stale is None and bool(names.by_uid)


def _gpus(snapshot: Snapshot, backends: Mapping[str, Backend]) -> dict[str, Gpu]:
    found = {}
    for state in snapshot.devices:
        device = state.device
        for domain in state.domains:
            mig = bool(domain.key.gpu_instance)
            able = device.compute_capability is not None and device.compute_capability >= _WITH_LIMITS
            name = gpu_of(domain.key)
            backend = None if mig else backends.get(device.uuid)
            found[name] = Gpu(name, domain.capacity, backend, mps=able and not mig, mig=mig)
    return found


def _levels(
    limits: LimitReading, backends: Mapping[str, Backend], places: frozenset[ContainerRef]
) -> dict[Level, CgroupMemory | None]:
    """The levels that exist. One whose memory could not be read is left out: nothing is done about it now."""
    found: dict[Level, CgroupMemory | None] = {}
    for gpu_uuid in backends:
        for ref in places:
            answer = limits.containers.get((ref, gpu_uuid))
            if isinstance(answer, ContainerMemory):
                found[Level(ref, gpu_uuid)] = answer.own if ref.container_id else answer.pod
            elif answer is None:
                found[Level(ref, gpu_uuid)] = None
    return found


def _clients(
    daemons: Mapping[str, MpsDaemon],
    readings: Readings,
    uids: Mapping[tuple[str, str], str],
    starts: Mapping[int, float],
) -> dict[int, Client]:
    """The clients that are in a container of a pod of this node."""
    places = readings.processes.value.places if readings.processes.value is not None else {}
    names = readings.names.value or NO_NAMES
    found = {}
    for daemon in daemons.values():
        for server in daemon.servers:
            for client in server.clients if not isinstance(server.clients, Failure) else ():
                place = places.get(client.pid)
                if place is None or place.container is None:
                    continue
                name = name_of(place.container, names)
                uid = uids.get((name.namespace, name.pod))
                if uid is not None and uid == place.container.pod_uid:
                    found[client.pid] = Client(client.pid, uid, name.container, starts.get(client.pid))
    return found
