"""What is to be done so that every cap holds: wanted caps and what is there in, steps out. Pure and idempotent.

Guarantees: once the steps have been done, the plan for what is there then is empty; a step is about an object of ours,
or a limit of a container whose pod asks for it, and of nobody else; what is not certain (pods that can't be read, a
daemon that does not answer) leads to no step that takes something away. A gate is opened only after every cap of its
pod was read back.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from enforcer.model import Cap, CapKey, CapState, DropRecords, Plan, PodId, Seen, Step, WriteReceipt
from enforcer.plan_cgroups import CgroupPlan, plan_cgroups
from enforcer.plan_namespaces import NamespacePlan, plan_namespaces
from enforcer.plan_servers import ServerPlan, plan_servers, server_of
from exporter.model import Backend


def plan(caps: Collection[Cap], seen: Seen) -> Plan:
    """The steps that are to be done now, in order, and where each cap stands."""
    cgroups = plan_cgroups(caps, seen)
    namespaces = plan_namespaces(caps, seen)
    rest = [cap for cap in caps if cap.key not in namespaces.states]
    hopeless = {
        cap.key.pod.uid for cap in rest if cap.key not in cgroups.states and server_of(cap.key.gpu_uuid, seen) is None
    }
    servers = plan_servers(rest, seen, hopeless=hopeless)
    states = {cap.key: _state(cap, cgroups, namespaces, servers, seen) for cap in caps}
    steps = (
        *cgroups.steps,
        *namespaces.steps,
        *servers.steps,
        *_receipts(caps, cgroups, namespaces, servers, seen),
        *_dropped(seen),
    )
    return Plan(steps, states)


def _state(cap: Cap, cgroups: CgroupPlan, namespaces: NamespacePlan, servers: ServerPlan, seen: Seen) -> CapState:
    """Where a cap stands: a limit that counts all processes goes before those for each client."""
    found = [part.states[cap.key] for part in (cgroups, namespaces, servers) if cap.key in part.states]
    if not found:
        return CapState.UNSUPPORTED
    if cap.limit is not None and cap.key in cgroups.states:
        state = cgroups.states[cap.key]
        share = namespaces.states.get(cap.key, CapState.APPLIED)
        state = state if share is CapState.APPLIED or state is not CapState.APPLIED else share
    else:
        state = found[0]
    return CapState.LATE if state is CapState.APPLIED and _is_late(cap, cgroups, seen) else state


def _is_late(cap: Cap, cgroups: CgroupPlan, seen: Seen) -> bool:
    """Whether a client was there before its pod's caps were read back, where that cannot be made good.

    The kernel's controller charges what was there before; the driver's table and MPS do not.
    """
    gpu = seen.gpus.get(cap.key.gpu_uuid)
    applied = seen.records.receipts.get(cap.key.pod.uid)
    if applied is None or (cap.key in cgroups.states and gpu is not None and gpu.cgroup is Backend.DMEM):
        return False
    mine = [
        client.started
        for client in seen.clients.values()
        if (client.pod_uid, client.container) == (cap.key.pod.uid, cap.key.container)
    ]
    return any(started is not None and started < applied for started in mine)


def _receipts(
    caps: Iterable[Cap], cgroups: CgroupPlan, namespaces: NamespacePlan, servers: ServerPlan, seen: Seen
) -> Sequence[Step]:
    """The receipts that are due: every cap of the pod is in place, or will be the moment that the job begins."""
    by_pod: dict[PodId, list[Cap]] = defaultdict(list)
    for cap in caps:
        by_pod[cap.key.pod].append(cap)
    steps = []
    for pod, mine in sorted(by_pod.items()):
        if pod.uid in seen.records.receipts:
            continue
        if all(_is_ready(cap, cgroups, namespaces, servers) for cap in mine):
            containers = tuple(sorted({cap.key.container for cap in mine}))
            steps.append(Step(WriteReceipt(pod, containers), pod.uid))
    if seen.pods is not None:  # nothing is asked for them, so there is nothing to wait for
        idle = [pod for pod in sorted(seen.gated - by_pod.keys()) if pod.uid not in seen.records.receipts]
        steps += [Step(WriteReceipt(pod, ()), pod.uid) for pod in idle]
    return steps


def _is_ready(cap: Cap, cgroups: CgroupPlan, namespaces: NamespacePlan, servers: ServerPlan) -> bool:
    uid, container, gpu_uuid = cap.key.pod.uid, cap.key.container, cap.key.gpu_uuid
    door = (uid, container)
    if cap.key in cgroups.states and (uid, gpu_uuid) not in cgroups.ready:
        return False
    if cap.key in namespaces.states:
        return door in namespaces.ready
    if cap.key in servers.states:
        return door in servers.ready or servers.states[cap.key] is CapState.APPLIED
    return cap.key in cgroups.states


def _dropped(seen: Seen) -> Sequence[Step]:
    """Pods that are certainly gone are forgotten, once nothing of theirs is left to undo."""
    if seen.pods is None:
        return ()
    records = seen.records
    uids = {
        *(level.ref.pod_uid for level in records.limits),
        *(uid for uid, _ in records.doors),
        *records.receipts,
    }
    there = {level.ref.pod_uid for level in records.limits if level in seen.levels}
    return [Step(DropRecords(uid), uid) for uid in sorted(uids - seen.pods - there)]


def count(states: Mapping[CapKey, CapState]) -> Mapping[CapState, int]:
    """How many caps stand where; each state is there."""
    return {state: sum(found is state for found in states.values()) for state in CapState}
