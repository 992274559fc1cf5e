import pytest

from simulator.nvml.state import Driver, GpuInstance, Memory, MigDevice, Row, RowKind

GIB = 2**30
SHARED = Memory(40 * GIB, used=5 * GIB)


@pytest.fixture
def mig_gpu(gpu):
    """Slots 0 and 2 share a GPU instance, slot 3 has its own; slot 1 is empty."""

    def make(**changes):
        shared = GpuInstance(
            1,
            profile="3g.40gb",
            slices=3,
            memory=SHARED,
            devices=(
                MigDevice("MIG-a", slot=0, compute_instance=0, slices=1, multiprocessors=16),
                MigDevice("MIG-b", slot=2, compute_instance=1, slices=2, multiprocessors=32),
            ),
        )
        own = GpuInstance(
            5,
            profile="1g.10gb",
            slices=1,
            memory=Memory(10 * GIB, used=GIB),
            devices=(MigDevice("MIG-c", slot=3, slices=1),),
        )
        rows = (
            Row(100, used=2 * GIB, gpu_instance=1, compute_instance=0),
            Row(101, used=3 * GIB, gpu_instance=1, compute_instance=1),
            Row(100, used=GIB, gpu_instance=5, compute_instance=0),
            Row(102, used=7, gpu_instance=5, compute_instance=0, kind=RowKind.MPS),
        )
        return gpu(0, **({"mig_mode": True, "instances": (shared, own), "rows": rows} | changes))

    return make


def slots(nvml, handle):
    found = {}
    for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            found[slot] = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
        except nvml.NVMLError_NotFound:
            continue
    return found


def test_slots_have_holes_n55(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    found = slots(nvml, handle)
    assert {slot: nvml.nvmlDeviceGetUUID(mig) for slot, mig in found.items()} == {0: "MIG-a", 2: "MIG-b", 3: "MIG-c"}
    assert [nvml.nvmlDeviceGetIndex(mig) for mig in found.values()] == [0, 2, 3]
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 7)


def test_what_a_mig_device_is(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    mig = slots(nvml, handle)[2]
    assert (nvml.nvmlDeviceGetGpuInstanceId(mig), nvml.nvmlDeviceGetComputeInstanceId(mig)) == (1, 1)
    assert nvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(handle).value == 0
    assert nvml.nvmlDeviceGetName(mig) == "NVIDIA H100 80GB HBM3 MIG 2c.3g.40gb"
    assert nvml.nvmlDeviceGetName(slots(nvml, handle)[3]) == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    attributes = nvml.nvmlDeviceGetAttributes(mig)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 2)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (32, 40 * 1024)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert nvml.nvmlDeviceGetIndex(parent) == 0
    for name in ("MIG-b", "MIG-" + mig_gpu().uuid + "/1/1"):
        assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(name)) == "MIG-b"


def test_a_gpu_is_no_mig_device(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (
        nvml.nvmlDeviceGetGpuInstanceId,
        nvml.nvmlDeviceGetComputeInstanceId,
        nvml.nvmlDeviceGetAttributes,
        nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
    ):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            ask(handle)


def test_compute_instances_report_their_gpu_instance(node, mig_gpu):
    nvml = node.start(mig_gpu())
    found = slots(nvml, nvml.nvmlDeviceGetHandleByIndex(0))
    used = {slot: nvml.nvmlDeviceGetMemoryInfo(mig, version=nvml.nvmlMemory_v2).used for slot, mig in found.items()}
    assert used == {0: 5 * GIB, 2: 5 * GIB, 3: GIB}


def test_each_mig_device_has_its_rows_n57(node, mig_gpu):
    nvml = node.start(mig_gpu())
    found = slots(nvml, nvml.nvmlDeviceGetHandleByIndex(0))
    rows = {
        slot: [
            (row.pid, row.usedGpuMemory, row.gpuInstanceId, row.computeInstanceId)
            for row in nvml.nvmlDeviceGetComputeRunningProcesses(mig)
        ]
        for slot, mig in found.items()
    }
    assert rows == {0: [(100, 2 * GIB, 1, 0)], 2: [(101, 3 * GIB, 1, 1)], 3: [(100, GIB, 5, 0)]}
    assert [row.pid for row in nvml.nvmlDeviceGetMPSComputeRunningProcesses(found[3])] == [102]


def test_a_row_of_all_compute_instances(node, mig_gpu):
    nvml = node.start(mig_gpu(rows=(Row(9, used=1, gpu_instance=1),)))
    found = slots(nvml, nvml.nvmlDeviceGetHandleByIndex(0))
    assert {slot: len(nvml.nvmlDeviceGetComputeRunningProcesses(mig)) for slot, mig in found.items()} == {
        0: 1,
        2: 1,
        3: 0,
    }


def test_the_gpu_itself_answers_the_privileged_only_n53(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for ask in (
        nvml.nvmlDeviceGetMemoryInfo,
        nvml.nvmlDeviceGetComputeRunningProcesses,
        nvml.nvmlDeviceGetGraphicsRunningProcesses,
        nvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        with pytest.raises(nvml.NVMLError_NoPermission):
            ask(handle)
    node.write(mig_gpu(), driver=Driver(privileged=True))
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == 80 * GIB
    rows = [
        (row.pid, row.usedGpuMemory, row.gpuInstanceId) for row in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]
    assert rows == [(100, 3 * GIB, 5), (101, 3 * GIB, 1)]  # one row a process: summed, with the last ids


def test_no_utilization_under_mig(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for device in (handle, slots(nvml, handle)[0]):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetUtilizationRates(device)
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetProcessUtilization(device, 0)


def test_the_compute_mode_belongs_to_the_mig_devices(node, mig_gpu):
    nvml = node.start(mig_gpu(compute_mode=3))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetComputeMode(slots(nvml, handle)[0]) == 3
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetComputeMode(handle)


@pytest.mark.parametrize(("now", "pending"), [(True, False), (False, True), (False, None)])
def test_the_present_mode_decides_n59(node, mig_gpu, now, pending):
    nvml = node.start(mig_gpu(mig_mode=now, mig_pending=pending))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(handle) == [now, now if pending is None else pending]
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(handle) == (7 if now else 0)
    assert len(slots(nvml, handle)) == (3 if now else 0)


def test_a_gpu_without_mig(node, gpu):
    nvml = node.start(gpu(0))
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMigMode(handle)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(handle) == 0


def test_a_destroyed_mig_device_n58(node, mig_gpu):
    nvml = node.start(mig_gpu())
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    mig = slots(nvml, handle)[0]
    node.write(mig_gpu(mig_mode=False))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetMemoryInfo(mig)
    assert nvml.nvmlDeviceGetMemoryInfo(handle).total == 80 * GIB
