"""How busy each process is: which samples count, for which window, and what a driver that answers nonsense costs."""

import struct
from collections import Counter
from contextlib import contextmanager
from unittest.mock import patch

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import ProcessUtilization, UtilizationWindow
from exporter.sources.nvml_utilization import UtilizationSamples
from simulator.nvml.state import Fault, GpuInstance, Memory, MigDevice, Row, Sample
from tests.driver.conftest import GIB, devices, gpu

SYMBOL = "nvmlDeviceGetProcessUtilization"
SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND  # what the fixture's clock says at first, in microseconds


def window(source, number=0):
    return devices(source.read())[number].process_utilization


def means(found):
    assert isinstance(found, UtilizationWindow), found
    return {process.pid: process.sm for process in found.processes}


def sample(pid, age, sm):
    """A sample taken `age` seconds before the fixture's first time."""
    return Sample(pid, time=NOW - int(age * SECOND), sm=sm)


def test_b20_each_process_has_the_mean_of_its_samples(driver):
    samples = (sample(11, 3, 80), sample(12, 3, 50), sample(11, 2, 70), sample(11, 1, 60))
    driver.write(gpu(samples=samples))
    found = window(driver.source(fixed_time=True))
    assert found == UtilizationWindow((ProcessUtilization(11, 0.7), ProcessUtilization(12, 0.5)))


def test_n51_b82_no_sample_is_an_answer(driver):
    driver.write(gpu(rows=(Row(11, used=GIB),)))
    source = driver.source()
    assert window(source) == window(source) == UtilizationWindow()
    assert driver.calls()[SYMBOL] == 2


def test_b85_the_first_window_is_one_interval_and_holds_no_old_sample(driver):
    driver.write(gpu(samples=(sample(11, 8, 90), sample(12, 4, 10))))
    assert means(window(driver.source(fixed_time=True, interval=5.0))) == {12: 0.1}


def test_b85_a_window_begins_where_the_one_before_ended(driver):
    source = driver.source(fixed_time=True)
    samples = (sample(11, 1, 90), sample(12, 2, 30))
    driver.write(gpu(samples=samples))
    assert means(window(source)) == {11: 0.9, 12: 0.3}
    driver.unix.now += 5
    driver.write(gpu(samples=(*samples, sample(12, -3, 40))))
    assert means(window(source)) == {12: 0.4}
    driver.unix.now += 5
    assert window(source) == UtilizationWindow()  # and not the 0.4 once more


def test_a_cycle_without_an_answer_loses_no_sample(driver):
    source = driver.source(fixed_time=True)
    driver.write(gpu(samples=(sample(11, 1, 90),)))
    window(source)
    driver.write(faulty := gpu(samples=(sample(11, 1, 90), sample(11, -1, 40))), faults=(Fault(SYMBOL, code=999),))
    driver.unix.now += 5
    assert window(source).reason is Reason.DRIVER_ERROR
    driver.write(faulty)
    driver.unix.now += 5
    assert means(window(source)) == {11: 0.4}


def test_each_gpu_has_a_window_of_its_own(driver):
    source = driver.source(fixed_time=True)
    driver.write(gpu(0, samples=(sample(11, 3, 10),)), gpu(1, samples=(sample(21, 0, 20),)))
    source.read()
    driver.unix.now += 5
    driver.write(
        gpu(0, samples=(sample(11, 3, 10), sample(11, 1, 30))), gpu(1, samples=(sample(21, 0, 20), sample(21, 1, 99)))
    )
    found = devices(source.read())
    assert means(found[0].process_utilization) == {11: 0.3}
    assert means(found[1].process_utilization) == {}


def test_a_clock_that_is_set_back_does_not_end_the_measuring(driver):
    source = driver.source(fixed_time=True)
    driver.write(gpu(samples=(sample(11, 0, 90),)))
    source.read()
    driver.unix.now -= 3600
    driver.write(gpu(samples=(sample(11, 3599, 40),)))
    driver.unix.now += 2
    assert means(window(source)) == {11: 0.4}


def test_more_samples_than_room_are_read_whole_and_the_room_is_kept(driver):
    source = driver.source(fixed_time=True)
    driver.write(gpu(samples=tuple(sample(1000 + n, 1, n % 100) for n in range(300))))
    assert means(window(source)) == {1000 + n: n % 100 / 100 for n in range(300)}
    assert driver.calls()[SYMBOL] == 2
    driver.unix.now += 5
    driver.write(gpu(samples=tuple(sample(1000 + n, -4, 7) for n in range(300))))
    assert len(means(window(source))) == 300
    assert driver.calls()[SYMBOL] == 3


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    ],
)
def test_b65_where_it_is_not_supported_it_is_asked_for_once_and_memory_stays(driver, code):
    driver.write(gpu(rows=(Row(11, used=GIB),)), faults=(Fault(SYMBOL, code=code),))
    source = driver.source()
    for _ in range(3):
        found = devices(source.read())[0]
        assert found.process_utilization.reason is Reason.NOT_SUPPORTED
        assert found.domains[0].memory.used == 10 * GIB
    assert driver.calls()[SYMBOL] == 1


def test_b65_under_mig_nobody_is_asked(driver):
    instance = GpuInstance(
        1, profile="1g.10gb", slices=1, memory=Memory(10 * GIB), devices=(MigDevice("MIG-a", slot=0),)
    )
    driver.write(gpu(mig_mode=True, instances=(instance,), samples=(sample(11, 1, 50),)))
    assert window(driver.source()) is None
    assert SYMBOL not in driver.calls()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, Reason.DRIVER_ERROR),
        (pynvml.NVML_ERROR_TIMEOUT, Reason.TRANSIENT),
        (pynvml.NVML_ERROR_NO_PERMISSION, Reason.NO_PERMISSION),
        (pynvml.NVML_ERROR_INSUFFICIENT_SIZE, Reason.TRANSIENT),  # however large the buffer
    ],
)
def test_a_failing_call_costs_the_samples_of_that_gpu(driver, code, reason):
    driver.write(gpu(0, utilization=(40, 0)), gpu(1), faults=(Fault(SYMBOL, gpu=0, code=code),))
    found = devices(driver.source().read())
    assert found[0].process_utilization.reason is reason
    assert (found[0].failure, found[0].utilization, found[0].domains[0].memory.used) == (None, 0.4, 10 * GIB)
    assert found[1].process_utilization == UtilizationWindow()


def test_n46_a_gpu_that_is_lost_in_this_call_is_lost(driver):
    driver.write(gpu(0), gpu(1), faults=(Fault(SYMBOL, gpu=0, code=pynvml.NVML_ERROR_GPU_IS_LOST),))
    found = devices(driver.source().read())
    assert found[0].failure.reason is Reason.GPU_LOST
    assert found[1].failure is None


def test_n48_a_library_that_is_unusable_in_this_call_is_unusable(driver):
    driver.write(gpu(0), faults=(Fault(SYMBOL, code=pynvml.NVML_ERROR_UNINITIALIZED),))
    assert driver.source().read().failure.reason is Reason.DRIVER_NOT_LOADED


# --- a driver that hands out whatever it likes, whatever time it is asked about ---------------------------------------


@contextmanager
def handing_out(samples):
    def answer(_handle, rows, size, _seen):
        assert len(samples) <= size._obj.value
        size._obj.value = len(samples)
        for place, (pid, time, percent) in enumerate(samples):
            struct.pack_into("=I4xQ4I", rows, place * 32, pid, time, percent, 1, 2, 3)
        return 0

    with patch.dict(pynvml._nvmlGetFunctionPointer_cache, {SYMBOL: answer}):
        yield


def reader(*, interval=5.0, now=NOW):
    return UtilizationSamples(interval=interval, clock=Clock(unix=lambda: now / SECOND))


def read(samples, of=None):
    with handing_out(samples):
        found = (of or reader()).read(None)
    assert isinstance(found, UtilizationWindow)
    return found


@pytest.mark.parametrize(
    ("bad", "unknown"),
    [
        ((0, NOW, 50), []),
        ((4294967295, NOW, 50), []),
        ((11, 0, 50), []),
        ((11, 0, 4294967295), []),
        ((11, NOW - 8 * SECOND, 50), []),
        ((11, NOW - 5 * SECOND, 50), []),  # exactly where the window begins
        ((11, NOW, 137), [11]),
        ((11, NOW, 101), [11]),
        ((11, NOW, 2147483632), [11]),
        ((11, NOW, 4294967295), [11]),
        ((11, NOW, 808334905), [11]),
        ((11, NOW + 60 * SECOND, 50), [11]),
        ((11, 2**64 - 1, 50), [11]),
    ],
)
def test_n52_b84_b92_a_sample_that_cannot_be_true_is_dropped_and_counted(bad, unknown):
    found = read([(12, NOW, 30), bad])
    assert means(found) == {12: 0.3} | dict.fromkeys(unknown)
    assert found.rejected == 1


def test_b92_a_process_with_another_sample_is_known_by_that_one():
    assert read([(11, NOW, 4294967295), (11, NOW - 1, 40)]) == UtilizationWindow((ProcessUtilization(11, 0.4),), 1)


def test_rows_that_the_driver_counts_but_does_not_write_are_rejected():
    def answer(_handle, _rows, size, _seen):
        size._obj.value = 100
        return 0

    with patch.dict(pynvml._nvmlGetFunctionPointer_cache, {SYMBOL: answer}):
        assert reader().read(None) == UtilizationWindow((), 100)


def test_an_empty_success_is_an_empty_window():
    assert read([]) == UtilizationWindow()


def test_no_time_that_cannot_be_true_moves_the_window():
    one = reader()
    read([(11, 2**64 - 1, 50), (11, NOW + 60 * SECOND, 50)], one)
    assert means(read([(11, NOW, 40)], one)) == {11: 0.4}


def test_a_gpus_clock_may_be_a_little_ahead_of_ours():
    assert read([(11, NOW + SECOND // 2, 40)]) == UtilizationWindow((ProcessUtilization(11, 0.4),))


def test_the_window_moves_past_a_percentage_that_cannot_be_true():
    one = reader()
    read([(11, NOW - 1, 200)], one)
    assert read([(11, NOW - 1, 200), (12, NOW - 2, 50), (12, NOW, 60)], one) == UtilizationWindow(
        (ProcessUtilization(12, 0.6),), 2
    )


def test_a_missing_symbol_is_not_supported(driver, monkeypatch):
    class Library:
        """A driver without the symbol."""

    monkeypatch.setattr(pynvml, "nvmlLib", Library())
    answer = reader().read(None)
    assert isinstance(answer, Failure)
    assert answer.reason is Reason.NOT_SUPPORTED


_TIMES = st.integers(NOW - 10 * SECOND, NOW + 10 * SECOND) | st.sampled_from([0, 1, NOW, 2**64 - 1])
_PERCENTS = st.integers(0, 100) | st.integers(0, 2**32 - 1)
_SAMPLES = st.lists(st.tuples(st.integers(0, 6) | st.just(2**32 - 1), _TIMES, _PERCENTS), max_size=30)
_STALE = st.lists(st.tuples(st.integers(0, 6), st.integers(0, NOW - 5 * SECOND), st.integers(0, 100)), max_size=9)


@given(_SAMPLES)
def test_values_are_ratios_of_real_processes_each_once(samples):
    found = read(samples)
    assert all(process.sm is None or 0 <= process.sm <= 1 for process in found.processes)
    assert max(Counter(process.pid for process in found.processes).values(), default=1) == 1
    assert {process.pid for process in found.processes} <= set(range(1, 7))
    assert 0 <= found.rejected <= len(samples)
    assert found.rejected < len(samples) or all(process.sm is None for process in found.processes)


@given(_SAMPLES, st.randoms())
def test_p6_the_order_of_samples_does_not_matter(samples, random):
    mixed = list(samples)
    random.shuffle(mixed)
    assert read(mixed) == read(samples)


@given(_SAMPLES, _STALE)
def test_b85_stale_samples_change_nothing_but_their_count(samples, stale):
    before, after = read(samples), read([*stale, *samples])
    assert after.processes == before.processes
    assert after.rejected == before.rejected + len(stale)


@given(st.lists(_SAMPLES, min_size=1, max_size=5))
def test_no_sample_counts_twice(answers):
    one = reader()
    for samples in answers:
        read(samples, one)
    for samples in answers:
        assert read(samples, one).rejected == len(samples)
