from dataclasses import replace

import pytest

from simulator.nvml.library import SYMBOLS
from simulator.nvml.state import Driver, Gpu, Memory

GIB = 2**30


def test_versions(node):
    nvml = node.start(driver=Driver("550.54.15", nvml_version="12.550.54.15", cuda_version=12040))
    assert nvml.nvmlSystemGetDriverVersion() == "550.54.15"
    assert nvml.nvmlSystemGetNVMLVersion() == "12.550.54.15"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 12040
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 12040


def test_identity_of_a_gpu(node, gpu):
    nvml = node.start(gpu(0), gpu(1, name="NVIDIA A100 80GB ü & 100%", compute_capability=(8, 0), compute_mode=3))
    assert nvml.nvmlDeviceGetCount() == 2
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetUUID(handle) == gpu(1).uuid
    assert nvml.nvmlDeviceGetName(handle) == "NVIDIA A100 80GB ü & 100%"
    assert nvml.nvmlDeviceGetIndex(handle) == 1
    assert nvml.nvmlDeviceGetMinorNumber(handle) == 1
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (8, 0)
    assert nvml.nvmlDeviceGetComputeMode(handle) == 3
    assert nvml.nvmlDeviceGetPersistenceMode(handle) == 1
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    assert (pci.busId, pci.busIdLegacy) == ("00000000:18:00.0", "0000:18:00.0")
    assert (pci.domain, pci.bus, pci.device) == (0, 0x18, 0)


@pytest.mark.parametrize("by", ["uuid", "bus", "short bus", "unversioned"])
def test_a_gpu_is_found(node, gpu, by):
    nvml = node.start(gpu(0), gpu(1))
    match by:
        case "uuid":
            handle = nvml.nvmlDeviceGetHandleByUUID(gpu(1).uuid)
        case "bus":
            handle = nvml.nvmlDeviceGetHandleByPciBusId("00000000:18:00.0")
        case "short bus":
            handle = nvml.nvmlDeviceGetHandleByPciBusId("0000:18:00.0")
        case _:
            handle = nvml.c_nvmlDevice_t()
            assert node.library.nvmlDeviceGetHandleByIndex(1, nvml.byref(handle)) == 0
    assert nvml.nvmlDeviceGetIndex(handle) == 1


def test_a_gpu_is_not_found(node, gpu):
    nvml = node.start(gpu(0))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(gpu(1).uuid)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByPciBusId("00000000:FF:00.0")


def test_no_minor_number(node, gpu):
    nvml = node.start(gpu(0, minor=None))
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(0))


def test_a_buffer_that_is_too_small(node, gpu):
    nvml = node.start(gpu(0))
    buffer = nvml.create_string_buffer(10)
    assert node.library.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(0), buffer, 10) == 7


def test_a_pointer_that_never_was_a_handle(node, gpu):
    nvml = node.start(gpu(0))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetIndex(nvml.c_void_p(0x1234567))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetIndex(nvml.c_void_p(None))


def test_a_vanished_gpu_shifts_no_other_handle_n71(node, gpu):
    nvml = node.start(gpu(0), gpu(1), gpu(2))
    first, second, third = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3))
    node.write(gpu(0), gpu(2))
    assert nvml.nvmlDeviceGetCount() == 2
    assert nvml.nvmlDeviceGetUUID(first) == gpu(0).uuid
    assert nvml.nvmlDeviceGetUUID(third) == gpu(2).uuid
    assert nvml.nvmlDeviceGetIndex(third) == 1
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetUUID(second)


def test_what_a_client_commonly_asks_is_not_supported(node, gpu):
    nvml = node.start(gpu(0))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (
        nvml.nvmlDeviceGetPowerUsage,
        nvml.nvmlDeviceGetFanSpeed,
        nvml.nvmlDeviceGetEccMode,
        nvml.nvmlDeviceGetBrand,
        nvml.nvmlDeviceGetSerial,
        lambda device: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
        lambda device: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            ask(handle)


def test_every_symbol_that_is_listed_exists(node):
    assert len(SYMBOLS) > 90
    for symbol in SYMBOLS:
        assert getattr(node.library, symbol)


def test_utilization_of_the_gpu(node, gpu):
    nvml = node.start(gpu(0, utilization=(34, 12)), gpu(1, utilization=None))
    rates = nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0))
    assert (rates.gpu, rates.memory) == (34, 12)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(1))


def test_memory_v2_leaves_the_reserved_part_out_of_used_n42(node, gpu):
    nvml = node.start(gpu(0, memory=Memory(80 * GIB, used=8, reserved=GIB)))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    second = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    assert (second.total, second.reserved, second.used, second.free) == (80 * GIB, GIB, 8, 79 * GIB - 8)
    first = nvml.nvmlDeviceGetMemoryInfo(handle)
    assert (first.total, first.free, first.used) == (80 * GIB, 79 * GIB - 8, GIB + 8)


def test_memory_v2_with_a_wrong_version_word_n43(node, gpu):
    nvml = node.start(gpu(0))
    memory = nvml.c_nvmlMemory_v2_t()
    memory.version = 0x01000028
    assert node.library.nvmlDeviceGetMemoryInfo_v2(nvml.nvmlDeviceGetHandleByIndex(0), nvml.byref(memory)) == 25


def test_memory_not_supported_n40(node, gpu):
    nvml = node.start(gpu(0, memory=None))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetBAR1MemoryInfo):
        with pytest.raises(nvml.NVMLError_NotSupported):
            ask(handle)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)


def test_memory_that_contradicts_itself_is_told_as_it_is(node, gpu):
    nvml = node.start(gpu(0, memory=Memory(GIB, free=2 * GIB)))
    memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    assert memory.used == 2**64 - GIB


def test_confidential_memory(node, gpu):
    nvml = node.start(gpu(0, confidential=20 * GIB), gpu(1))
    sizes = nvml.nvmlDeviceGetConfComputeMemSizeInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    assert (sizes.protectedMemSizeKib, sizes.unprotectedMemSizeKib) == (20 * 2**20, 60 * 2**20)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetConfComputeMemSizeInfo(nvml.nvmlDeviceGetHandleByIndex(1))


def test_sixty_four_gpus(node, gpu):
    gpus: list[Gpu] = [replace(gpu(number), pci_bus_id=f"{number:08X}:17:00.0") for number in range(64)]
    nvml = node.start(*gpus)
    found = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
    assert found == [one.uuid for one in gpus]
