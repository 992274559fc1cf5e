"""The promises that hold for every input: each byte once, order does not matter, faults stay where they are."""

from dataclasses import replace

from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.model import AllocationReading, ListKind, MemoryClass, Place, PodNames, ProcessList, ProcessRow
from tests import strategies as made
from tests.builders import GIB, gpu, snapshot_of
from tests.strategies import attributed, shuffled_gpus, with_rows_twice


@for_all(made.gpus, made.places, made.named, made.allocations)
def test_p1_every_byte_is_in_exactly_one_class(gpus, places, names, allocations):
    for device in attributed(gpus, places, names, allocations).devices:
        for domain in device.domains:
            if domain.capacity is None:
                assert not domain.classes
            elif not domain.over_attributed:
                assert sum(domain.classes.values()) == domain.capacity
            else:
                assert sum(domain.classes.values()) > domain.capacity or MemoryClass.UNREAD in domain.classes
            assert all(value >= 0 for value in domain.classes.values())


@for_all(made.gpus, made.places, made.named, made.allocations)
def test_p1_the_containers_class_is_the_sum_of_the_containers(gpus, places, names, allocations):
    snapshot = attributed(gpus, places, names, allocations)
    for device in snapshot.devices:
        for domain in device.domains:
            if MemoryClass.CONTAINERS in domain.classes:
                mine = [state for state in snapshot.containers if state.domain == domain.key]
                assert sum(state.used or 0 for state in mine) == domain.classes[MemoryClass.CONTAINERS]


@for_all(made.gpus, made.places, made.named, made.allocations)
def test_p2_a_container_with_an_unknown_part_has_no_sum(gpus, places, names, allocations):
    for state in attributed(gpus, places, names, allocations).containers:
        if state.processes_memory_unknown is None or state.processes_memory_unknown > 0:
            assert state.used is None


@for_all(made.gpus, made.places, made.named, made.allocations)
def test_p3_one_series_per_container_and_domain(gpus, places, names, allocations):
    snapshot = attributed(gpus, places, names, allocations)
    keys = [(state.name, state.domain) for state in snapshot.containers]
    assert len(keys) == len(set(keys))


@for_all(made.gpus, made.places, made.named, made.allocations, st.randoms())
def test_p6_the_order_of_inputs_does_not_matter(gpus, places, names, allocations, random):
    def shuffled(values):
        mixed = list(values)
        random.shuffle(mixed)
        return mixed

    other = attributed(
        shuffled_gpus(gpus, shuffled),
        dict(shuffled(places.items())),
        PodNames(dict(shuffled(names.pods.items())), dict(shuffled(names.containers.items()))),
        AllocationReading(
            tuple(shuffled(allocations.allocations)),
            None if allocations.allocatable is None else tuple(shuffled(allocations.allocatable)),
        ),
    )
    assert other == attributed(gpus, places, names, allocations)


@for_all(made.gpus, made.places, made.named, made.allocations)
def test_a_duplicate_row_changes_nothing(gpus, places, names, allocations):
    doubled = [with_rows_twice(reading) for reading in gpus]
    assert attributed(doubled, places, names, allocations) == attributed(gpus, places, names, allocations)


@for_all(made.gpus, made.places, made.named, made.allocations, st.integers(0, 2), made.failures)
def test_p5_a_fault_on_one_gpu_leaves_every_other_as_it_was(gpus, places, names, allocations, victim, failure):
    healthy = attributed(gpus, places, names, allocations)
    broken = [replace(g, domains=(), failure=failure) if g.device.index == victim else g for g in gpus]
    faulty = attributed(broken, places, names, allocations)
    assert [d for d in faulty.devices if d.device.index != victim] == [
        d for d in healthy.devices if d.device.index != victim
    ]
    assert [c for c in faulty.containers if c.domain.gpu != victim] == [
        c for c in healthy.containers if c.domain.gpu != victim
    ]


@for_all(made.gpus, made.places, made.named)
def test_without_rows_and_allocations_there_are_no_containers(gpus, places, names):
    empty = [
        replace(
            reading,
            domains=tuple(replace(d, lists={kind: ProcessList() for kind in ListKind}) for d in reading.domains),
        )
        for reading in gpus
    ]
    assert attributed(empty, places, names, AllocationReading(())).containers == ()


def test_the_laws_are_tried_on_gpus_that_hold_something():
    snapshot = snapshot_of(gpu(memory_of_everything()), places={1: Place()})
    assert snapshot.devices[0].domains[0].classes[MemoryClass.HOST] == GIB


def memory_of_everything():
    return {kind: ProcessList((ProcessRow(1, GIB),)) for kind in ListKind}
