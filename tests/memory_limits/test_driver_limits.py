"""Limits that the driver keeps in its own table (misc): flat, and only what came after a limit is charged."""

import pynvml

from exporter.model import Backend, CgroupMemory, ContainerMemory, ContainerRef
from simulator.nvml import state
from simulator.nvml.state import UNLIMITED
from tests.memory_limits.conftest import GETTER, GIB, cgroup, device, memory, ref, value

NOT_FOUND = 6  # NVML_ERROR_NOT_FOUND


def table(charged: int, hard: int | None = None, *, soft: int = 0) -> CgroupMemory:
    return CgroupMemory(Backend.MISC, charged, hard, soft=soft)


def test_where_nothing_was_set_nothing_is_known_n64(misc):
    place = cgroup(1)
    misc.put(place)
    misc.write(held={place: GIB})
    reading = misc.source().read({device(0): [ref(place)]})
    assert value(reading).containers == {}
    assert misc.calls() == 1  # what the container's cgroup has no entry for, no cgroup above has


def test_an_answer_of_not_found_is_no_error_n63(misc):
    place = cgroup(1)
    misc.put(place)
    misc.write(state.Fault(GETTER, code=NOT_FOUND))
    assert value(misc.source().read({device(0): [ref(place)]})).containers == {}


def test_only_what_came_after_the_limit_is_charged(misc):
    place = cgroup(1)
    misc.put(place)
    misc.write(held={place: 5 * GIB})
    misc.limit(place.path, 4 * GIB, soft=GIB)
    misc.write(held={place: 7 * GIB})
    found = memory(misc.source().read({device(0): [ref(place)]}), place)
    assert found == ContainerMemory(own=table(2 * GIB, 4 * GIB, soft=GIB))


def test_a_limit_that_was_taken_back_still_counts_n65(misc):
    place = cgroup(1)
    misc.put(place)
    misc.limit(place.path, UNLIMITED)
    misc.write(held={place: GIB})
    assert memory(misc.source().read({device(0): [ref(place)]}), place) == ContainerMemory(own=table(GIB))


def test_the_answer_of_the_pod_is_not_the_containers(misc):
    one, other = cgroup(1, 1), cgroup(1, 2)
    misc.put(one, other)
    misc.limit(one.pod_path, 8 * GIB)
    misc.write(held={one: GIB, other: 2 * GIB})
    source = misc.source()
    alone = memory(source.read({device(0): [ref(one)]}), one)
    assert alone == ContainerMemory(pod=table(3 * GIB, 8 * GIB))
    both = source.read({device(0): [ref(one), ref(other)]})
    assert memory(both, one) == memory(both, other) == ContainerMemory(pod=table(3 * GIB, 8 * GIB), shared=True)


def test_limits_do_not_nest(misc):
    one, other = cgroup(1, 1), cgroup(1, 2)
    misc.put(one, other)
    misc.limit(one.pod_path, 8 * GIB)
    misc.limit(one.path, 20 * GIB)
    misc.write(held={one: 9 * GIB, other: 2 * GIB})
    reading = misc.source().read({device(0): [ref(one), ref(other)]})
    pod = table(2 * GIB, 8 * GIB)
    assert memory(reading, one) == ContainerMemory(own=table(9 * GIB, 20 * GIB), pod=pod)
    assert memory(reading, other) == ContainerMemory(pod=pod, shared=True)


def test_equal_limits_with_other_charges_are_two(misc):
    one, other = cgroup(1, 1), cgroup(1, 2)
    misc.put(one, other)
    misc.limit(one.pod_path, 8 * GIB)
    misc.limit(one.path, 8 * GIB)
    misc.write(held={one: GIB, other: 2 * GIB})
    found = memory(misc.source().read({device(0): [ref(one)]}), one)
    assert found == ContainerMemory(own=table(GIB, 8 * GIB), pod=table(2 * GIB, 8 * GIB))


def test_a_charge_that_moves_between_two_reads_makes_no_second_entry(misc, monkeypatch):
    place = cgroup(1)
    misc.put(place)
    misc.limit(place.pod_path, 8 * GIB)
    real, charges = pynvml.nvmlDeviceGetMemoryLimits_v1, iter([GIB])

    def moving(handle, limits):
        real(handle, limits)
        if (charge := next(charges, None)) is not None:  # after the first call, which is that of the container
            misc.write(held={place: charge})

    monkeypatch.setattr(pynvml, GETTER, moving)
    found = memory(misc.source().read({device(0): [ref(place)]}), place)
    assert found == ContainerMemory(pod=table(GIB, 8 * GIB))


def test_the_limit_of_a_cgroup_above_all_pods_is_nobodys(misc):
    one, other = cgroup(1), cgroup(2)
    misc.put(one, other)
    misc.limit("/kubepods.slice", 60 * GIB)
    misc.limit(other.path, 4 * GIB)
    misc.write(held={one: GIB, other: 2 * GIB})
    reading = misc.source().read({device(0): [ref(one), ref(other)]})
    assert memory(reading, one) is None
    assert memory(reading, other) == ContainerMemory(own=table(2 * GIB, 4 * GIB))


def test_only_the_pod_is_known(misc):
    place = cgroup(1)
    misc.put(place)
    misc.limit(place.pod_path, GIB)
    unnamed = ContainerRef(place.pod_uid)
    found = value(misc.source().read({device(0): [unnamed]})).containers
    assert found == {(unnamed, device(0).uuid): ContainerMemory(pod=table(0, GIB))}


def test_each_gpu_has_a_table_of_its_own(misc):
    place = cgroup(1)
    misc.put(place)
    misc.limit(place.path, 2 * GIB, gpu=1)
    reading = misc.source().read({device(0): [ref(place)], device(1): [ref(place)]})
    assert memory(reading, place) is None
    assert memory(reading, place, gpu=1) == ContainerMemory(own=table(0, 2 * GIB))


def test_a_container_that_vanishes_between_two_reads_is_missing_n67(misc):
    one, other = cgroup(1), cgroup(2)
    misc.put(one, other)
    for place in (one, other):
        misc.limit(place.path, GIB)
    source = misc.source()
    asked = {device(0): [ref(one), ref(other)]}
    assert len(value(source.read(asked)).containers) == 2
    misc.tree.remove(one.pod_path)
    assert set(value(source.read(asked)).containers) == {(ref(other), device(0).uuid)}


def test_only_what_is_asked_for_costs_calls(misc):
    places = [cgroup(number) for number in range(20)]
    misc.put(*places)
    source = misc.source()
    source.read({device(0): [ref(place) for place in places[:3]], device(1): [ref(places[3])]})
    assert misc.calls() == 4
    misc.limit(places[0].path, GIB)
    source.read({device(0): [ref(places[0])]})
    assert misc.calls() == 4 + 2  # the container and, to compare, its pod
