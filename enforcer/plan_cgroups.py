"""Caps as limits of control groups: which level gets which limit, and what is given back. Pure.

With the kernel's controller limits nest, so each container has its own and the pod has their sum, which is there before
any of its processes is. The driver's own table does not nest: there a pod with one capped container is limited as a
pod, for that too is there before the container, and one with several by container.

A limit that is below the present use is not taken, so it is the use that is set, and lowered as the use falls. Nor is
one above the GPU's capacity, which is set instead. A limit of somebody else's that is low enough is left alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from enforcer.model import MIB, Cap, CapKey, CapState, FreeCgroup, Level, LimitCgroup, Seen, Step
from exporter.model import Backend, CgroupMemory, ContainerRef


@dataclass(frozen=True, slots=True)
class CgroupPlan:
    """Steps, and where the caps stand as far as control groups go. `ready`: pods that may begin under their limit."""

    steps: tuple[Step, ...]
    states: Mapping[CapKey, CapState]
    ready: frozenset[tuple[str, str]]  # (pod uid, GPU)


def plan_cgroups(caps: Iterable[Cap], seen: Seen) -> CgroupPlan:
    """The plan for all caps of memory on GPUs that have such limits."""
    by_pod: dict[tuple[str, str], list[Cap]] = defaultdict(list)
    for cap in caps:
        gpu = seen.gpus.get(cap.key.gpu_uuid)
        if cap.limit is not None and gpu is not None and gpu.cgroup is not None:
            by_pod[cap.key.pod.uid, cap.key.gpu_uuid].append(cap)
    steps: list[Step] = []
    states: dict[CapKey, CapState] = {}
    ready: set[tuple[str, str]] = set()
    wanted: set[Level] = set()
    for (uid, gpu_uuid), mine in sorted(by_pod.items()):
        goals = _goals(mine, seen)
        wanted.update(goals)
        for level, goal in goals.items():
            steps += _limit(level, goal, seen)
        states.update({cap.key: _state(cap, mine, goals, seen) for cap in mine})
        pod = Level(ContainerRef(uid), gpu_uuid)
        whole = pod in goals and _holds(seen.levels.get(pod), goals[pod])
        if whole or all(states[cap.key] is CapState.APPLIED for cap in mine):
            ready.add((uid, gpu_uuid))
    steps += _given_back(wanted, seen)
    return CgroupPlan(tuple(steps), states, frozenset(ready))


def _goals(caps: Sequence[Cap], seen: Seen) -> dict[Level, int]:
    """The limit of each level. Levels that do not exist yet are among them."""
    (uid, gpu_uuid) = caps[0].key.pod.uid, caps[0].key.gpu_uuid
    limits = {cap.key.container: cap.limit for cap in caps if cap.limit is not None}
    capacity = seen.gpus[gpu_uuid].capacity
    most = sum(limits.values()) if capacity is None else max(1, capacity // MIB) * MIB
    all_capped = seen.holders.get((uid, gpu_uuid), frozenset()) <= limits.keys()
    pod = {Level(ContainerRef(uid), gpu_uuid): min(most, sum(limits.values()))} if all_capped else {}
    own = {
        Level(ref, gpu_uuid): min(most, limit)
        for container, limit in sorted(limits.items())
        if (ref := seen.containers.get((uid, container))) is not None
    }
    if seen.gpus[gpu_uuid].cgroup is Backend.DMEM:
        return pod | own
    return pod if pod and len(limits) == 1 else own


def _limit(level: Level, goal: int, seen: Seen) -> Iterator[Step]:
    """The step that brings a level to its goal, or as near to it as the present use allows."""
    if level not in seen.levels:
        return
    memory = seen.levels[level]
    hard = memory.hard if memory is not None else None
    ours = level in seen.records.limits
    nearest = max(goal, _whole(memory.charged)) if memory is not None else goal
    if hard is not None and hard <= goal:
        if hard == goal or not ours:
            return
        nearest = goal  # raised
    elif hard is not None and hard <= nearest:
        return
    before = seen.records.limits[level] if ours else hard
    yield Step(LimitCgroup(level, nearest, before), level.ref.pod_uid)


def _given_back(wanted: set[Level], seen: Seen) -> Iterator[Step]:
    """What is not wanted any more, of what we set. A cgroup that is gone has taken its limit with it."""
    if seen.pods is None:
        return
    for level in sorted(seen.records.limits, key=lambda level: level.order):
        if level not in wanted and level in seen.levels:
            yield Step(FreeCgroup(level, seen.records.limits[level]), level.ref.pod_uid)


def _state(cap: Cap, caps: Sequence[Cap], goals: Mapping[Level, int], seen: Seen) -> CapState:
    """Where a cap stands, by the level that holds it."""
    uid, gpu_uuid = cap.key.pod.uid, cap.key.gpu_uuid
    pod, ref = Level(ContainerRef(uid), gpu_uuid), seen.containers.get((uid, cap.key.container))
    level = Level(ref, gpu_uuid) if ref is not None else None
    if level not in goals and pod in goals and len(caps) == 1:
        level = pod
    if level is None or level not in seen.levels:
        return CapState.WANTED
    memory = seen.levels[level]
    if memory is None or memory.hard is None:
        return CapState.WANTED
    return CapState.APPLIED if cap.limit is not None and memory.hard <= cap.limit else CapState.PENDING


def _holds(memory: CgroupMemory | None, goal: int) -> bool:
    return memory is not None and memory.hard is not None and memory.hard <= goal


def _whole(amount: int) -> int:
    """The amount, rounded up to whole MiB."""
    return -(-amount // MIB) * MIB
