import multiprocessing
import shutil
from ctypes import CDLL, byref, c_char_p, c_uint, c_void_p
from pathlib import Path

import pynvml
import pytest

from simulator.nvml.state import UNLIMITED, Cgroup, Driver, GpuInstance, LimitsBackend, Memory, MigDevice

GIB = 2**30
DMEM = Driver("615.71.09", limits=LimitsBackend.DMEM)
MISC = Driver("615.71.09", limits=LimitsBackend.MISC)


@pytest.fixture
def slices(tmp_path):
    path = tmp_path / "kube pods.slice" / "pod%1" / "container"
    path.mkdir(parents=True)
    return path


def change(nvml, handle, path, soft, hard):
    limits = nvml.c_nvmlSetMemoryLimits_v1_t(str(path).encode(), soft, hard)
    nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)


def ask(nvml, handle, path):
    limits = nvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=str(path).encode())
    nvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    return limits.softLimit, limits.hardLimit, limits.currentUsed


def test_what_is_set_is_read_back(node, gpu, slices):
    nvml = node.start(gpu(0, cgroups=(Cgroup(str(slices), used=3),)), gpu(1), driver=DMEM)
    first, second = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    change(nvml, first, slices, GIB, 2 * GIB)
    assert ask(nvml, first, slices) == (GIB, 2 * GIB, 3)
    for handle, path in ((second, slices), (first, slices.parent)):
        with pytest.raises(nvml.NVMLError_NotFound):  # N63
            ask(nvml, handle, path)
    change(nvml, first, slices, 0, 4 * GIB)
    change(nvml, second, slices, 0, 5 * GIB)
    assert ask(nvml, first, slices) == (0, 4 * GIB, 3)
    assert ask(nvml, second, slices) == (0, 5 * GIB, 0)
    change(nvml, first, slices, 0, UNLIMITED)
    with pytest.raises(nvml.NVMLError_NotFound):
        ask(nvml, first, slices)
    assert ask(nvml, second, slices) == (0, 5 * GIB, 0)


@pytest.mark.parametrize(("soft", "hard"), [(2 * GIB, GIB), (0, 81 * GIB), (81 * GIB, UNLIMITED)])
def test_limits_that_make_no_sense(node, gpu, slices, soft, hard):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        change(nvml, handle, slices, soft, hard)
    with pytest.raises(nvml.NVMLError_NotFound):
        ask(nvml, handle, slices)


def test_a_cgroup_that_is_gone_n67(node, gpu, slices):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, slices, 0, GIB)
    slices.rename(slices.parent / "old")
    for call in (lambda: ask(nvml, handle, slices), lambda: change(nvml, handle, slices, 0, GIB)):
        with pytest.raises(nvml.NVMLError_OperatingSystem):
            call()
    slices.mkdir()  # made again, it is another cgroup, and that one was never limited
    with pytest.raises(nvml.NVMLError_NotFound):
        ask(nvml, handle, slices)
    assert node.library.nvmlDeviceGetMemoryLimits_v1(handle, byref(nvml.c_nvmlGetMemoryLimits_v1_t())) == 2


def test_limits_of_the_state_n65(node, gpu, slices):
    cgroups = (
        Cgroup(str(slices), used=1, limits=(0, UNLIMITED)),
        Cgroup(str(slices.parent), used=2, limits=(3, 4 * GIB)),
    )
    nvml = node.start(gpu(0, cgroups=cgroups), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert ask(nvml, handle, slices) == (0, UNLIMITED, 1)
    assert ask(nvml, handle, slices.parent) == (3, 4 * GIB, 2)
    change(nvml, handle, slices.parent, 0, UNLIMITED)  # what is set goes before the state
    with pytest.raises(nvml.NVMLError_NotFound):
        ask(nvml, handle, slices.parent)


def test_the_map_of_the_driver_looks_at_ancestors_n64(node, gpu, slices):
    nvml = node.start(gpu(0, cgroups=(Cgroup(str(slices.parent.parent), used=9),)), driver=MISC)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, handle, slices)
    change(nvml, handle, slices.parent.parent, 0, 8 * GIB)
    assert ask(nvml, handle, slices) == (0, 8 * GIB, 9)
    change(nvml, handle, slices, 0, GIB)
    assert ask(nvml, handle, slices) == (0, GIB, 0)


def test_no_limits_without_a_backend_or_under_mig(node, gpu, slices):
    instance = GpuInstance(1, profile="1g.10gb", slices=1, memory=Memory(GIB), devices=(MigDevice("MIG-a", slot=0),))
    nvml = node.start(gpu(0), driver=Driver("615.71.09"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(2):
        for call in (lambda: ask(nvml, handle, slices), lambda: change(nvml, handle, slices, 0, GIB)):
            with pytest.raises(nvml.NVMLError_NotSupported):
                call()
        node.write(gpu(0, mig_mode=True, instances=(instance,)), driver=DMEM)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, mig, slices)


def _set_many(library: str, paths: list[str]) -> None:
    nvml = CDLL(library)
    handle = c_void_p()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(0), byref(handle)) == 0
    for number, path in enumerate(paths):
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(c_char_p(path.encode()), 0, number + 1)
        assert nvml.nvmlDeviceSetMemoryLimits_v1(handle, byref(limits)) == 0


def test_other_processes_set_limits_and_none_is_lost(node, gpu, tmp_path):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    paths = [tmp_path / f"cgroup-{number}" for number in range(60)]
    for path in paths:
        path.mkdir()
    copy = str(shutil.copy(node.directory / "libnvidia-ml.so.1", tmp_path / "another.so"))
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_set_many, args=(copy, [str(path) for path in paths[start::2]])) for start in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    read = [ask(nvml, handle, path)[1] for path in paths]
    assert read == [number // 2 + 1 for number in range(60)]
    assert Path(f"{node.state_path}.limits").exists()
