"""Limits of control groups on the simulated driver: set through NVML, and done only when read back."""

import json
import os
import shutil
import time

import pynvml
import pytest

from enforcer.model import DropRecords, FreeCgroup, Level, LimitCgroup
from enforcer.outcomes import Done, Pending
from exporter.errors import Failure, Reason
from exporter.model import CgroupMemory, ContainerMemory, ContainerRef
from exporter.sources.library_use import LibraryUse
from simulator.nvml import state
from simulator.nvml.state import Fault
from tests.memory_limits.conftest import cgroup, device, ref

GIB = 1 << 30
SETTER = "nvmlDeviceSetMemoryLimits_v1"
NOT_SUPPORTED, NO_PERMISSION, GPU_LOST, INVALID_ARGUMENT, UNKNOWN = 3, 4, 15, 2, 999
BACKENDS = [state.LimitsBackend.DMEM, state.LimitsBackend.MISC]


@pytest.fixture(params=BACKENDS, ids=str)
def machine(request, machine_of):
    return machine_of(request.param, dmem=request.param is state.LimitsBackend.DMEM)


@pytest.fixture
def dmem(machine_of):
    return machine_of(state.LimitsBackend.DMEM, dmem=True)


@pytest.fixture
def misc(machine_of):
    return machine_of(state.LimitsBackend.MISC)


@pytest.fixture
def of(mechanisms_of):
    return lambda machine, **options: mechanisms_of(sysfs=machine.directory / "sys", **options)


def container(place, gpu=0):
    return Level(ref(place), device(gpu).uuid)


def pod(place, gpu=0):
    return Level(ContainerRef(place.pod_uid), device(gpu).uuid)


def hold(machine, place, used):
    """Let a container hold memory on GPU 0."""
    machine.charge({place: used}) if machine.dmem else machine.write(held={place: used})


def limits(machine, place, gpu=0):
    """What the exporter sees of a container and its pod."""
    found = machine.source().read({device(gpu): [ref(place)]}).value.containers.get((ref(place), device(gpu).uuid))
    assert found is None or isinstance(found, ContainerMemory), found
    return found or ContainerMemory()


def hard(memory):
    return memory.hard if isinstance(memory, CgroupMemory) else None


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


@pytest.mark.parametrize("level_of", [container, pod])
def test_a_limit_is_set_raised_and_taken_back(machine, of, level_of):
    place = cgroup(1)
    machine.put(place)
    level, mechanisms = level_of(place), of(machine)
    for wanted in (4 * GIB, 6 * GIB, 5 * GIB):
        outcome = mechanisms.apply(LimitCgroup(level, wanted, before=None))
        assert isinstance(outcome, Done), outcome
        assert str(wanted) in outcome.detail
        found = limits(machine, place)
        assert hard(found.own if level_of is container else found.pod) == wanted
        assert mechanisms.records().limits == {level: None}
    assert isinstance(mechanisms.apply(FreeCgroup(level, hard=None)), Done)
    found = limits(machine, place)
    assert hard(found.own) is hard(found.pod) is None
    assert mechanisms.records().limits == {}


def test_nothing_is_reserved(dmem, of):
    place = cgroup(1)
    dmem.put(place)
    dmem.limit(place.path, 8 * GIB, soft=2 * GIB)
    assert isinstance(of(dmem).apply(LimitCgroup(container(place), 4 * GIB, before=8 * GIB)), Done)
    assert limits(dmem, place).own.soft == 0


def test_what_somebody_else_had_set_is_given_back(machine, of):
    place = cgroup(1)
    machine.put(place)
    machine.limit(place.path, 20 * GIB)
    mechanisms = of(machine)
    mechanisms.apply(LimitCgroup(container(place), 4 * GIB, before=20 * GIB))
    ((level, before),) = of(machine).records().limits.items()  # after a restart
    assert isinstance(mechanisms.apply(FreeCgroup(level, before)), Done)
    assert hard(limits(machine, place).own) == 20 * GIB


def test_another_gpu_and_another_pod_are_not_touched(machine, of):
    one, other = cgroup(1), cgroup(2)
    machine.put(one, other)
    of(machine).apply(LimitCgroup(container(one, gpu=1), 4 * GIB, before=None))
    assert hard(limits(machine, one, gpu=1).own) == 4 * GIB
    assert limits(machine, one) in (ContainerMemory(), limits(machine, other))
    assert hard(limits(machine, other, gpu=1).own) is None


def test_dmem_keeps_its_old_value_below_the_present_use(dmem, of):
    place = cgroup(1)
    dmem.put(place)
    mechanisms = of(dmem)
    mechanisms.apply(LimitCgroup(container(place), 8 * GIB, before=None))
    hold(dmem, place, 6 * GIB)
    outcome = mechanisms.apply(LimitCgroup(container(place), 4 * GIB, before=None))
    assert isinstance(outcome, Pending)
    assert str(6 * GIB) in outcome.why
    assert hard(limits(dmem, place).own) == 8 * GIB
    assert isinstance(mechanisms.apply(LimitCgroup(container(place), 6 * GIB, before=None)), Done)
    hold(dmem, place, GIB)
    assert isinstance(mechanisms.apply(LimitCgroup(container(place), 4 * GIB, before=None)), Done)


def test_the_drivers_table_refuses_what_is_below_the_present_use(misc, of):
    place = cgroup(1)
    misc.put(place)
    mechanisms = of(misc)
    mechanisms.apply(LimitCgroup(container(place), 8 * GIB, before=None))
    hold(misc, place, 6 * GIB)
    outcome = mechanisms.apply(LimitCgroup(container(place), 4 * GIB, before=None))
    assert isinstance(outcome, Pending)
    assert hard(limits(misc, place).own) == 8 * GIB


def test_a_driver_that_answers_well_and_does_nothing_is_not_believed(machine, of, monkeypatch):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    mechanisms.apply(LimitCgroup(container(place), 8 * GIB, before=None))
    monkeypatch.setattr(pynvml, SETTER, lambda handle, wanted: None)
    outcome = mechanisms.apply(LimitCgroup(container(place), 4 * GIB, before=None))
    assert isinstance(outcome, Pending)
    assert str(8 * GIB) in outcome.why


def test_a_limit_that_nobody_shows_is_not_done(machine, of, monkeypatch):
    place = cgroup(1)
    machine.put(place)
    monkeypatch.setattr(pynvml, SETTER, lambda handle, wanted: None)
    outcome = of(machine).apply(LimitCgroup(container(place), 4 * GIB, before=None))
    assert isinstance(outcome, Pending) if machine.dmem else reason(outcome) is Reason.INCONSISTENT


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (NO_PERMISSION, Reason.NO_PERMISSION),
        (GPU_LOST, Reason.GPU_LOST),
        (UNKNOWN, Reason.DRIVER_ERROR),
        (INVALID_ARGUMENT, Reason.DRIVER_ERROR),
    ],
)
def test_a_refusal_is_a_failure(misc, of, code, expected):
    place = cgroup(1)
    misc.put(place)
    misc.write(Fault(SETTER, code=code))
    assert reason(of(misc).apply(LimitCgroup(container(place), 4 * GIB, before=None))) is expected


def test_a_driver_without_such_limits(machine_of, of):
    machine = machine_of(state.LimitsBackend.OFF)
    place = cgroup(1)
    machine.put(place)
    assert reason(of(machine).apply(LimitCgroup(container(place), GIB, before=None))) is Reason.NOT_SUPPORTED


def test_a_library_without_the_call(machine_of, of):
    machine = machine_of(state.LimitsBackend.OFF, generation="580")
    place = cgroup(1)
    machine.put(place)
    outcome = of(machine).apply(LimitCgroup(container(place), GIB, before=None))
    assert reason(outcome) is Reason.NOT_SUPPORTED
    assert "615" in outcome.detail


def test_one_cgroup_without_the_controller_is_not_a_gpu_without_limits(dmem, of):
    place = cgroup(1)
    dmem.put(place)
    for name in ("dmem.max", "dmem.min", "dmem.low", "dmem.current"):
        (dmem.folder(place.path) / name).unlink()
    outcome = of(dmem).apply(LimitCgroup(container(place), GIB, before=None))
    assert reason(outcome) is Reason.MISSING
    assert "+dmem" in outcome.detail


def test_a_gpu_that_is_gone(machine, of):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    machine.write(gpus=(0,))
    assert reason(mechanisms.apply(LimitCgroup(container(place, gpu=1), GIB, before=None))) in (
        Reason.NOT_FOUND,
        Reason.GPU_LOST,
    )


def test_a_cgroup_that_is_not_there(machine, of):
    machine.put(cgroup(2))
    mechanisms = of(machine)
    for level in (container(cgroup(1)), pod(cgroup(1)), container(cgroup(2, 7))):
        assert reason(mechanisms.apply(LimitCgroup(level, GIB, before=None))) is Reason.MISSING


@pytest.mark.parametrize("level_of", [container, pod])
def test_a_cgroup_that_vanishes_between_setting_and_reading(machine, of, monkeypatch, level_of):
    place = cgroup(1)
    machine.put(place, cgroup(2))
    real = pynvml.nvmlDeviceSetMemoryLimits_v1

    def set_and_vanish(handle, wanted):
        real(handle, wanted)
        machine.tree.remove(place.pod_path)

    monkeypatch.setattr(pynvml, SETTER, set_and_vanish)
    mechanisms = of(machine)
    assert reason(mechanisms.apply(LimitCgroup(level_of(place), GIB, before=None))) is Reason.MISSING
    assert mechanisms.records().limits == {level_of(place): None}
    assert isinstance(mechanisms.apply(FreeCgroup(level_of(place), None)), Done)  # its limit went with it
    assert mechanisms.records().limits == {}


def test_a_cgroup_that_vanishes_before_it_is_set(machine, of, monkeypatch):
    place = cgroup(1)
    machine.put(place, cgroup(2))
    real = pynvml.nvmlDeviceSetMemoryLimits_v1

    def too_late(handle, wanted):
        machine.tree.remove(place.path)
        real(handle, wanted)

    monkeypatch.setattr(pynvml, SETTER, too_late)
    assert reason(of(machine).apply(LimitCgroup(container(place), GIB, before=None))) is Reason.MISSING


def test_nothing_is_taken_for_gone_in_a_tree_without_pods(machine, of):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    mechanisms.apply(LimitCgroup(container(place), GIB, before=None))
    shutil.rmtree(machine.tree.root / "kubepods.slice")
    blind = of(machine)
    assert reason(blind.apply(FreeCgroup(container(place), None))) is Reason.MISSING
    assert container(place) in blind.records().limits


def test_a_call_that_hangs_costs_its_gpu_and_the_deadline(machine, of):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine, deadline=0.5)
    machine.write(Fault(SETTER, hang=True, gpu=0))
    begun = time.monotonic()
    assert reason(mechanisms.apply(LimitCgroup(container(place), GIB, before=None))) is Reason.TIMEOUT
    assert reason(mechanisms.apply(LimitCgroup(pod(place), GIB, before=None))) is Reason.TIMEOUT
    assert time.monotonic() - begun < 5
    assert set(mechanisms.records().limits) == {container(place), pod(place)}  # whatever may still come of it
    assert isinstance(mechanisms.apply(LimitCgroup(container(place, gpu=1), GIB, before=None)), Done)


def test_the_library_is_not_stopped_below_a_call(machine, of):
    place, use = cgroup(1), LibraryUse()
    machine.put(place)
    mechanisms = of(machine, deadline=0.3, use=use)
    machine.write(Fault(SETTER, hang=True))
    mechanisms.apply(LimitCgroup(container(place), GIB, before=None))
    with use.stopping() as alone:
        assert not alone


def test_no_limit_without_a_record(machine, of, short_tmp):
    place = cgroup(1)
    machine.put(place)
    (short_tmp / "state").write_text("somebody's file")
    mechanisms = of(machine)
    assert reason(mechanisms.apply(LimitCgroup(container(place), GIB, before=None))) is Reason.UNREADABLE
    assert hard(limits(machine, place).own) is None
    assert isinstance(mechanisms.records(), Failure)


def test_the_record_is_there_before_the_limit(machine, of, monkeypatch):
    place = cgroup(1)
    machine.put(place)
    seen = []
    mechanisms = of(machine)
    monkeypatch.setattr(pynvml, SETTER, lambda handle, wanted: seen.append(mechanisms.records().limits))
    mechanisms.apply(LimitCgroup(container(place), GIB, before=7 * GIB))
    assert seen == [{container(place): 7 * GIB}]


def test_a_torn_record_keeps_a_limit_from_being_set_or_freed(machine, of, short_tmp):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    mechanisms.apply(LimitCgroup(container(place), GIB, before=None))
    path = short_tmp / "state/pods" / f"{place.pod_uid}.json"
    path.write_bytes(path.read_bytes()[:20])
    assert reason(mechanisms.records()) is Reason.MALFORMED
    assert reason(mechanisms.apply(LimitCgroup(pod(place), GIB, before=None))) is Reason.MALFORMED


def test_the_kernels_files_are_written_by_the_driver_alone(dmem, of, monkeypatch):
    place = cgroup(1)
    dmem.put(place)
    opened = []
    real = os.open
    monkeypatch.setattr(
        os,
        "open",
        lambda path, flags, *rest, **more: (opened.append((path, flags)), real(path, flags, *rest, **more))[1],
    )
    assert isinstance(of(dmem).apply(LimitCgroup(container(place), GIB, before=None)), Done)
    monkeypatch.undo()
    touched = [(os.fsdecode(path), flags) for path, flags in opened if "dmem" in os.fsdecode(path)]
    assert touched
    assert all(flags & os.O_ACCMODE == os.O_RDONLY for _, flags in touched)


def test_a_hostile_uid_reaches_no_cgroup(machine, of):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    for uid in ("../../x", "", "*"):
        level = Level(ContainerRef(uid, "c" * 64), device(0).uuid)
        assert reason(mechanisms.apply(LimitCgroup(level, GIB, before=None))) is Reason.MALFORMED


def test_a_pod_that_is_gone_is_forgotten(machine, of, short_tmp):
    place = cgroup(1)
    machine.put(place)
    mechanisms = of(machine)
    mechanisms.apply(LimitCgroup(container(place), GIB, before=None))
    assert json.loads((short_tmp / "state/pods" / f"{place.pod_uid}.json").read_bytes())["uid"] == place.pod_uid
    assert isinstance(mechanisms.apply(DropRecords(place.pod_uid)), Done)
    assert mechanisms.records().limits == {}
