import os
import struct
import time
from ctypes import byref, c_uint, create_string_buffer

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.nvml.state import Driver, Row, RowKind, Sample

GIB = 2**30
KINDS = {RowKind.COMPUTE: "Compute", RowKind.GRAPHICS: "Graphics", RowKind.MPS: "MPSCompute"}


def raw(node, symbol, handle, row, *, capacity=1000):
    """The rows of one call, unpacked by `row`."""
    count = c_uint(capacity)
    size = struct.calcsize(row)
    buffer = create_string_buffer(max(1, capacity) * size)
    assert getattr(node.library, symbol)(handle, byref(count), buffer) == 0
    return [struct.unpack_from(row, buffer, i * size) for i in range(count.value)]


def pairs(rows):
    return [(row.pid, row.usedGpuMemory) for row in rows]


def test_each_list_has_its_own_rows_n04_n05(node, gpu):
    rows = tuple(Row(10 + i, used=i * GIB, kind=kind) for i, kind in enumerate(RowKind))
    nvml = node.start(gpu(0), gpu(1, rows=rows))
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert pairs(nvml.nvmlDeviceGetComputeRunningProcesses(handle)) == [(10, 0)]
    assert pairs(nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)) == [(11, GIB)]
    assert pairs(nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)) == [(12, 2 * GIB)]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0)) == []


@pytest.mark.parametrize("kind", list(RowKind))
def test_each_version_of_the_call_has_its_row_n21(node, gpu, kind):
    rows = (Row(7, used=GIB, kind=kind), Row(8, used=None, kind=kind))
    nvml = node.start(gpu(0, rows=rows))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    symbol = f"nvmlDeviceGet{KINDS[kind]}RunningProcesses"
    none = 2**32 - 1
    assert raw(node, symbol, handle, "=I4xQ") == [(7, GIB), (8, 2**64 - 1)]
    for version in ("_v2", "_v3"):
        assert raw(node, symbol + version, handle, "=I4xQII") == [(7, GIB, none, none), (8, 2**64 - 1, none, none)]


def test_unknown_memory_is_none_in_pynvml_n14(node, gpu):
    nvml = node.start(gpu(0, rows=(Row(7, used=None),)))
    (row,) = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))
    assert row.usedGpuMemory is None


def test_the_size_query_and_the_room(node, gpu):
    nvml = node.start(gpu(0, rows=tuple(Row(pid, used=1) for pid in range(1, 4))), gpu(1))
    busy, idle = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    call = node.library.nvmlDeviceGetComputeRunningProcesses_v3
    buffer = create_string_buffer(72)
    for capacity, code in ((0, 7), (2, 7), (3, 0)):
        count = c_uint(capacity)
        assert (call(busy, byref(count), buffer), count.value) == (code, 3)
    count = c_uint(0)
    assert (call(idle, byref(count), None), count.value) == (0, 0)
    assert call(busy, None, buffer) == 2
    count = c_uint(9)
    assert call(busy, byref(count), None) == 2


def test_nothing_is_written_beyond_the_rows(node, gpu):
    nvml = node.start(gpu(0, rows=(Row(1, used=1),)))
    buffer = create_string_buffer(b"\xaa" * 72, 72)
    count = c_uint(3)
    assert not node.library.nvmlDeviceGetComputeRunningProcesses_v3(
        nvml.nvmlDeviceGetHandleByIndex(0), byref(count), buffer
    )
    assert buffer.raw[24:] == b"\xaa" * 48


def test_the_kernel_stops_at_950_rows_n27(node, gpu):
    nvml = node.start(gpu(0, rows=tuple(Row(pid, used=1) for pid in range(1, 1001))))
    assert len(nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))) == 950


def test_no_mps_list_before_volta_n23(node, gpu):
    nvml = node.start(gpu(0, compute_capability=(6, 1)))
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMPSComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))


def test_the_rows_of_the_first_535_drivers_n24(node, gpu):
    rows = tuple(Row(1000 + i, used=GIB, protected=5) for i in range(3))
    nvml = node.start(gpu(0, rows=rows), driver=Driver("535.54.03", early_rows=True))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    symbol = "nvmlDeviceGetComputeRunningProcesses_v3"
    none = 2**32 - 1
    assert raw(node, symbol, handle, "=I4xQIIQ") == [(1000 + i, GIB, none, none, 5) for i in range(3)]
    # Read by the layout of all other drivers, every row but the first is scrambled.
    count, buffer = c_uint(3), create_string_buffer(96)
    assert not getattr(node.library, symbol)(handle, byref(count), buffer)
    scrambled = list(struct.iter_unpack("=I4xQII", buffer.raw[:72]))
    assert scrambled == [(1000, GIB, none, none), (5, 1001, GIB, 0), (none, 5, 1002, 0)]
    # The older versions of the call never had that field.
    assert raw(node, "nvmlDeviceGetComputeRunningProcesses_v2", handle, "=I4xQII") == [
        (1000 + i, GIB, none, none) for i in range(3)
    ]


def test_the_detail_list_n60(node, gpu):
    rows = (
        Row(1, used=4 * GIB, protected=3 * GIB),
        Row(1, used=4 * GIB, kind=RowKind.MPS),
        Row(2, used=GIB, kind=RowKind.MPS),
    )
    nvml = node.start(gpu(0, rows=rows), gpu(1, compute_capability=(8, 0)), driver=Driver("615.71.09"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)

    def ask(mode):
        details = nvml.nvmlDeviceGetRunningProcessDetailList(handle, nvml.nvmlProcessDetailList_v1, mode)
        return [(row.pid, row.usedGpuMemory, row.usedGpuCcProtectedMemory) for row in details]

    assert ask(nvml.NVML_PROCESS_MODE_COMPUTE) == [(1, 4 * GIB, 3 * GIB)]
    assert ask(nvml.NVML_PROCESS_MODE_GRAPHICS) == []
    assert ask(nvml.NVML_PROCESS_MODE_MPS) == [(1, 4 * GIB, 0), (2, GIB, 0)]
    assert ask(nvml.NVML_PROCESS_MODE_ALL) == [(1, 4 * GIB, 3 * GIB), (2, GIB, 0)]
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetRunningProcessDetailList(handle, 0x02000018, 0)
    before_hopper = nvml.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetRunningProcessDetailList(before_hopper, nvml.nvmlProcessDetailList_v1, 0)


def test_the_detail_list_of_older_drivers_has_no_mode_for_all(node, gpu):
    nvml = node.start(gpu(0), driver=Driver("580.65.06"))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetRunningProcessDetailList(
            nvml.nvmlDeviceGetHandleByIndex(0), nvml.nvmlProcessDetailList_v1, nvml.NVML_PROCESS_MODE_ALL
        )


def test_locality_domains_have_no_lists_n69(node, gpu, monkeypatch):
    monkeypatch.setenv("NVML_MPS_DEVICE_ENUMERATION", "1")
    nvml = node.start(gpu(0, rows=(Row(1, used=1),)))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == 80 * GIB


def test_utilization_of_processes(node, gpu):
    samples = (Sample(1, time=100, sm=10, memory=2, encoder=3, decoder=4, jpeg=5, ofa=6), Sample(2, time=200, sm=20))
    nvml = node.start(gpu(0, samples=samples))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    first, second = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert [getattr(first, name) for name, _ in first._fields_] == [1, 100, 10, 2, 3, 4]
    assert (second.pid, second.smUtil) == (2, 20)
    (newer,) = nvml.nvmlDeviceGetProcessUtilization(handle, 100)
    assert newer.pid == 2
    first, second = nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 0)
    assert [getattr(first, name) for name, _ in first._fields_] == [100, 1, 10, 2, 3, 4, 5, 6]
    (newer,) = nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, 100)
    assert newer.pid == 2


def test_no_newer_samples_n51(node, gpu):
    nvml = node.start(gpu(0, samples=(Sample(1, time=100, sm=1),)))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (nvml.nvmlDeviceGetProcessUtilization, nvml.nvmlDeviceGetProcessesUtilizationInfo):
        with pytest.raises(nvml.NVMLError_NotFound):
            ask(handle, 100)


def test_a_negative_time_is_an_age_that_never_changes(node, gpu):
    nvml = node.start(gpu(0, samples=(Sample(1, time=-2_000_000, sm=10), Sample(2, time=5, sm=20))))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (nvml.nvmlDeviceGetProcessUtilization, nvml.nvmlDeviceGetProcessesUtilizationInfo):
        before = time.time_ns() // 1000 - 2_000_000
        aged, fixed = ask(handle, 0)
        assert before <= aged.timeStamp <= time.time_ns() // 1000 - 2_000_000
        assert (aged.pid, fixed.timeStamp) == (1, 5)
        assert [found.pid for found in ask(handle, before - 1)] == [1]
        with pytest.raises(nvml.NVMLError_NotFound):
            ask(handle, before + 60_000_000)


def test_utilization_info_with_a_wrong_version_word(node, gpu):
    nvml = node.start(gpu(0))
    info = nvml.c_nvmlProcessesUtilizationInfo_v1_t(0)
    info.version = 0x01000020
    code = node.library.nvmlDeviceGetProcessesUtilizationInfo(nvml.nvmlDeviceGetHandleByIndex(0), byref(info))
    assert code == 25


number = st.one_of(st.integers(0, 2**32), st.integers(0, 2**64 - 1))
any_row = st.builds(
    Row, st.integers(0, 2**32 - 1), used=st.none() | number, kind=st.sampled_from(RowKind), protected=st.just(0)
)


@given(st.lists(st.lists(any_row, max_size=12), max_size=4))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_written_is_what_is_read(node, gpu, lists):
    nvml = node.nvml
    node.write(*(gpu(i, rows=tuple(rows)) for i, rows in enumerate(lists)))
    nvml.nvmlInit()
    for i, rows in enumerate(lists):
        handle = nvml.nvmlDeviceGetHandleByIndex(i)
        for kind, name in KINDS.items():
            expected = [(row.pid, 2**64 - 1 if row.used is None else row.used) for row in rows if row.kind is kind]
            got = raw(node, f"nvmlDeviceGet{name}RunningProcesses_v3", handle, "=I4xQII")
            assert [(pid, used) for pid, used, _, _ in got] == expected


def test_the_own_process_is_nothing_special(node, gpu):
    nvml = node.start(gpu(0, rows=(Row(os.getpid(), used=1),)))
    assert pairs(nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))) == [(os.getpid(), 1)]
