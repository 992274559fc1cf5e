"""The two backends of memory limits by cgroup, as an enforcer and an exporter meet them through NVML."""

import multiprocessing
import shutil
from ctypes import CDLL, byref, c_char_p, c_uint, c_void_p
from pathlib import Path

import pynvml
import pytest

from simulator.cgroupfs import Cgroupfs, ContainerCgroup
from simulator.dmem import FOREIGN, region
from simulator.nvml.state import UNLIMITED, Cgroup, Driver, GpuInstance, LimitsBackend, Memory, MigDevice

GIB = 2**30
DMEM = Driver("615.71.09", limits=LimitsBackend.DMEM)
MISC = Driver("615.71.09", limits=LimitsBackend.MISC)
REGIONS = [region(f"00000000:{0x17 + number:02X}:00.0") for number in range(2)]
CONTAINER = ContainerCgroup("0a1b2c3d-0000-4000-8000-000000000001", "f" * 64)


@pytest.fixture
def tree(tmp_path):
    return Cgroupfs(tmp_path / "a %1" / "sys", dmem=dict.fromkeys(REGIONS, 80 * GIB))


@pytest.fixture
def leaf(tree):
    return tree.put(CONTAINER.path)


def change(nvml, handle, path, soft, hard):
    limits = nvml.c_nvmlSetMemoryLimits_v1_t(str(path).encode(), soft, hard)
    nvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)


def ask(nvml, handle, path):
    limits = nvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=str(path).encode())
    nvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    return limits.softLimit, limits.hardLimit, limits.currentUsed


def value(folder: Path, name: str, key: str = REGIONS[0]) -> int | None:
    lines = dict(line.split(" ") for line in (folder / name).read_text().splitlines())
    return None if lines[key] == "max" else int(lines[key])


@pytest.mark.parametrize("driver", [DMEM, MISC], ids=["dmem", "misc"])
@pytest.mark.parametrize(("soft", "hard"), [(2 * GIB, GIB), (0, 81 * GIB), (81 * GIB, UNLIMITED)])
def test_limits_that_make_no_sense(node, gpu, leaf, driver, soft, hard):
    nvml = node.start(gpu(0), driver=driver)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf, 1, GIB)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        change(nvml, handle, leaf, soft, hard)
    assert ask(nvml, handle, leaf) == (1, GIB, 0)


@pytest.mark.parametrize("backend", [LimitsBackend.DMEM, LimitsBackend.MISC])
def test_only_root_may_set_and_all_may_ask(node, gpu, leaf, backend):
    nvml = node.start(gpu(0), driver=Driver("615.71.09", limits=backend))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf, 0, GIB)
    node.write(gpu(0), driver=Driver("615.71.09", limits=backend, may_limit=False))
    with pytest.raises(nvml.NVMLError_NoPermission):
        change(nvml, handle, leaf, 0, 2 * GIB)
    assert ask(nvml, handle, leaf) == (0, GIB, 0)


@pytest.mark.parametrize("driver", [DMEM, MISC], ids=["dmem", "misc"])
def test_a_cgroup_that_is_gone_takes_its_limits_with_it_n67(node, gpu, tree, leaf, driver):
    nvml = node.start(gpu(0), driver=driver)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf, 0, GIB)
    leaf.rename(leaf.parent / "old")  # keeps its inode from being given away at once
    for call in (lambda: ask(nvml, handle, leaf), lambda: change(nvml, handle, leaf, 0, GIB)):
        with pytest.raises(nvml.NVMLError_OperatingSystem):
            call()
    tree.put(CONTAINER.path)
    if driver is DMEM:
        assert ask(nvml, handle, leaf) == (0, UNLIMITED, 0)
    else:
        with pytest.raises(nvml.NVMLError_NotSupported):
            ask(nvml, handle, leaf)
    assert node.library.nvmlDeviceGetMemoryLimits_v1(handle, byref(nvml.c_nvmlGetMemoryLimits_v1_t())) == 2


@pytest.mark.parametrize("driver", [DMEM, MISC], ids=["dmem", "misc"])
def test_the_root_has_no_limits(node, gpu, tree, driver):
    nvml = node.start(gpu(0), driver=driver)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (lambda: ask(nvml, handle, tree.root), lambda: change(nvml, handle, tree.root, 0, GIB)):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()


def test_dmem_and_the_files_say_the_same(node, gpu, tree, leaf):
    nvml = node.start(gpu(0), gpu(1), driver=DMEM)
    first, second = (nvml.nvmlDeviceGetHandleByIndex(number) for number in range(2))
    assert ask(nvml, first, leaf) == (0, UNLIMITED, 0)
    tree.dmem.charge({leaf: {REGIONS[0]: GIB, REGIONS[1]: 3}})
    change(nvml, first, leaf, 7, 2 * GIB)
    assert ask(nvml, first, leaf) == (7, 2 * GIB, GIB)
    assert ask(nvml, second, leaf) == (0, UNLIMITED, 3)
    assert [value(leaf, name) for name in ("dmem.min", "dmem.max", "dmem.current")] == [7, 2 * GIB, GIB]
    assert value(leaf, "dmem.max", REGIONS[1]) is None
    assert value(leaf, "dmem.max", FOREIGN) is None
    assert (value(leaf.parent, "dmem.current"), value(leaf.parent, "dmem.max")) == (GIB, None)
    tree.dmem.limit(leaf, region=REGIONS[0], hard=4 * GIB)
    assert ask(nvml, first, leaf) == (7, 4 * GIB, GIB)
    change(nvml, first, leaf, 0, UNLIMITED)
    assert ask(nvml, first, leaf) == (0, UNLIMITED, GIB)
    assert value(leaf, "dmem.max") is None


def test_dmem_takes_a_limit_below_present_use_and_keeps_the_old_one(node, gpu, tree, leaf):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf, 0, 3 * GIB)
    tree.dmem.charge({leaf: {REGIONS[0]: 2 * GIB}})
    change(nvml, handle, leaf, 0, 2 * GIB - 1)
    assert ask(nvml, handle, leaf) == (0, 3 * GIB, 2 * GIB)
    change(nvml, handle, leaf, 0, 2 * GIB)
    assert ask(nvml, handle, leaf) == (0, 2 * GIB, 2 * GIB)


def test_dmem_carries_the_soft_limit_up_and_leaks_it_when_a_leaf_is_removed(node, gpu, tree, leaf):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    other = tree.put(ContainerCgroup("0a1b2c3d-0000-4000-8000-000000000002", "e" * 64).path)
    levels = [leaf.parent, leaf.parent.parent, leaf.parent.parent.parent]

    def minima():
        return [value(folder, "dmem.min") for folder in levels]

    change(nvml, handle, leaf, 5, GIB)
    change(nvml, handle, other, 7, GIB)
    assert minima() == [5, 12, 12]
    change(nvml, handle, leaf, 2, GIB)
    assert minima() == [2, 9, 9]
    change(nvml, handle, leaf, 0, UNLIMITED)
    assert minima() == [0, 7, 7]
    tree.remove(str(other.parent.relative_to(tree.root)))
    assert minima() == [0, 7, 7]


def test_dmem_files_that_are_missing_on_the_way(node, gpu, leaf):
    nvml = node.start(gpu(0), driver=DMEM)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf.parent.parent, 0, 9 * GIB)
    for folder in (leaf, leaf.parent):
        for name in ("current", "low", "min", "max"):
            (folder / f"dmem.{name}").unlink()
    assert ask(nvml, handle, leaf) == (0, 9 * GIB, 0)  # that of the nearest cgroup that has them
    with pytest.raises(nvml.NVMLError_NotSupported):
        change(nvml, handle, leaf, 0, GIB)


def test_the_table_of_the_driver_answers_for_the_nearest_entry_n64(node, gpu, leaf):
    nvml = node.start(gpu(0), gpu(1), driver=MISC)
    handle, second = (nvml.nvmlDeviceGetHandleByIndex(number) for number in range(2))
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, handle, leaf)
    change(nvml, handle, leaf.parent, 1, 8 * GIB)
    assert ask(nvml, handle, leaf) == (1, 8 * GIB, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, handle, leaf.parent.parent)
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, second, leaf)
    change(nvml, handle, leaf, 0, 40 * GIB)  # it does not nest
    assert ask(nvml, handle, leaf) == (0, 40 * GIB, 0)
    change(nvml, handle, leaf, 0, UNLIMITED)  # what was taken back still counts
    assert ask(nvml, handle, leaf) == (0, UNLIMITED, 0)


def test_the_table_of_the_driver_charges_only_what_came_after_the_limit(node, gpu, leaf):
    def held(amount, sibling=0):
        return gpu(0, cgroups=(Cgroup(str(leaf), used=amount), Cgroup(f"{leaf.parent}/sibling", used=sibling)))

    nvml = node.start(held(5 * GIB), driver=MISC)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    change(nvml, handle, leaf.parent, 0, 4 * GIB)
    assert ask(nvml, handle, leaf.parent) == (0, 4 * GIB, 0)
    node.write(held(7 * GIB, GIB), driver=MISC)
    assert ask(nvml, handle, leaf.parent) == (0, 4 * GIB, 3 * GIB)
    assert ask(nvml, handle, leaf) == (0, 4 * GIB, 3 * GIB)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        change(nvml, handle, leaf.parent, 0, 3 * GIB - 1)
    change(nvml, handle, leaf.parent, 0, 3 * GIB)
    assert ask(nvml, handle, leaf.parent) == (0, 3 * GIB, 3 * GIB)
    change(nvml, handle, leaf, 0, GIB)  # an entry of its own starts at nothing
    assert ask(nvml, handle, leaf) == (0, GIB, 0)
    node.write(held(8 * GIB, GIB), driver=MISC)
    assert ask(nvml, handle, leaf) == (0, GIB, GIB)


def test_limits_that_were_there_from_the_start_n65(node, gpu, leaf):
    cgroups = (
        Cgroup(str(leaf), used=1, limits=(0, UNLIMITED)),
        Cgroup(str(leaf.parent), used=2, limits=(3, 4 * GIB)),
    )
    nvml = node.start(gpu(0, cgroups=cgroups), driver=MISC)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert ask(nvml, handle, leaf) == (0, UNLIMITED, 1)
    assert ask(nvml, handle, leaf.parent) == (3, 4 * GIB, 2)
    change(nvml, handle, leaf.parent, 0, UNLIMITED)  # what is set goes before the state
    assert ask(nvml, handle, leaf.parent) == (0, UNLIMITED, 2)


def test_no_limits_without_a_backend_or_under_mig(node, gpu, leaf):
    instance = GpuInstance(1, profile="1g.10gb", slices=1, memory=Memory(GIB), devices=(MigDevice("MIG-a", slot=0),))
    nvml = node.start(gpu(0), driver=Driver("615.71.09"))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(2):
        for call in (lambda: ask(nvml, handle, leaf), lambda: change(nvml, handle, leaf, 0, GIB)):
            with pytest.raises(nvml.NVMLError_NotSupported):
                call()
        node.write(gpu(0, mig_mode=True, instances=(instance,)), driver=DMEM)
    mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        ask(nvml, mig, leaf)


def _set_many(library: str, paths: list[str]) -> None:
    nvml = CDLL(library)
    handle = c_void_p()
    assert nvml.nvmlInit_v2() == 0
    assert nvml.nvmlDeviceGetHandleByIndex_v2(c_uint(0), byref(handle)) == 0
    for number, path in enumerate(paths):
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(c_char_p(path.encode()), number + 1, 100)
        assert nvml.nvmlDeviceSetMemoryLimits_v1(handle, byref(limits)) == 0


@pytest.mark.parametrize("backend", [LimitsBackend.DMEM, LimitsBackend.MISC])
def test_other_processes_set_limits_and_none_is_lost(node, gpu, tmp_path, tree, backend):
    node.start(gpu(0), driver=Driver("615.71.09", limits=backend))
    nvml, handle = node.nvml, node.nvml.nvmlDeviceGetHandleByIndex(0)
    paths = [tree.put(f"/kubepods/cgroup-{number}") for number in range(60)]
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
    assert [ask(nvml, handle, path) for path in paths] == [(number // 2 + 1, 100, 0) for number in range(60)]
    if backend is LimitsBackend.DMEM:  # each of them was carried up
        assert value(paths[0].parent, "dmem.min") == sum(number // 2 + 1 for number in range(60))
