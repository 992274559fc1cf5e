"""Which samples a snapshot has: what is known is a number, what is not known is not there.

Guarantees: families come in catalogue order and series in the order of their label values, whatever the order of the
snapshot; a label set occurs once in a family; every label value is valid Unicode, so that one strange name cannot cost
the page.

It will not fill in, carry over or scale a value, and it does no input or output.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from exporter.metrics import catalog
from exporter.metrics.catalog import Family
from exporter.metrics.labels import texts
from exporter.metrics.mps_samples import mps_samples
from exporter.metrics.podlabels import PodLabels
from exporter.model import (
    Amount,
    ContainerName,
    ContainerState,
    Device,
    DeviceState,
    DomainKey,
    Integrals,
    ListKind,
    MemoryClass,
    Snapshot,
    Totals,
)

Row = tuple[tuple[str, ...], float]  # label values in the order of `Family.labels`, and the value

_KINDS = tuple((kind, kind.value) for kind in ListKind)  # asked for per container, and an enum answers slowly
_CLASSES = tuple(memory_class.value for memory_class in MemoryClass)
_OF_AMOUNT = {
    Amount.USED: catalog.CONTAINER_MEMORY_USED_BYTE_SECONDS,
    Amount.REQUESTED: catalog.CONTAINER_MEMORY_REQUESTED_BYTE_SECONDS,
    Amount.COMMITTED: catalog.CONTAINER_MEMORY_COMMITTED_BYTE_SECONDS,
    Amount.OVERRUN: catalog.CONTAINER_MEMORY_OVERRUN_BYTE_SECONDS,
    Amount.OVERRUNNING: catalog.CONTAINER_MEMORY_OVERRUN_SECONDS,
    Amount.THREAD_RATIO: catalog.CONTAINER_MPS_THREAD_RATIO_SECONDS,
}
_INTEGRATED = tuple(_OF_AMOUNT[amount] for amount in Amount)


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What runs: the version of podgpu and of Python."""

    version: str
    python_version: str


@dataclass(frozen=True, slots=True)
class FamilySamples:
    """The series of one family: at least one, sorted by label values, no label set twice."""

    family: Family
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of a page. `duplicates` counts the samples dropped because their label set was already there."""

    families: tuple[FamilySamples, ...]  # in catalogue order; a family without samples is not there
    duplicates: int


def samples(
    snapshot: Snapshot, *, totals: Totals, build: BuildInfo, pod_labels: PodLabels | None = None, values: bool = True
) -> Samples:
    """The samples of a snapshot. `pod_labels`: the family for the pod labels that are to be shown, if any are.

    With `values` false the snapshot is too old to be printed as the present: devices, containers, driver and conditions
    are withheld, and what remains says how the exporter fares and when it last had something to say.

    Of several samples with one label set the lowest value stays: a rule that needs no order of the input.
    """
    rows: dict[Family, list[Row]] = {family: [] for family in catalog.FAMILIES}
    if pod_labels is not None:
        rows[pod_labels.family] = []
    if values:
        for device in snapshot.devices:
            for family, row in _device(device):
                rows[family].append(row)
        for container in snapshot.containers:
            for family, row in _container(container, totals.peaks):
                rows[family].append(row)
        for family, row in _integrals(totals.integrals):
            rows[family].append(row)
        for family, row in (*_pods(snapshot, pod_labels), *_node(snapshot), *mps_samples(snapshot.mps)):
            rows[family].append(row)
    for family, row in _health(snapshot, totals, build):
        rows[family].append(row)

    families = []
    duplicates = 0
    for family, found in rows.items():
        if found:
            found.sort()
            unique = [found[0], *(row for before, row in pairwise(found) if before[0] != row[0])]
            duplicates += len(found) - len(unique)
            families.append(FamilySamples(family, tuple(unique)))
    return Samples(tuple(families), duplicates)


def _device(state: DeviceState) -> Iterator[tuple[Family, Row]]:
    device = state.device
    whole = _domain(DomainKey(device.index, device.uuid))
    yield catalog.DEVICE_INFO, ((*whole, *_identity(device)), 1)
    if state.utilization is not None:
        yield catalog.DEVICE_SM_UTILIZATION, (whole, state.utilization)
    for mig in state.mig_devices:
        instance = _domain(DomainKey(device.index, device.uuid, str(mig.gpu_instance)))
        yield catalog.MIG_DEVICE_INFO, ((*instance, *texts(str(mig.compute_instance), mig.uuid, mig.profile)), 1)
    for domain in state.domains:
        labels = _domain(domain.key)
        yield catalog.DEVICE_UP, (labels, int(domain.up))
        if domain.capacity is not None:
            yield catalog.DEVICE_MEMORY_CAPACITY, (labels, domain.capacity)
        for memory_class, size in domain.classes.items():
            yield catalog.DEVICE_MEMORY, ((*labels, memory_class.value), size)
        if domain.over_attributed is not None:
            yield catalog.DEVICE_MEMORY_OVER_ATTRIBUTED, (labels, domain.over_attributed)
        for resource, replicas in domain.slots.items():
            yield catalog.DEVICE_SLOTS, ((*labels, *texts(resource)), replicas)
        if domain.tenants is not None:
            namespaces, isolation = domain.tenants
            yield catalog.DEVICE_TENANTS, ((*labels, isolation.value), namespaces)
        for reason, processes in domain.unresolved.items():
            yield catalog.DEVICE_UNRESOLVED_PROCESSES, ((*labels, reason.value), processes)


def _container(
    state: ContainerState, peaks: Mapping[tuple[ContainerName, DomainKey], int]
) -> Iterator[tuple[Family, Row]]:
    name = state.name
    labels = (*texts(name.namespace, name.pod, name.container), *_domain(state.domain))
    if state.used is not None:
        yield catalog.CONTAINER_MEMORY_USED, (labels, state.used)
    if (peak := peaks.get((name, state.domain))) is not None:
        yield catalog.CONTAINER_MEMORY_PEAK, (labels, peak)
    if state.requested is not None:
        yield catalog.CONTAINER_MEMORY_REQUESTED, (labels, state.requested)
    if state.limit is not None:
        yield catalog.CONTAINER_MEMORY_LIMIT, (labels, state.limit)
        if state.used is not None:
            yield catalog.CONTAINER_MEMORY_OVERRUN, (labels, max(0, state.used - state.limit))
    if state.processes is not None:  # the lists were read: a kind that is not in the mapping has no process
        for kind, text in _KINDS:
            yield catalog.CONTAINER_PROCESSES, ((*labels, text), state.processes.get(kind, 0))
    if state.processes_memory_unknown is not None:
        yield catalog.CONTAINER_PROCESSES_MEMORY_UNKNOWN, (labels, state.processes_memory_unknown)
    if state.slots is not None:
        yield catalog.CONTAINER_SLOTS, (labels, state.slots)
    if state.share is not None:
        yield catalog.CONTAINER_SHARE, (labels, state.share)
    if state.allocated is not None:
        yield catalog.CONTAINER_ALLOCATED, (labels, int(state.allocated))
    if state.utilization is not None:
        yield catalog.CONTAINER_SM_UTILIZATION, (labels, state.utilization)
    yield from _limits(state, labels)


def _limits(state: ContainerState, labels: tuple[str, ...]) -> Iterator[tuple[Family, Row]]:
    """What was read back of the container's limits."""
    if state.charged is not None:
        yield catalog.CONTAINER_MEMORY_CHARGED, (labels, state.charged)
    for mechanism, limit in state.applied.items():
        yield catalog.CONTAINER_MEMORY_LIMIT_APPLIED, ((*labels, mechanism.value), limit)
    if state.enforced is not None:
        yield catalog.CONTAINER_MEMORY_LIMIT_ENFORCED, (labels, int(state.enforced))
    for condition in state.cap_conditions:
        yield catalog.CONTAINER_CONDITION, ((*labels, condition.value), 1)
    if state.mps_thread_ratio is not None and state.mps_thread_source is not None:
        yield (
            catalog.CONTAINER_MPS_ACTIVE_THREAD_RATIO,
            ((*labels, state.mps_thread_source.value), state.mps_thread_ratio),
        )
    if state.mps_clients is not None:
        yield catalog.CONTAINER_MPS_CLIENTS, (labels, state.mps_clients)


def _integrals(found: Integrals) -> Iterator[tuple[Family, Row]]:
    """What was integrated, also of what is gone."""
    for (name, key), integral in found.containers.items():
        labels = (*texts(*name), *_domain(key))
        for family, total in zip(_INTEGRATED, integral.sums, strict=True):
            if total is not None:
                yield family, (labels, total)
    for key, integral in found.devices.items():
        labels = _domain(key)
        for text, total in zip(_CLASSES, integral.sums, strict=True):
            if total is not None:
                yield catalog.DEVICE_MEMORY_BYTE_SECONDS, ((*labels, text), total)


def _node(snapshot: Snapshot) -> Iterator[tuple[Family, Row]]:
    if snapshot.driver is not None:
        yield catalog.DRIVER_INFO, (texts(*snapshot.driver), 1)
    for condition, holds in snapshot.conditions.items():
        yield catalog.CONDITION, ((condition.value,), int(holds))


def _pods(snapshot: Snapshot, pod_labels: PodLabels | None) -> Iterator[tuple[Family, Row]]:
    for pod in snapshot.pods:
        yield (
            catalog.POD_INFO,
            (
                texts(
                    pod.namespace,
                    pod.name,
                    pod.uid,
                    pod.workload_kind,
                    pod.workload,
                    pod.priority_class,
                    pod.qos,
                ),
                1,
            ),
        )
        if pod_labels is not None:
            yield pod_labels.family, (texts(*pod_labels.values(pod.namespace, pod.name, pod.labels)), 1)
    for (name, reason), count in snapshot.annotation_errors.items():
        yield catalog.ANNOTATION_ERRORS, (texts(*name, reason), count)


def _health(snapshot: Snapshot, totals: Totals, build: BuildInfo) -> Iterator[tuple[Family, Row]]:
    for state in snapshot.sources:
        yield catalog.SOURCE_UP, (texts(state.source), int(state.failure is None))
        yield catalog.SOURCE_DURATION, (texts(state.source), state.seconds)
    for source, when in totals.last_success.items():
        yield catalog.SOURCE_LAST_SUCCESS, (texts(source), when)
    for (source, reason), count in totals.errors.items():
        yield catalog.SOURCE_ERRORS, (texts(source, reason.value), count)
    yield catalog.SNAPSHOT_TIMESTAMP, ((), snapshot.timestamp)
    for pipe_directory, starts in totals.mps.items():
        yield catalog.MPS_DAEMON_STARTS, (texts(pipe_directory), starts.daemons)
        yield catalog.MPS_SERVER_STARTS, (texts(pipe_directory), starts.servers)
    for result, count in totals.cycles.items():
        yield catalog.SAMPLER_CYCLES, (texts(result), count)
    yield catalog.SAMPLING_GAP, ((), totals.integrals.gap)
    yield catalog.BUILD_INFO, (texts(build.version, build.python_version), 1)


@lru_cache(maxsize=1024)  # a node has few domains, and each of its containers has the labels of one
def _domain(key: DomainKey) -> tuple[str, ...]:
    return texts(str(key.gpu), key.gpu_uuid, key.gpu_instance)


def _identity(device: Device) -> tuple[str, ...]:
    """The labels of `device_info` after the domain's. Empty: the driver does not tell."""
    capability = device.compute_capability
    return texts(
        device.name,
        device.pci_bus_id,
        "" if device.minor is None else str(device.minor),
        "" if capability is None else f"{capability[0]}.{capability[1]}",
        device.compute_mode,
        _switch(device.mig_mode),
        _switch(device.persistence),
    )


def _switch(state: bool | None) -> str:
    return "" if state is None else "enabled" if state else "disabled"
