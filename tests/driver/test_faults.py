"""A driver that is ill: what it costs, what it leaves, and how the source gets well again."""

import threading
import time

import pynvml
import pytest

from exporter.errors import Failure, Reason
from exporter.model import ListKind
from simulator.nvml.state import Driver, Fault, Row
from tests.driver.conftest import GIB, devices, gpu, value

LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"


def rows(number):
    return (Row(11 + number, used=GIB),)


def two_gpus():
    return gpu(0, rows=rows(0)), gpu(1, rows=rows(1))


@pytest.mark.parametrize("symbol", [LISTS, MEMORY, "nvmlDeviceGetHandleByIndex_v2"])
@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED])
def test_n46_b101_a_lost_gpu_costs_itself_and_comes_back(driver, symbol, code):
    driver.write(*two_gpus())
    source = driver.source(fixed_time=True)
    source.read()
    driver.time.now += 61  # time to open the GPUs anew, so that every symbol is called again
    driver.write(*two_gpus(), faults=(Fault(symbol, gpu=1, code=code),))
    found = devices(source.read())
    assert found[0].failure is None
    assert found[1].failure.reason is Reason.GPU_LOST
    assert found[1].domains == ()
    driver.write(*two_gpus())
    assert devices(source.read())[1].failure is None


def test_n71_b100_a_gpu_that_the_driver_no_longer_lists_is_remembered_as_lost(driver):
    driver.write(*two_gpus())
    source = driver.source()
    source.read()
    driver.write(gpu(0, rows=rows(0)))
    found = devices(source.read())
    assert found[0].failure is None
    assert found[1].failure.reason is Reason.GPU_LOST
    driver.write(*two_gpus())
    assert devices(source.read())[1].failure is None


def test_n71_an_index_that_moves_to_another_gpu_mixes_nothing_up(driver):
    driver.write(*two_gpus())
    source = driver.source(fixed_time=True)
    source.read()
    driver.write(gpu(1, rows=rows(1)))  # GPU 1 is now at index 0
    driver.time.now += 61
    found = devices(source.read())
    assert found[0].failure.reason is Reason.GPU_LOST
    assert [row.pid for row in found[1].domains[0].lists[ListKind.COMPUTE].rows] == [12]


def test_n47_a_gpu_without_permission_is_told_and_the_others_are_read(driver):
    fault = Fault("nvmlDeviceGetHandleByIndex_v2", gpu=1, code=pynvml.NVML_ERROR_NO_PERMISSION)
    driver.write(*two_gpus(), faults=(fault,))
    reading = value(driver.source().read())
    assert [found.device.index for found in reading.devices] == [0]
    assert [problem.reason for problem in reading.failures] == [Reason.NO_PERMISSION]
    assert "NVIDIA_VISIBLE_DEVICES" in reading.failures[0].detail


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, Reason.DRIVER_ERROR),
        (pynvml.NVML_ERROR_TIMEOUT, Reason.TRANSIENT),
        (pynvml.NVML_ERROR_NO_PERMISSION, Reason.NO_PERMISSION),
        (4711, Reason.DRIVER_ERROR),
    ],
)
def test_b11_a_failing_list_is_a_failure_of_that_list(driver, code, reason):
    driver.write(*two_gpus(), faults=(Fault(LISTS, gpu=1, code=code, calls=1),))
    source = driver.source()
    found = devices(source.read())
    assert found[1].domains[0].lists[ListKind.COMPUTE].reason is reason
    assert found[1].domains[0].memory.used == 10 * GIB
    assert not isinstance(found[0].domains[0].lists[ListKind.COMPUTE], Failure)
    assert not isinstance(devices(source.read())[1].domains[0].lists[ListKind.COMPUTE], Failure)


@pytest.mark.parametrize("kind", [ListKind.GRAPHICS, ListKind.MPS])
def test_n20_n23_a_list_that_is_not_supported_is_asked_for_once(driver, kind):
    symbol = {
        ListKind.GRAPHICS: "nvmlDeviceGetGraphicsRunningProcesses_v3",
        ListKind.MPS: "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    }[kind]
    driver.write(gpu(0, rows=rows(0)), faults=(Fault(symbol, code=pynvml.NVML_ERROR_NOT_SUPPORTED),))
    source = driver.source()
    for _ in range(3):
        found = devices(source.read())[0].domains[0].lists
        assert found[kind].reason is Reason.NOT_SUPPORTED
        assert [row.pid for row in found[ListKind.COMPUTE].rows] == [11]
    assert driver.calls()[symbol] == 1


def test_n43_the_second_memory_call_may_be_refused(driver):
    driver.write(gpu(0), faults=(Fault(MEMORY, code=pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH),))
    source = driver.source()
    for _ in range(2):
        memory = devices(source.read())[0].domains[0].memory
        assert (memory.reserved, memory.used) == (None, 11 * GIB)
    assert driver.calls()[MEMORY] == 1


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_n48_after_a_lifecycle_error_the_library_is_started_anew_with_a_pause(driver, code):
    driver.write(*two_gpus())
    source = driver.source(fixed_time=True)
    source.read()
    driver.write(*two_gpus(), faults=(Fault(LISTS, gpu=0, code=code),))
    assert source.read().failure.reason is Reason.DRIVER_NOT_LOADED
    driver.write(*two_gpus())
    assert source.read().failure is not None  # not before the pause is over
    assert driver.calls()["nvmlInitWithFlags"] == 1
    driver.time.now += 1.5
    assert set(devices(source.read())) == {0, 1}
    assert driver.calls()["nvmlShutdown"] == 1
    assert driver.calls()["nvmlInitWithFlags"] == 2


def test_the_pause_between_starts_grows(driver):
    driver.write(driver=Driver(init_code=pynvml.NVML_ERROR_DRIVER_NOT_LOADED))
    source = driver.source(fixed_time=True)
    tries = []
    for _ in range(600):
        source.read()
        tries.append(driver.calls().get("nvmlInitWithFlags", 0))
        driver.time.now += 1
    assert 10 < tries[-1] < 20  # 1 s, 2 s, 4 s ... and then one a minute


@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, Reason.DRIVER_NOT_LOADED, "load it"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, Reason.LIBRARY_MISMATCH, "restart the exporter's pod"),
        (pynvml.NVML_ERROR_NO_PERMISSION, Reason.NO_PERMISSION, "NVIDIA_VISIBLE_DEVICES"),
        (pynvml.NVML_ERROR_UNKNOWN, Reason.DRIVER_ERROR, "nvmlInit"),
    ],
)
def test_n49_n50_b105_a_driver_that_comes_later_is_found(driver, code, reason, advice):
    driver.write(gpu(0), driver=Driver(init_code=code))
    source = driver.source(fixed_time=True)
    failure = source.read().failure
    assert failure.reason is reason
    assert advice in failure.detail
    driver.write(gpu(0))
    driver.time.now += 60
    assert set(devices(source.read())) == {0}


def test_b106_a_driver_without_gpus_says_so_and_is_asked_again(driver):
    driver.write()
    source = driver.source(fixed_time=True)
    assert source.read().failure.reason is Reason.NO_GPUS
    driver.write(gpu(0))
    driver.time.now += 60
    assert set(devices(source.read())) == {0}


def test_b102_a_call_that_never_returns_costs_one_gpu_and_one_thread(driver):
    driver.write(*two_gpus())
    source = driver.source(deadline=0.3)
    source.read()
    driver.write(*two_gpus(), faults=(Fault(LISTS, gpu=1, hang=True),))
    found = devices(source.read())
    threads = threading.active_count()
    assert found[1].failure.reason is Reason.TIMEOUT
    begun = time.monotonic()
    for _ in range(100):
        found = devices(source.read())
        assert found[0].domains[0].lists[ListKind.COMPUTE].rows
        assert found[1].failure.reason is Reason.TIMEOUT
    assert threading.active_count() == threads
    assert time.monotonic() - begun < 20 * 0.3  # the hung call is not waited for a hundred times
    driver.write(*two_gpus())
    until = time.monotonic() + 10
    while devices(source.read())[1].failure is not None:
        assert time.monotonic() < until


def test_a_hung_call_keeps_the_library_from_being_stopped_below_it(driver):
    driver.write(*two_gpus())
    source = driver.source(deadline=0.3, fixed_time=False)
    source.read()
    hang = Fault(LISTS, gpu=1, hang=True)
    driver.write(*two_gpus(), faults=(hang,))
    source.read()
    driver.write(*two_gpus(), faults=(hang, Fault(MEMORY, gpu=0, code=pynvml.NVML_ERROR_UNINITIALIZED)))
    assert source.read().failure.reason is Reason.DRIVER_NOT_LOADED
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        source.read()
        time.sleep(0.1)
    assert driver.calls().get("nvmlShutdown", 0) == 0
    driver.write(*two_gpus())
    until = time.monotonic() + 20
    while (reading := source.read()).failure is not None or any(d.failure for d in reading.value.devices):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert driver.calls()["nvmlShutdown"] == 1


def test_an_init_that_hangs_is_waited_for_once(driver):
    driver.write(gpu(0), faults=(Fault("nvmlInitWithFlags", hang=True),))
    source = driver.source(deadline=0.2)
    begun = time.monotonic()
    for _ in range(20):
        assert source.read().failure.reason is Reason.TIMEOUT
    assert time.monotonic() - begun < 2
    driver.write(gpu(0))
    until = time.monotonic() + 10
    while source.read().failure is not None:
        assert time.monotonic() < until


def test_n72_a_process_that_ends_between_two_lists_counts_for_this_cycle(driver):
    driver.write(gpu(0, rows=rows(0)))
    source = driver.source()
    assert [row.pid for row in devices(source.read())[0].domains[0].lists[ListKind.COMPUTE].rows] == [11]
    driver.write(gpu(0))
    assert devices(source.read())[0].domains[0].lists[ListKind.COMPUTE].rows == ()
