import os
import sys

import pytest

from simulator.nvml.state import Driver, Fault, State, to_text


def test_no_state_file_is_no_driver(node):
    with pytest.raises(node.nvml.NVMLError_DriverNotLoaded):
        node.nvml.nvmlInit()


def test_the_driver_is_loaded_later(node, gpu):
    with pytest.raises(node.nvml.NVMLError_DriverNotLoaded):
        node.nvml.nvmlInit()
    assert node.start(gpu(0)).nvmlDeviceGetCount() == 1


@pytest.mark.parametrize("code", [4, 9, 18, 999])
def test_init_answers_the_code_of_the_state_n49_n50(node, gpu, code):
    with pytest.raises(node.nvml.NVMLError) as error:
        node.start(gpu(0), driver=Driver(init_code=code))
    assert error.value.value == code


def test_calls_before_init(node, gpu):
    node.write(gpu(0))
    with pytest.raises(node.nvml.NVMLError_Uninitialized):
        node.nvml.nvmlDeviceGetCount()
    assert node.library.nvmlShutdown() == 1


def test_init_is_counted(node, gpu):
    nvml = node.start(gpu(0))
    nvml.nvmlInit()
    nvml.nvmlShutdown()
    assert nvml.nvmlDeviceGetCount() == 1
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()
    assert node.library.nvmlShutdown() == 0  # one too many is no error
    assert node.library.nvmlInit() == 0
    assert node.library.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetCount() == 1


def test_the_library_is_given_back_without_a_driver(node, gpu):
    nvml = node.start(gpu(0), faults=(Fault("nvmlShutdown", calls=1, code=999),))
    with pytest.raises(nvml.NVMLError_Unknown):
        nvml.nvmlShutdown()
    node.state_path.unlink()
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_Uninitialized):
        nvml.nvmlDeviceGetCount()


def test_the_state_file_vanishes_n48(node, gpu):
    nvml = node.start(gpu(0))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    node.state_path.unlink()
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlDeviceGetUUID(handle)
    node.write(gpu(0))
    assert nvml.nvmlDeviceGetUUID(handle) == gpu(0).uuid


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("nonsense 1 2 3", 4),
        ("row 7 compute 1 2 - - 0", 4),
        ("row 0 compute 1 2 - -", 4),
        ("row 0 other 1 2 - - 0", 4),
        ("row 0 compute -1 2 - - 0", 4),
        ("mig 0 1 0 0 MIG-x 1 1", 4),
        ("fault nvmlNoSuchCall * 1 0 9 0 0 0", 4),
        ("", 4),
    ],
)
def test_a_line_that_makes_no_sense_spoils_everything(node, gpu, capfd, line, number):
    node.state_path.write_text(to_text(State((gpu(0),))) + line + "\n")
    with pytest.raises(node.nvml.NVMLError_Unknown):
        node.nvml.nvmlInit()
    assert f"line {number} of the state file makes no sense" in capfd.readouterr().err


@pytest.mark.parametrize("content", ["", "podgpu-nvml 2\n", "podgpu-nvml 1\n"])
def test_a_file_of_another_kind(node, content):
    node.state_path.write_text(content)
    with pytest.raises(node.nvml.NVMLError_Unknown):
        node.nvml.nvmlInit()


def test_every_code_has_a_text(node):
    node.library.nvmlErrorString.restype = node.nvml.c_char_p
    texts = {node.library.nvmlErrorString(code) for code in [*range(31), 999]}
    assert len(texts) == 32
    assert node.library.nvmlErrorString(-1) == node.library.nvmlErrorString(31) == node.library.nvmlErrorString(999)


def test_the_name_of_a_process(node, gpu):
    nvml = node.start(gpu(0))
    assert nvml.nvmlSystemGetProcessName(os.getpid()) == os.path.realpath(sys.executable)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlSystemGetProcessName(2**22 + 1)
