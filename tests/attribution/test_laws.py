"""The promises that hold for every input: each byte once, order does not matter, faults stay where they are."""

from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.attribution import attribute
from exporter.errors import Failure, Reason
from exporter.model import (
    Allocation,
    AllocationReading,
    ContainerName,
    ContainerRef,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DriverReading,
    ListKind,
    LivePods,
    MemoryClass,
    MemoryInfo,
    Place,
    PodNames,
    ProcessList,
    ProcessReading,
    ProcessRow,
    Reading,
)
from tests.builders import GIB, MIB, gpu, snapshot_of

_PIDS = st.integers(1, 12)
_BYTES = st.integers(0, 4096).map(lambda n: n * MIB)
_ROW = st.builds(ProcessRow, _PIDS, st.one_of(_BYTES, st.just(None)))
_FAILURE = st.sampled_from([Reason.DRIVER_ERROR, Reason.NOT_SUPPORTED, Reason.TIMEOUT, Reason.NO_PERMISSION]).map(
    lambda reason: Failure(reason, "injected")
)
_LIST = st.one_of(
    st.lists(_ROW, max_size=8).map(lambda found: ProcessList(tuple(found))),
    st.lists(_ROW, max_size=8).map(lambda found: ProcessList(tuple(found), rejected=1)),
    _FAILURE,
)
_LISTS = st.fixed_dictionaries(dict.fromkeys(ListKind, _LIST))


@st.composite
def _memories(draw):
    if draw(st.integers(0, 9)) == 0:
        return draw(_FAILURE)
    used, free = draw(_BYTES), draw(_BYTES)
    reserved = draw(st.one_of(st.none(), _BYTES))
    return MemoryInfo(used + free + (reserved or 0), free, reserved)


_GPU = st.builds(gpu, _LISTS, _memories(), failure=st.one_of(st.none(), st.none(), st.none(), _FAILURE))
_GPUS = st.lists(_GPU, max_size=3).map(
    lambda found: [
        replace(reading, device=replace(reading.device, index=n, minor=n, uuid=f"GPU-{n}"))
        for n, reading in enumerate(found)
    ]
)
_CONTAINER = st.sampled_from(["a/1", "a/2", "b/1", "c/1"])
_PLACE = st.one_of(
    _CONTAINER.map(lambda c: Place(ContainerRef(f"uid-{c[0]}", c))),
    _CONTAINER.map(lambda c: Place(ContainerRef(f"uid-{c[0]}", c), names_mps_server=True)),
    st.just(Place()),
    st.just(Place(names_mps_server=True)),
    st.sampled_from([Reason.EXITED, Reason.CGROUP_UNREADABLE]).map(lambda reason: Place(reason=reason)),
)
_PLACES = st.dictionaries(_PIDS, _PLACE)
_NAMED = st.lists(_CONTAINER, unique=True).map(
    lambda found: PodNames(
        {f"uid-{c[0]}": ("ns", c[0]) for c in found}, {c: ContainerName("ns", c[0], c[2]) for c in found}
    )
)
_ID = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
    lambda pair: DeviceRef(f"GPU-{pair[0]}::{pair[1]}", DeviceKind.GPU, uuid=f"GPU-{pair[0]}", replica=str(pair[1]))
)
_ALLOCATION = st.builds(
    Allocation,
    _CONTAINER.map(lambda c: ContainerName("ns", c[0], c[2])),
    st.just("nvidia.com/gpu"),
    st.lists(_ID, max_size=3).map(tuple),
)
_ALLOCATIONS = st.builds(
    AllocationReading,
    st.lists(_ALLOCATION, max_size=4).map(tuple),
    st.one_of(st.none(), st.lists(_ID.map(lambda ref: ("nvidia.com/gpu", ref)), max_size=9).map(tuple)),
)


def _attribute(gpus, places, names, allocations):
    return attribute(
        driver=Reading("nvml", DriverReading("580", "13.0", tuple(gpus))),
        processes=Reading("procfs", ProcessReading(places)),
        names=Reading("pods", names),
        allocations=Reading("kubelet", allocations),
        live=Reading("cgroups", LivePods(frozenset(names.pods))),
        timestamp=1.0,
    )


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS)
def test_p1_every_byte_is_in_exactly_one_class(gpus, places, names, allocations):
    for device in _attribute(gpus, places, names, allocations).devices:
        for domain in device.domains:
            if domain.capacity is None:
                assert not domain.classes
            elif not domain.over_attributed:
                assert sum(domain.classes.values()) == domain.capacity
            else:
                assert sum(domain.classes.values()) > domain.capacity or MemoryClass.UNREAD in domain.classes
            assert all(value >= 0 for value in domain.classes.values())


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS)
def test_p1_the_containers_class_is_the_sum_of_the_containers(gpus, places, names, allocations):
    snapshot = _attribute(gpus, places, names, allocations)
    for device in snapshot.devices:
        for domain in device.domains:
            if MemoryClass.CONTAINERS in domain.classes:
                mine = [state for state in snapshot.containers if state.domain == domain.key]
                assert sum(state.used or 0 for state in mine) == domain.classes[MemoryClass.CONTAINERS]


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS)
def test_p2_a_container_with_an_unknown_part_has_no_sum(gpus, places, names, allocations):
    for state in _attribute(gpus, places, names, allocations).containers:
        if state.processes_memory_unknown is None or state.processes_memory_unknown > 0:
            assert state.used is None


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS)
def test_p3_one_series_per_container_and_domain(gpus, places, names, allocations):
    snapshot = _attribute(gpus, places, names, allocations)
    keys = [(state.name, state.domain) for state in snapshot.containers]
    assert len(keys) == len(set(keys))


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS, st.randoms())
def test_p6_the_order_of_inputs_does_not_matter(gpus, places, names, allocations, random):
    def shuffled(values):
        mixed = list(values)
        random.shuffle(mixed)
        return mixed

    def mix(reading: DeviceReading) -> DeviceReading:
        domains = [
            replace(
                domain,
                lists={
                    kind: found if isinstance(found, Failure) else replace(found, rows=tuple(shuffled(found.rows)))
                    for kind, found in shuffled(domain.lists.items())
                },
            )
            for domain in reading.domains
        ]
        return replace(reading, domains=tuple(domains))

    other = _attribute(
        shuffled(mix(reading) for reading in gpus),
        dict(shuffled(places.items())),
        PodNames(dict(shuffled(names.pods.items())), dict(shuffled(names.containers.items()))),
        AllocationReading(
            tuple(shuffled(allocations.allocations)),
            None if allocations.allocatable is None else tuple(shuffled(allocations.allocatable)),
        ),
    )
    assert other == _attribute(gpus, places, names, allocations)


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS)
def test_a_duplicate_row_changes_nothing(gpus, places, names, allocations):
    def twice(reading: DeviceReading) -> DeviceReading:
        domains = [
            replace(
                domain,
                lists={
                    kind: found if isinstance(found, Failure) else replace(found, rows=found.rows * 2)
                    for kind, found in domain.lists.items()
                },
            )
            for domain in reading.domains
        ]
        return replace(reading, domains=tuple(domains))

    doubled = [twice(reading) for reading in gpus]
    assert _attribute(doubled, places, names, allocations) == _attribute(gpus, places, names, allocations)


@for_all(_GPUS, _PLACES, _NAMED, _ALLOCATIONS, st.integers(0, 2), _FAILURE)
def test_p5_a_fault_on_one_gpu_leaves_every_other_as_it_was(gpus, places, names, allocations, victim, failure):
    healthy = _attribute(gpus, places, names, allocations)
    broken = [replace(g, domains=(), failure=failure) if g.device.index == victim else g for g in gpus]
    faulty = _attribute(broken, places, names, allocations)
    assert [d for d in faulty.devices if d.device.index != victim] == [
        d for d in healthy.devices if d.device.index != victim
    ]
    assert [c for c in faulty.containers if c.domain.gpu != victim] == [
        c for c in healthy.containers if c.domain.gpu != victim
    ]


@for_all(_GPUS, _PLACES, _NAMED)
def test_without_rows_and_allocations_there_are_no_containers(gpus, places, names):
    empty = [
        replace(
            reading,
            domains=tuple(replace(d, lists={kind: ProcessList() for kind in ListKind}) for d in reading.domains),
        )
        for reading in gpus
    ]
    assert _attribute(empty, places, names, AllocationReading(())).containers == ()


def test_the_laws_are_tried_on_gpus_that_hold_something():
    snapshot = snapshot_of(gpu(memory_of_everything()), places={1: Place()})
    assert snapshot.devices[0].domains[0].classes[MemoryClass.HOST] == GIB


def memory_of_everything():
    return {kind: ProcessList((ProcessRow(1, GIB),)) for kind in ListKind}
