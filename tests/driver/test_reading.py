"""What one cycle reads from a driver that is well, and how many calls it makes for that."""

import pytest

from exporter.errors import Failure, Reason
from exporter.model import ListKind, MemoryInfo, MigDevice, ProcessList
from simulator.nvml.state import Cgroup, Driver, Fault, GpuInstance, Memory, Row, RowKind
from simulator.nvml.state import MigDevice as SimulatedMig
from tests.driver.conftest import GIB, MIB, devices, gpu, value


def rows_of(found, kind=ListKind.COMPUTE):
    return [(row.pid, row.used) for row in found.domains[0].lists[kind].rows]


def test_a_gpu_with_its_identity_memory_lists_and_utilization(driver):
    rows = (Row(11, used=GIB), Row(11, used=GIB, kind=RowKind.MPS), Row(12, used=2 * GIB, kind=RowKind.GRAPHICS))
    driver.write(gpu(rows=rows, utilization=(37, 5), compute_mode=3))
    reading = value(driver.source().read())
    assert (reading.driver_version, reading.cuda_version) == ("580.65.06", "13.0")
    (found,) = reading.devices
    assert (found.device.index, found.device.minor, found.device.compute_capability) == (0, 0, (9, 0))
    assert (found.device.compute_mode, found.device.persistence, found.device.mig_mode) == (
        "exclusive_process",
        True,
        False,
    )
    assert found.utilization == 0.37
    (domain,) = found.domains
    assert domain.memory == MemoryInfo(80 * GIB, 69 * GIB, GIB)
    assert domain.memory.used == 10 * GIB
    assert rows_of(found) == [(11, GIB)]
    assert rows_of(found, ListKind.MPS) == [(11, GIB)]
    assert rows_of(found, ListKind.GRAPHICS) == [(12, 2 * GIB)]


def test_a_cycle_makes_one_call_for_memory_each_list_utilization_and_its_samples(driver):
    driver.write(gpu(0, rows=(Row(11, used=GIB),)), gpu(1))
    source = driver.source()
    source.read()
    before = driver.calls()
    for _ in range(10):
        source.read()
    made = {symbol: calls - before.get(symbol, 0) for symbol, calls in driver.calls().items()}
    assert {symbol: calls for symbol, calls in made.items() if calls} == {
        "nvmlDeviceGetCount_v2": 10,
        "nvmlDeviceGetMemoryInfo_v2": 20,
        "nvmlDeviceGetComputeRunningProcesses_v3": 20,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": 20,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3": 20,
        "nvmlDeviceGetUtilizationRates": 20,
        "nvmlDeviceGetProcessUtilization": 20,
    }


def test_n14_memory_that_the_driver_does_not_tell_is_none(driver):
    driver.write(gpu(rows=(Row(11, used=None), Row(12, used=0))))
    assert rows_of(devices(driver.source().read())[0]) == [(11, None), (12, 0)]


def test_n18_a_list_that_grows_between_two_calls_is_read_whole(driver):
    rows = tuple(Row(1000 + n, used=MIB) for n in range(300))
    driver.write(
        gpu(rows=rows, memory=Memory(80 * GIB, used=300 * MIB)),
        faults=(Fault("nvmlDeviceGetComputeRunningProcesses_v3", calls=1, grows=43),),
    )
    source = driver.source()
    assert len(rows_of(devices(source.read())[0])) == 300
    before = driver.calls()["nvmlDeviceGetComputeRunningProcesses_v3"]
    assert len(rows_of(devices(source.read())[0])) == 300
    assert driver.calls()["nvmlDeviceGetComputeRunningProcesses_v3"] == before + 1  # the larger buffer is kept


@pytest.mark.parametrize("generation", ["470", "535.54", "535.183", "550", "570", "580", "615"])
def test_n21_every_driver_generation_gives_the_same_rows(driver, generation):
    driver.write(
        gpu(rows=tuple(Row(n, used=n * MIB) for n in range(11, 30))),
        driver=Driver(early_rows=generation == "535.54"),
    )
    found = devices(driver.source().read())[0]
    assert rows_of(found) == [(n, n * MIB) for n in range(11, 30)]
    # Without the second version of the memory call what is reserved can't be told from what is used.
    assert found.domains[0].memory.reserved == (None if generation == "470" else GIB)
    assert found.domains[0].memory.used == (11 * GIB if generation == "470" else 10 * GIB)


@pytest.mark.parametrize("protected", [None, 0, 5 * MIB])
def test_n24_early_535_rows_are_recognised_by_their_length(driver, protected):
    rows = tuple(Row(1000 + n, used=GIB, protected=protected) for n in range(3))
    driver.write(gpu(rows=rows), driver=Driver(early_rows=True))
    assert rows_of(devices(driver.source().read())[0]) == [(1000, GIB), (1001, GIB), (1002, GIB)]


def test_n25_n26_impossible_rows_are_dropped_and_counted(driver):
    good = tuple(Row(n, used=MIB) for n in range(11, 20))
    bad = (Row(0, used=MIB), Row(4294967295, used=MIB), Row(2147483648, used=12), Row(21, used=81 * GIB))
    driver.write(gpu(rows=(*good, *bad)))
    found = devices(driver.source().read())[0]
    assert rows_of(found) == [(n, MIB) for n in range(11, 20)]
    assert found.domains[0].lists[ListKind.COMPUTE].rejected == 4


def test_b79_a_list_of_nonsense_is_not_used_at_all(driver):
    driver.write(gpu(rows=(Row(11, used=2 * GIB), Row(2147483648, used=12))))
    answer = devices(driver.source().read())[0].domains[0].lists[ListKind.COMPUTE]
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.ROWS_REJECTED


@pytest.mark.parametrize(("count", "truncated"), [(949, False), (950, True)])
def test_n27_a_list_of_950_rows_is_taken_for_truncated(driver, count, truncated):
    driver.write(gpu(rows=tuple(Row(1000 + n, used=0) for n in range(count))))
    answer = devices(driver.source().read())[0].domains[0].lists[ListKind.COMPUTE]
    assert isinstance(answer, ProcessList)
    assert (len(answer.rows), answer.truncated) == (count, truncated)


def test_n40_b87_a_gpu_without_memory_of_its_own_keeps_its_rows(driver):
    driver.write(gpu(memory=None, rows=(Row(11, used=8 * GIB),)))
    found = devices(driver.source().read())[0]
    assert found.domains[0].memory.reason is Reason.NOT_SUPPORTED
    assert rows_of(found) == [(11, 8 * GIB)]


def test_n41_a_total_of_zero_is_no_memory(driver):
    driver.write(gpu(memory=Memory(0)))
    assert devices(driver.source().read())[0].domains[0].memory.reason is Reason.NOT_SUPPORTED


@pytest.mark.parametrize(
    "memory", [Memory(GIB, free=2 * GIB), Memory(GIB, used=2 * GIB, free=0), Memory(1, reserved=1 << 20)]
)
def test_memory_that_contradicts_itself_is_refused(driver, memory):
    driver.write(gpu(memory=memory))
    assert devices(driver.source().read())[0].domains[0].memory.reason is Reason.INCONSISTENT


def test_n45_less_memory_than_before_is_a_cgroups_limit_and_not_the_gpus_size(driver):
    driver.write(gpu())
    source = driver.source()
    source.read()
    driver.write(gpu(memory=Memory(4 * GIB, used=GIB)))
    (domain,) = devices(source.read())[0].domains
    assert domain.memory_view_limited
    assert domain.memory.reason is Reason.INCONSISTENT


def test_n69_the_variable_that_cripples_nvml_is_removed_and_told(driver, monkeypatch):
    monkeypatch.setenv("NVML_MPS_DEVICE_ENUMERATION", "1")
    driver.write(gpu(rows=(Row(11, used=GIB),)))
    source = driver.source()
    for _ in range(2):
        reading = source.read()
        assert rows_of(devices(reading)[0]) == [(11, GIB)]
        assert value(reading).mps_enumeration


def _mig_gpu(*slots):
    devices_of = {
        1: (SimulatedMig("MIG-a", slot=slots[0], compute_instance=0, slices=2),),
        2: (
            SimulatedMig("MIG-b", slot=slots[1], compute_instance=0, slices=1),
            SimulatedMig("MIG-c", slot=slots[2], compute_instance=1, slices=2),
        ),
    }
    instances = (
        GpuInstance(1, profile="2g.20gb", slices=2, memory=Memory(20 * GIB, used=3 * GIB), devices=devices_of[1]),
        GpuInstance(2, profile="3g.40gb", slices=3, memory=Memory(40 * GIB, used=5 * GIB), devices=devices_of[2]),
    )
    rows = (
        Row(11, used=2 * GIB, gpu_instance=1, compute_instance=0),
        Row(12, used=GIB, gpu_instance=2, compute_instance=0),
        Row(13, used=3 * GIB, gpu_instance=2, compute_instance=1),
    )
    return gpu(mig_mode=True, instances=instances, rows=rows)


def test_n53_n55_mig_instances_are_domains_whatever_holes_there_are(driver):
    driver.write(_mig_gpu(0, 2, 5))
    found = devices(driver.source().read())[0]
    assert found.mig_devices == (
        MigDevice("MIG-a", 1, 0, "2g.20gb"),
        MigDevice("MIG-b", 2, 0, "1c.3g.40gb"),
        MigDevice("MIG-c", 2, 1, "2c.3g.40gb"),
    )
    assert [domain.gpu_instance for domain in found.domains] == [1, 2]
    assert [domain.memory.total for domain in found.domains] == [20 * GIB, 40 * GIB]
    assert rows_of(found) == [(11, 2 * GIB)]
    second = found.domains[1].lists[ListKind.COMPUTE]
    assert [(row.pid, row.used) for row in second.rows] == [(12, GIB), (13, 3 * GIB)]
    assert found.utilization is None


def test_b66_instances_made_later_are_seen_without_a_restart(driver):
    driver.write(gpu(mig_mode=True))
    source = driver.source()
    assert devices(source.read())[0].domains == ()
    driver.write(_mig_gpu(0, 1, 2))
    assert len(devices(source.read())[0].domains) == 2


def test_cgroup_charges_do_not_disturb_the_reading(driver):
    driver.write(gpu(cgroups=(Cgroup("/sys/fs/cgroup/x", used=GIB),)))
    assert devices(driver.source().read())[0].failure is None
