import subprocess
from ctypes import CDLL

import pytest

from simulator.nvml import library
from simulator.nvml.state import Row

LISTS = ("Compute", "Graphics", "MPSCompute")


def has(node, symbol):
    return hasattr(CDLL(str(node.directory / library.SONAME)), symbol)


@pytest.mark.parametrize("generation", list(library.GENERATIONS))
def test_exactly_the_missing_symbols_are_missing(node_of, generation):
    node = node_of(generation)
    absent = {symbol for symbol in library.SYMBOLS if not has(node, symbol)}
    assert absent == library.GENERATIONS[generation]


@pytest.mark.parametrize(
    ("generation", "v3", "memory_v2", "details", "utilization", "limits"),
    [
        ("470", False, False, False, False, False),
        ("535.54", True, True, False, False, False),
        ("535.183", True, True, True, False, False),
        ("550", True, True, True, True, False),
        ("570", True, True, True, True, False),
        ("580", True, True, True, True, False),
        ("615", True, True, True, True, True),
    ],
)
def test_what_a_generation_has(generation, v3, memory_v2, details, utilization, limits):
    missing = library.GENERATIONS[generation]
    assert all((f"nvmlDeviceGet{name}RunningProcesses_v3" not in missing) == v3 for name in LISTS)
    assert ("nvmlDeviceGetMemoryInfo_v2" not in missing) == memory_v2
    assert ("nvmlDeviceGetRunningProcessDetailList" not in missing) == details
    assert ("nvmlDeviceGetProcessesUtilizationInfo" not in missing) == utilization
    assert ("nvmlDeviceGetMemoryLimits_v1" not in missing) == limits
    # What tells the long rows of the first 535 drivers from all others.
    assert ("nvmlDeviceGetConfComputeMemSizeInfo" not in missing and not details) == (generation == "535.54")


def test_pynvml_on_an_old_driver_n21_n22(node_of, gpu):
    node = node_of("470")
    nvml = node.start(gpu(0, rows=(Row(5, used=6),)))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetMPSComputeRunningProcesses):
        with pytest.raises(nvml.NVMLLibraryMismatchError):
            call(handle)
    for call in (
        nvml.nvmlDeviceGetComputeRunningProcesses_v3,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
        lambda device: nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2),
    ):
        with pytest.raises(nvml.NVMLError_FunctionNotFound):
            call(handle)
    assert [row.pid for row in nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle)] == [5]


def test_a_library_is_built_once(tmp_path, monkeypatch):
    path = library.build(tmp_path, missing=["nvmlDeviceGetUUID"])
    before = path.stat()
    monkeypatch.setenv("PATH", "")  # no compiler is needed for what is there
    assert library.build(tmp_path, missing=["nvmlDeviceGetUUID", "nvmlDeviceGetUUID"]).stat() == before
    with pytest.raises(library.LibraryBuildError, match="gcc"):
        library.build(tmp_path)
    monkeypatch.undo()
    assert library.build(tmp_path).stat().st_ino != before.st_ino
    assert CDLL(str(path)).nvmlDeviceGetUUID
    assert [entry.name for entry in tmp_path.iterdir()] == [library.SONAME]


def test_a_symbol_that_never_was_cannot_be_missing(tmp_path):
    with pytest.raises(ValueError, match="nvmlDeviceGetComputeRuningProcesses_v3"):
        library.build(tmp_path, missing=["nvmlDeviceGetComputeRuningProcesses_v3"])


def test_only_nvml_symbols_leave_the_library(built):
    listing = subprocess.run(["nm", "-D", "--defined-only", str(built)], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listing.stdout.splitlines()} == library.SYMBOLS
