"""What goes wrong, and what it costs."""

import threading
import time

import pynvml
import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import ContainerMemory
from exporter.sources.library_use import LibraryUse
from exporter.sources.nvml import NvmlSource
from simulator.nvml import state
from simulator.nvml.state import LimitsBackend
from tests.memory_limits.conftest import GETTER, GIB, cgroup, device, memory, ref, value

OPERATING_SYSTEM, NO_PERMISSION, LOST, UNKNOWN = 17, 4, 15, 999


@pytest.fixture
def place(misc):
    made = cgroup(1)
    misc.put(made)
    misc.limit(made.path, GIB)
    misc.limit(made.path, GIB, gpu=1)
    return made


def problem(reading, place, gpu=0):
    found = value(reading).containers[ref(place), device(gpu).uuid]
    assert isinstance(found, Failure), found
    return found


def both(place):
    return {device(number): [ref(place)] for number in range(2)}


def test_a_hung_call_costs_its_gpu_only_and_is_over_when_it_returns(misc, place):
    source = misc.source(deadline=0.2)
    misc.write(state.Fault(GETTER, gpu=0, hang=True))
    begun = time.monotonic()
    for _ in range(3):
        reading = source.read(both(place))
        assert problem(reading, place).reason is Reason.TIMEOUT
        assert isinstance(memory(reading, place, gpu=1), ContainerMemory)
    assert time.monotonic() - begun < 2
    assert misc.calls() == 1 + 3 * 2  # the one that hangs, and on the other GPU the container's and its pod's
    misc.write()
    until = time.monotonic() + 20
    while not isinstance(value(source.read(both(place))).containers[ref(place), device(0).uuid], ContainerMemory):
        assert time.monotonic() < until


def test_a_lost_gpu_costs_itself_and_comes_back(misc, place):
    source = misc.source()
    misc.write(state.Fault(GETTER, gpu=0, code=LOST))
    reading = source.read(both(place))
    assert problem(reading, place).reason is Reason.GPU_LOST
    assert isinstance(memory(reading, place, gpu=1), ContainerMemory)
    misc.write()
    assert isinstance(memory(source.read(both(place)), place), ContainerMemory)


def test_a_gpu_that_the_driver_lists_no_more(misc, place):
    misc.write(gpus=(0,))
    reading = misc.source().read(both(place))
    assert problem(reading, place, gpu=1).detail.startswith("nvmlDeviceGetHandleByUUID")
    assert isinstance(memory(reading, place), ContainerMemory)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(OPERATING_SYSTEM, Reason.DRIVER_ERROR), (NO_PERMISSION, Reason.NO_PERMISSION), (UNKNOWN, Reason.DRIVER_ERROR)],
)
def test_a_call_that_fails_costs_its_container_and_names_the_path(misc, place, code, reason):
    other = cgroup(2)
    misc.put(other)
    misc.write(state.Fault(GETTER, first=1, calls=1, code=code))
    reading = misc.source().read({device(0): [ref(place), ref(other)]})
    problems = [found for found in value(reading).containers.values() if isinstance(found, Failure)]
    assert [found.reason for found in problems] == [reason]
    assert str(misc.tree.root) in problems[0].detail


def test_a_library_that_is_not_started(misc, place):
    pynvml.nvmlShutdown()
    assert problem(misc.source().read({device(0): [ref(place)]}), place).reason is Reason.DRIVER_NOT_LOADED


@pytest.mark.parametrize("dmem", [False, True])
def test_an_older_driver_is_asked_once_and_remembered(machine_of, dmem):
    machine = machine_of(LimitsBackend.OFF, dmem=dmem, generation="580")
    made = cgroup(1)
    machine.put(made)
    source = machine.source()
    first = source.read(both(made)).failure
    assert first.reason is Reason.NOT_SUPPORTED
    assert "615" in first.detail
    lookups = machine.calls("nvmlDeviceGetHandleByUUID")
    machine.tree.remove("/kubepods.slice")  # from now on not even looked at
    for _ in range(3):
        assert source.read(both(made)).failure is first
    assert machine.calls("nvmlDeviceGetHandleByUUID") == lookups == 2
    assert machine.calls() == 0


def test_an_older_pynvml(misc, place, monkeypatch):
    monkeypatch.delattr(pynvml, GETTER)
    assert misc.source().read(both(place)).failure.reason is Reason.NOT_SUPPORTED


def test_a_driver_with_the_feature_turned_off(machine_of):
    machine = machine_of(LimitsBackend.OFF)
    made = cgroup(1)
    machine.put(made)
    assert value(machine.source().read(both(made))).containers == {}


def test_cgroup_v1(misc, place):
    (misc.tree.root / "cgroup.controllers").unlink()
    assert misc.source().read(both(place)).failure.reason is Reason.NOT_SUPPORTED


def test_the_library_is_not_stopped_below_a_call_and_old_handles_are_forgotten(misc, place):
    """A new start of the library, by the source that owns it, while this source has a call out."""
    use = LibraryUse()
    now = [0.0]
    owner = NvmlSource(deadline=5, interval=5, clock=Clock(monotonic=lambda: now[0]), use=use)
    pynvml.nvmlShutdown()
    try:
        owner.read()
        source = misc.source(deadline=0.2, use=use)
        assert isinstance(memory(source.read(both(place)), place), ContainerMemory)
        misc.write(state.Fault(GETTER, gpu=0, hang=True), state.Fault("nvmlDeviceGetMemoryInfo_v2", code=1, calls=1))
        assert problem(source.read({device(0): [ref(place)]}), place).reason is Reason.TIMEOUT
        assert owner.read().failure.reason is Reason.DRIVER_NOT_LOADED
        now[0] += 10
        assert owner.read().failure is not None
        assert misc.calls("nvmlShutdown") == 1  # this test's own
        misc.write()
        until = time.monotonic() + 20
        while owner.read().failure is not None:
            now[0] += 100
            assert time.monotonic() < until
        assert misc.calls("nvmlShutdown") == 2
        lookups = misc.calls("nvmlDeviceGetHandleByUUID")
        assert isinstance(memory(source.read(both(place)), place), ContainerMemory)
        assert misc.calls("nvmlDeviceGetHandleByUUID") == lookups + 2
    finally:
        owner.stop()


def test_who_calls_waits_for_a_stop():
    use, inside = LibraryUse(), threading.Event()

    def call():
        with use.calling():
            inside.set()

    caller = threading.Thread(target=call)
    with use.stopping() as alone:
        assert alone
        caller.start()
        assert not inside.wait(0.05)
    caller.join(20)
    assert inside.is_set()
    with use.calling(), use.stopping() as alone:
        assert not alone
