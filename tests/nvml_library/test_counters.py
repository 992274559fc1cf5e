from ctypes import byref, c_uint

from simulator.nvml import counters
from simulator.nvml.library import SYMBOLS
from simulator.nvml.state import GpuInstance, Memory, MigDevice


def test_calls_are_counted_by_symbol_and_gpu(node, gpu):
    assert counters.read(node.counters_path) == {}
    nvml = node.start(gpu(0), gpu(1))
    first, second = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    for _ in range(3):
        nvml.nvmlDeviceGetMemoryInfo(second)
    nvml.nvmlDeviceGetMemoryInfo(first)
    nvml.nvmlDeviceGetCount()
    assert counters.read(node.counters_path) == {
        "nvmlInitWithFlags": counters.Calls(1, {}),
        "nvmlDeviceGetCount_v2": counters.Calls(1, {}),
        "nvmlDeviceGetHandleByIndex_v2": counters.Calls(2, {0: 1, 1: 1}),
        "nvmlDeviceGetMemoryInfo": counters.Calls(4, {0: 1, 1: 3}),
    }


def test_calls_that_fail_count_too(node, gpu):
    nvml = node.start(gpu(0))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert node.library.nvmlDeviceGetHandleByIndex_v2(c_uint(5), byref(nvml.c_nvmlDevice_t())) == 2
    assert node.library.nvmlDeviceGetPowerUsage(handle, byref(c_uint())) == 3
    read = counters.read(node.counters_path)
    assert read["nvmlDeviceGetHandleByIndex_v2"] == counters.Calls(2, {0: 1})
    assert read["nvmlDeviceGetPowerUsage"] == counters.Calls(1, {0: 1})


def test_calls_on_a_mig_device_count_for_its_gpu(node, gpu):
    instance = GpuInstance(1, profile="1g.10gb", slices=1, memory=Memory(1), devices=(MigDevice("MIG-a", slot=0),))
    nvml = node.start(gpu(0), gpu(1, mig_mode=True, instances=(instance,)))
    nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID("MIG-a"))
    assert counters.read(node.counters_path)["nvmlDeviceGetMemoryInfo"] == counters.Calls(1, {1: 1})


def test_the_file_has_a_record_for_every_symbol(node, gpu):
    node.start(gpu(0))
    content = node.counters_path.read_bytes()
    assert len(content) == len(SYMBOLS) * 584
    assert all(symbol.encode() + b"\0" in content for symbol in SYMBOLS)
