import pytest

from simulator.nvml.state import Driver, Fault

DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE = range(4)


def test_a_mode_that_is_set_stays_and_is_that_of_one_gpu(node, gpu):
    nvml = node.start(gpu(0, compute_mode=PROHIBITED), gpu(1))
    first, second = (nvml.nvmlDeviceGetHandleByIndex(number) for number in range(2))
    assert nvml.nvmlDeviceGetComputeMode(first) == PROHIBITED
    nvml.nvmlDeviceSetComputeMode(first, EXCLUSIVE)
    assert nvml.nvmlDeviceGetComputeMode(first) == EXCLUSIVE
    assert nvml.nvmlDeviceGetComputeMode(second) == DEFAULT
    node.write(gpu(0, compute_mode=PROHIBITED), gpu(1))  # a state that was written since leaves it
    assert nvml.nvmlDeviceGetComputeMode(first) == EXCLUSIVE
    nvml.nvmlDeviceSetComputeMode(first, PROHIBITED)
    assert nvml.nvmlDeviceGetComputeMode(first) == PROHIBITED


def test_a_new_start_of_the_library_keeps_the_mode(node, gpu):
    nvml = node.start(gpu(0))
    nvml.nvmlDeviceSetComputeMode(nvml.nvmlDeviceGetHandleByIndex(0), EXCLUSIVE)
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetComputeMode(nvml.nvmlDeviceGetHandleByIndex(0)) == EXCLUSIVE


@pytest.mark.parametrize(
    ("mode", "fields", "error"),
    [
        (EXCLUSIVE_THREAD, {}, "NVMLError_NotSupported"),
        (4, {}, "NVMLError_InvalidArgument"),
        (EXCLUSIVE, {"driver": Driver(may_limit=False)}, "NVMLError_NoPermission"),
        (EXCLUSIVE, {"faults": (Fault("nvmlDeviceSetComputeMode", code=999),)}, "NVMLError_Unknown"),
    ],
)
def test_a_mode_that_is_not_taken_changes_nothing(node, gpu, mode, fields, error):
    nvml = node.start(gpu(0), **fields)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(getattr(nvml, error)):
        nvml.nvmlDeviceSetComputeMode(handle, mode)
    assert nvml.nvmlDeviceGetComputeMode(handle) == DEFAULT


def test_a_gpu_under_mig_has_none(node, gpu):
    nvml = node.start(gpu(0, mig_mode=True))
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceSetComputeMode(nvml.nvmlDeviceGetHandleByIndex(0), EXCLUSIVE)
