import threading
import time
from ctypes import byref, c_uint, create_string_buffer

import pytest

from simulator.nvml.state import Fault, Row

DEADLINE = 20.0
COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"


def until(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.002)


def codes(nvml, call, times):
    found = []
    for _ in range(times):
        try:
            call()
            found.append(0)
        except nvml.NVMLError as error:
            found.append(error.value)
    return found


@pytest.mark.parametrize(
    ("first", "calls", "expected"),
    [(1, None, [10] * 5), (1, 2, [10, 10, 0, 0, 0]), (3, 1, [0, 0, 10, 0, 0]), (4, None, [0, 0, 0, 10, 10])],
)
def test_a_code_on_some_calls(node, gpu, first, calls, expected):
    fault = Fault("nvmlDeviceGetUUID", first=first, calls=calls, code=10)
    nvml = node.start(gpu(0), faults=(fault,))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 5) == expected


def test_a_fault_keeps_its_count_while_it_stays(node, gpu):
    fault = Fault("nvmlDeviceGetUUID", first=3, calls=1, code=10)
    nvml = node.start(gpu(0), faults=(fault,))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 2) == [0, 0]
    node.write(gpu(0), gpu(1), faults=(fault,))
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 2) == [10, 0]


def test_a_fault_that_comes_back_counts_anew(node, gpu):
    fault = Fault("nvmlDeviceGetUUID", calls=1, code=10)
    nvml = node.start(gpu(0), faults=(fault,))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 2) == [10, 0]
    node.write(gpu(0))
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 1) == [0]
    node.write(gpu(0), faults=(fault,))
    assert codes(nvml, lambda: nvml.nvmlDeviceGetUUID(handle), 2) == [10, 0]


def test_one_gpu_is_lost_n46(node, gpu):
    nvml = node.start(gpu(0), gpu(1))
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    node.write(gpu(0), gpu(1), faults=(Fault("*", gpu=1, code=15),))
    for call in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetComputeRunningProcesses):
        call(handles[0])
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(handles[1])
    assert nvml.nvmlDeviceGetCount() == 2


def test_one_gpu_is_not_permitted_n47(node, gpu):
    nvml = node.start(gpu(0), gpu(1), faults=(Fault("nvmlDeviceGetHandleByIndex_v2", gpu=1, code=4),))
    nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NoPermission):
        nvml.nvmlDeviceGetHandleByIndex(1)


def test_every_call_fails_but_the_life_cycle_n48(node, gpu):
    nvml = node.start(gpu(0), faults=(Fault("*", code=1),))
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    nvml.nvmlShutdown()
    nvml.nvmlInit()


def test_init_fails_once(node, gpu):
    node.write(gpu(0), faults=(Fault("nvmlInitWithFlags", calls=1, code=999),))
    assert codes(node.nvml, node.nvml.nvmlInit, 2) == [999, 0]


def test_the_first_code_counts(node, gpu):
    nvml = node.start(gpu(0), faults=(Fault("nvmlDeviceGetCount_v2", code=10), Fault("*", code=15)))
    assert codes(nvml, nvml.nvmlDeviceGetCount, 1) == [10]


def test_a_delay(node, gpu):
    nvml = node.start(gpu(0), faults=(Fault("nvmlDeviceGetCount_v2", calls=1, delay_ms=60), Fault("*", delay_ms=40)))
    start = time.monotonic()
    assert nvml.nvmlDeviceGetCount() == 1
    assert time.monotonic() - start >= 0.1


def test_a_hang_holds_only_its_own_calls_and_ends_with_its_fault(node, gpu):
    hang = Fault(COMPUTE, gpu=1, hang=True)
    nvml = node.start(gpu(0), gpu(1))
    first, second = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    node.write(gpu(0), gpu(1), faults=(hang,))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(nvml.nvmlDeviceGetComputeRunningProcesses(second)))
    thread.start()
    until(lambda: node.calls(COMPUTE) == 1)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(first) == []
    assert nvml.nvmlDeviceGetUUID(second) == gpu(1).uuid
    # Another change of the state does not let it go.
    node.write(gpu(0), gpu(1), gpu(2), faults=(hang,))
    assert nvml.nvmlDeviceGetCount() == 3
    assert thread.is_alive()
    node.write(gpu(0), gpu(1, rows=(Row(5, used=6),)))
    thread.join(DEADLINE)
    assert [[(row.pid, row.usedGpuMemory) for row in rows] for rows in answers] == [[(5, 6)]]


def test_a_hang_may_end_with_a_code(node, gpu):
    node.start(gpu(0), faults=(Fault("nvmlDeviceGetCount_v2", calls=1, hang=True, code=15),))
    answers = []
    thread = threading.Thread(target=lambda: answers.append(node.library.nvmlDeviceGetCount_v2(byref(c_uint()))))
    thread.start()
    until(lambda: node.calls("nvmlDeviceGetCount_v2") == 1)
    assert thread.is_alive()
    node.write(gpu(0))
    thread.join(DEADLINE)
    assert answers == [15]


def test_init_hangs_and_the_other_calls_do_not(node, gpu):
    nvml = node.start(gpu(0))
    node.write(gpu(0), faults=(Fault("nvmlInit_v2", hang=True),))
    thread = threading.Thread(target=node.library.nvmlInit_v2)
    thread.start()
    until(lambda: node.calls("nvmlInit_v2") == 1)
    assert nvml.nvmlDeviceGetCount() == 1
    nvml.nvmlInit()
    node.write(gpu(0))
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_a_list_that_grows_after_the_size_query_n18(node, gpu):
    fault = Fault(COMPUTE, calls=1, grows=2)
    nvml = node.start(gpu(0, rows=tuple(Row(pid, used=1) for pid in range(5))), faults=(fault,))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    call = getattr(node.library, COMPUTE)
    buffer = create_string_buffer(5 * 24)
    for capacity, expected in ((0, (7, 3)), (3, (7, 5)), (5, (0, 5))):
        count = c_uint(capacity)
        assert (call(handle, byref(count), buffer), count.value) == expected


def test_pynvml_gives_up_on_a_list_that_grows_too_much_n18(node, gpu):
    rows = tuple(Row(pid, used=1) for pid in range(1, 31))
    nvml = node.start(gpu(0, rows=rows), faults=(Fault(COMPUTE, calls=1, grows=28),))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_InsufficientSize):
        nvml.nvmlDeviceGetComputeRunningProcesses(handle)  # told 2, made room for 9
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == 30


def test_processes_that_start_after_an_empty_answer(node, gpu):
    nvml = node.start(gpu(0, rows=(Row(1, used=1),)), faults=(Fault(COMPUTE, calls=1, grows=1),))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle) == []
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == 1


@pytest.mark.parametrize(
    ("symbol", "effect"),
    [
        ("nvmlNoSuchCall", {"code": 3}),
        ("nvmlDeviceGetUUID", {}),
        ("nvmlDeviceGetUUID", {"code": 3, "first": 0}),
        ("nvmlDeviceGetUUID", {"code": 3, "calls": 0}),
    ],
)
def test_faults_that_make_no_sense_are_refused(symbol, effect):
    with pytest.raises(ValueError):
        Fault(symbol, **effect)


def test_many_threads_and_a_state_that_changes(node, gpu):
    """Each state has one row, of the same pid and memory on both GPUs: no answer may mix two states or be torn."""
    nvml = node.start(gpu(0), gpu(1))
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    call = getattr(node.library, COMPUTE)
    wrong, answers, done = [], [0] * 4, threading.Event()

    def ask(number):
        buffer = create_string_buffer(24 * 4)
        while not done.is_set():
            count = c_uint(4)
            code = call(handles[number % 2], byref(count), buffer)
            for i in range(count.value):
                pid = int.from_bytes(buffer.raw[24 * i : 24 * i + 4], "little")
                used = int.from_bytes(buffer.raw[24 * i + 8 : 24 * i + 16], "little")
                if code or used != pid * 1000:
                    wrong.append((code, pid, used))
            answers[number] += count.value

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for pid in range(1, 200):
        rows = tuple(Row(pid, used=pid * 1000) for _ in range(pid % 4 + 1))
        node.write(gpu(0, rows=rows), gpu(1, rows=rows))
    until(lambda: all(answers))
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert wrong == []


def test_two_changes_of_one_size_in_quick_succession_are_both_seen(node, gpu):
    nvml = node.start(gpu(0, rows=(Row(1, used=1),)))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for round_ in range(300):
        pid = 1 + round_ % 9
        node.write(gpu(0, rows=(Row(9 - round_ % 9, used=1),)))
        node.write(gpu(0, rows=(Row(pid, used=1),)))
        assert [row.pid for row in nvml.nvmlDeviceGetComputeRunningProcesses(handle)] == [pid]
