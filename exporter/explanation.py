"""How a container's numbers came to be: from one cycle's readings, every step between the driver's rows and the page.

Pure. It decides nothing by itself: classes, names and caps come from the same functions as the page's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from exporter.allocation import holdings, without_finished
from exporter.caps.book import NodeCaps
from exporter.caps.canonical import understood
from exporter.errors import Failure
from exporter.limit_explanation import client_lines, limit_lines, policy_lines
from exporter.metrics.render import Renderer
from exporter.metrics.samples import FamilySamples, Samples
from exporter.model import (
    Allocation,
    ContainerName,
    ListKind,
    MemoryClass,
    Pod,
    PodNames,
    ProcessList,
    Snapshot,
)
from exporter.owners import Owners
from exporter.processes import merge
from exporter.readings import Readings


@dataclass(frozen=True, slots=True)
class Evidence:
    """What /proc says of a process: its start in clock ticks since boot and its cgroup. None: not to be had."""

    start_ticks: int | None = None
    cgroup: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessLine:
    """One process on one memory domain. `used` is in bytes; None: the driver does not tell."""

    gpu: int
    gpu_uuid: str
    gpu_instance: str
    pid: int
    lists: tuple[str, ...]
    used: int | None
    memory_class: str
    container: str
    reason: str = ""
    start_ticks: int | None = None
    cgroup: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that made the numbers of one pod, or of one of its containers (else `container` is empty)."""

    namespace: str
    pod: str
    container: str
    uid: str
    processes: tuple[ProcessLine, ...]
    unplaced: tuple[ProcessLine, ...]  # processes on the same GPUs that may be anybody's
    allocation: tuple[str, ...]
    annotations: Mapping[str, str]  # as the pod has them, of those that are about GPUs
    understood: Mapping[str, str]
    errors: tuple[str, ...]
    policy: tuple[str, ...]  # what policy changed
    limits: tuple[str, ...]  # what limits the containers, and whether their caps hold
    clients: tuple[str, ...]  # which of the processes are MPS clients, and of what
    series: tuple[str, ...]
    problems: tuple[str, ...]
    others: tuple[str, ...] = field(default=())  # pods of the page, where this one is not on it


def explain(
    target: ContainerName,
    *,
    readings: Readings,
    snapshot: Snapshot,
    samples: Samples,
    caps: NodeCaps,
    evidence: Mapping[int, Evidence],
) -> Explanation:
    """The explanation of a pod, or with `target.container` of one container."""
    lines = _processes(readings, evidence)
    mine = tuple(line for name, line in lines if name is not None and _covers(target, name))
    where = {(line.gpu_uuid, line.gpu_instance) for line in mine}
    read = caps.pods.get((target.namespace, target.pod))
    states = [state for state in snapshot.containers if _covers(target, state.name)]
    described = _pod(readings, target)
    present = sorted({f"{state.name.namespace}/{state.name.pod}" for state in snapshot.containers})
    known = f"{target.namespace}/{target.pod}" in present
    return Explanation(
        namespace=target.namespace,
        pod=target.pod,
        container=target.container,
        uid=described.uid if described is not None else _uid(readings.names.value, target),
        processes=mine,
        unplaced=tuple(
            line for name, line in lines if name is None and (line.gpu_uuid, line.gpu_instance) in where and line.reason
        ),
        allocation=tuple(_allocations(readings, target)),
        annotations={
            key: text
            for key, text in sorted((described.annotations if described is not None else {}).items())
            if "gpu" in key.lower()
        },
        understood=understood(read) if read is not None else {},
        errors=tuple(f"{error.reason}: {error.sentence}" for error in read.errors) if read is not None else (),
        policy=tuple(policy_lines(states, snapshot, caps)),
        limits=tuple(limit_lines(states)),
        clients=tuple(client_lines(states, readings)),
        series=tuple(_series(samples, target)),
        problems=tuple(_problems(snapshot)),
        others=() if known else tuple(present),
    )


def _covers(target: ContainerName, name: ContainerName) -> bool:
    same_pod = (target.namespace, target.pod) == (name.namespace, name.pod)
    return same_pod and target.container in ("", name.container)


def _processes(readings: Readings, evidence: Mapping[int, Evidence]) -> list[tuple[ContainerName | None, ProcessLine]]:
    """Every process of every domain that could be read, with the container that it was counted for."""
    driver, places = readings.driver.value, readings.processes.value
    if driver is None or places is None:
        return []
    names = readings.names.value or PodNames({}, {})
    held = None
    if readings.allocations.value is not None:
        present = without_finished(readings.allocations.value, readings.names.value, readings.live.value)
        slices = readings.slices.value if readings.slices is not None else None
        held = holdings(present, driver.devices, slices, readings.pods)
    owners = Owners(places, names, held)
    lines: list[tuple[ContainerName | None, ProcessLine]] = []
    for device in driver.devices:
        for domain in device.domains:
            for pid, process in sorted((merge(domain.lists, None) or {}).items()):
                owner = owners.of(pid, process)
                seen = evidence.get(pid, Evidence())
                line = ProcessLine(
                    device.device.index,
                    device.device.uuid,
                    "" if domain.gpu_instance is None else str(domain.gpu_instance),
                    pid,
                    tuple(kind.value for kind in ListKind if _lists(domain.lists.get(kind), pid)),
                    process.used,
                    owner.memory_class.value,
                    owner.name.container if owner.name is not None else "",
                    owner.reason.value if owner.reason is not None else "",
                    seen.start_ticks,
                    seen.cgroup,
                )
                lines.append((owner.name, line))
    return lines


def _lists(rows: ProcessList | Failure | None, pid: int) -> bool:
    return isinstance(rows, ProcessList) and any(row.pid == pid for row in rows.rows)


def _pod(readings: Readings, target: ContainerName) -> Pod | None:
    return next((pod for pod in readings.pods if (pod.namespace, pod.name) == (target.namespace, target.pod)), None)


def _uid(names: PodNames | None, target: ContainerName) -> str:
    pods = names.pods if names is not None else {}
    return next((uid for uid, pod in pods.items() if pod == (target.namespace, target.pod)), "")


def _allocations(readings: Readings, target: ContainerName) -> Collection[str]:
    found: tuple[Allocation, ...] = ()
    if readings.allocations.value is not None:
        found = readings.allocations.value.allocations
    return [
        f"{allocation.name.container}: {allocation.resource}: {', '.join(ref.raw for ref in allocation.devices)}"
        for allocation in found
        if _covers(target, allocation.name)
    ]


def _series(samples: Samples, target: ContainerName) -> Collection[str]:
    """The lines of the page that carry the pod's name."""
    mine = []
    for found in samples.families:
        labels = found.family.labels
        if "pod" not in labels or found.family.type == "counter":  # which one reading only begins
            continue
        where = [labels.index(label) if label in labels else None for label in ContainerName._fields]
        rows = tuple(
            row
            for row in found.rows
            if _covers(
                target if where[2] is not None else target._replace(container=""),
                ContainerName(*("" if place is None else row[0][place] for place in where)),
            )
        )
        if rows:
            mine.append(FamilySamples(found.family, rows))
    text = Renderer().render(Samples(tuple(mine), 0)).text.decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def _problems(snapshot: Snapshot) -> Collection[str]:
    """Why numbers may be missing."""
    failing = [f"source {s.source}: {problem}" for s in snapshot.sources for problem in _failures(s.failure, s.errors)]
    holding = [f"condition {condition}" for condition, holds in snapshot.conditions.items() if holds]
    unread = [
        f"GPU {domain.key.gpu}: memory in use could not be told apart"
        for device in snapshot.devices
        for domain in device.domains
        if MemoryClass.UNREAD in domain.classes
    ]
    return [*failing, *holding, *unread]


def _failures(failure: Failure | None, errors: Collection[Failure]) -> Collection[Failure]:
    return (*((failure,) if failure is not None else ()), *errors)
