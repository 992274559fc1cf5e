"""Limits that the kernel keeps (dmem): they nest, and the driver is not asked."""

import shutil

import pytest

from exporter.errors import Failure, Reason
from exporter.model import Backend, CgroupMemory, ContainerMemory, ContainerRef
from simulator.cgroupfs import Driver, QoS, Runtime
from simulator.nvml.state import UNLIMITED, LimitsBackend
from tests.memory_limits.conftest import GIB, cgroup, device, memory, ref, value


def kernel(charged: int, hard: int | None = None, *, soft: int = 0) -> CgroupMemory:
    return CgroupMemory(Backend.DMEM, charged, hard, soft=soft)


@pytest.mark.parametrize("driver", Driver)
@pytest.mark.parametrize("qos", QoS)
@pytest.mark.parametrize("runtime", Runtime)
def test_a_container_and_its_pod(dmem, driver, qos, runtime):
    place = cgroup(1, driver=driver, qos=qos, runtime=runtime)
    dmem.put(place)
    dmem.charge({place: 3 * GIB})
    dmem.limit(place.path, 4 * GIB, soft=GIB)
    reading = dmem.source().read({device(0): [ref(place)]})
    assert memory(reading, place) == ContainerMemory(
        own=kernel(3 * GIB, 4 * GIB, soft=GIB), pod=kernel(3 * GIB, soft=GIB)
    )
    assert dmem.calls() == 0


def test_each_level_has_its_own_limit_and_the_pod_the_sum_of_its_containers(dmem):
    one, other = cgroup(1, 1), cgroup(1, 2)
    dmem.put(one, other)
    dmem.charge({one: GIB, other: 2 * GIB})
    dmem.limit(one.pod_path, 8 * GIB)
    dmem.limit(other.path, 5 * GIB)
    reading = dmem.source().read({device(0): [ref(one), ref(other)], device(1): [ref(one)]})
    pod = kernel(3 * GIB, 8 * GIB)
    assert memory(reading, one) == ContainerMemory(own=kernel(GIB), pod=pod)
    assert memory(reading, other) == ContainerMemory(own=kernel(2 * GIB, 5 * GIB), pod=pod)
    assert memory(reading, one, gpu=1) == ContainerMemory(own=kernel(0), pod=kernel(0))
    assert memory(reading, other, gpu=1) is None  # nobody asked


def test_a_limit_that_was_taken_back_is_none(dmem):
    place = cgroup(1)
    dmem.put(place)
    dmem.limit(place.path, GIB)
    dmem.limit(place.path, UNLIMITED)
    assert memory(dmem.source().read({device(0): [ref(place)]}), place).own == kernel(0)


def test_a_container_without_dmem_files_counts_into_its_pod(dmem):
    alone, one, other = cgroup(1), cgroup(2, 1), cgroup(2, 2)
    dmem.put(alone, one, other)
    dmem.charge({alone: GIB, one: GIB, other: 2 * GIB})
    for place in (alone, one, other):
        for name in ("current", "max", "min", "low"):
            (dmem.folder(place.path) / f"dmem.{name}").unlink()
    reading = dmem.source().read({device(0): [ref(place) for place in (alone, one, other)]})
    assert memory(reading, alone) == ContainerMemory(pod=kernel(GIB))
    assert memory(reading, one) == memory(reading, other) == ContainerMemory(pod=kernel(3 * GIB), shared=True)


def test_only_the_pod_is_known(dmem):
    place = cgroup(1)
    dmem.put(place)
    dmem.charge({place: GIB})
    unnamed = ContainerRef(place.pod_uid)
    assert value(dmem.source().read({device(0): [unnamed]})).containers == {
        (unnamed, device(0).uuid): ContainerMemory(pod=kernel(GIB))
    }


def test_a_container_that_vanishes_between_two_reads_is_missing_n67(dmem):
    one, other = cgroup(1, 1), cgroup(2, 1)
    dmem.put(one, other)
    source = dmem.source()
    asked = {device(0): [ref(one), ref(other)]}
    assert len(value(source.read(asked)).containers) == 2
    dmem.tree.remove(one.pod_path)
    assert set(value(source.read(asked)).containers) == {(ref(other), device(0).uuid)}
    dmem.put(one)
    assert len(value(source.read(asked)).containers) == 2


def test_a_container_that_started_anew_is_another_one(dmem):
    before, after = cgroup(1, 1), cgroup(1, 2)
    dmem.put(before)
    dmem.limit(before.path, GIB)
    source = dmem.source()
    assert memory(source.read({device(0): [ref(before)]}), before).own.hard == GIB
    dmem.tree.remove(before.path)
    dmem.put(after)
    reading = source.read({device(0): [ref(before), ref(after)]})
    assert memory(reading, after).own.hard is None
    assert memory(reading, before).own is None


def test_the_first_pod_of_a_class_is_found_at_once(dmem):
    first, second = cgroup(1), cgroup(2, qos=QoS.GUARANTEED)
    dmem.put(first)
    source = dmem.source()
    source.read({device(0): [ref(first)]})
    dmem.put(second)
    assert memory(source.read({device(0): [ref(first), ref(second)]}), second) is not None
    shutil.rmtree(dmem.tree.root / "kubepods.slice/kubepods-burstable.slice")
    dmem.put(third := cgroup(3, qos=QoS.BESTEFFORT))
    assert memory(source.read({device(0): [ref(third)]}), third) is not None


def test_a_runtime_that_puts_containers_beside_their_pods(dmem):
    """A containerd without SystemdCgroup under a kubelet that uses systemd."""
    place = cgroup(1)
    slice_name = place.pod_path.rpartition("/")[2]
    dmem.put(place)
    dmem.tree.remove(place.path)
    folder = dmem.tree.put(f"/system.slice/{slice_name}:cri-containerd:{place.container_id}")
    dmem.tree.dmem.limit(folder, region="nvidia/00000000:17:00.0/vidmem", hard=GIB)
    dmem.limit(place.pod_path, 2 * GIB)  # binds nothing: the container is not in there
    assert memory(dmem.source().read({device(0): [ref(place)]}), place) == ContainerMemory(own=kernel(0, GIB))


def test_gpus_in_mig_mode_are_left_out(dmem):
    place = cgroup(1)
    dmem.put(place)
    reading = value(dmem.source().read({device(0, mig_mode=True): [ref(place)]}))
    assert (reading.containers, reading.own_limited) == ({}, None)


def test_a_file_that_cannot_be_read_costs_its_containers_only(dmem):
    bad, good = cgroup(1), cgroup(2)
    dmem.put(bad, good)
    path = dmem.folder(bad.path) / "dmem.max"
    path.unlink()
    path.mkdir()
    found = value(dmem.source().read({device(0): [ref(bad), ref(good)]})).containers
    problem = found[ref(bad), device(0).uuid]
    assert isinstance(problem, Failure)
    assert problem.reason is Reason.UNREADABLE
    assert "dmem.max" in problem.detail or bad.container_id in problem.detail
    assert isinstance(found[ref(good), device(0).uuid], ContainerMemory)


def test_without_the_host_s_cgroups(dmem):
    place = cgroup(1)
    failure = dmem.source().read({device(0): [ref(place)]}).failure
    assert failure.reason is Reason.MISSING
    assert "--path.sysfs" in failure.detail


def test_a_driver_that_does_not_use_the_controller_that_is_there(machine_of):
    """A module option takes the driver back to its own table; then the kernel has other drivers' lines only."""
    machine = machine_of(LimitsBackend.MISC, dmem=True)
    place = cgroup(1)
    machine.put(place)
    machine.limit(place.path, GIB)
    found = memory(machine.source().read({device(0): [ref(place)]}), place)
    assert found == ContainerMemory(own=CgroupMemory(Backend.MISC, 0, GIB))
