"""GPUs under MIG as users reported them of other programs: from the driver's answers to the series."""

import gc

import pynvml
import pytest

from exporter.accounting import account, opened
from exporter.errors import Reason
from exporter.metrics import catalog
from exporter.metrics.samples import BuildInfo, samples
from exporter.model import DomainKey, MemoryClass
from simulator.nvml.state import Fault, GpuInstance, Memory, MigDevice, Row
from tests.builders import allocated, given, in_pod, names_of, snapshot_of
from tests.driver.conftest import GIB, devices, gpu, uuid, value

AB = names_of("a/main", "b/main")
LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"


def instance(number, mig_uuid, *, slot=0, used=GIB, slices=1):
    device = MigDevice(mig_uuid, slot=slot, compute_instance=0, slices=slices)
    return GpuInstance(
        number, profile=f"{slices}g.10gb", slices=slices, memory=Memory(10 * GIB, used=used), devices=(device,)
    )


MIG_GPU = gpu(0, mig_mode=True, instances=(instance(1, "MIG-x"), instance(2, "MIG-y", slot=2)))


def row(pid, gpu_instance, used=GIB):
    return Row(pid, used=used, gpu_instance=gpu_instance, compute_instance=0)


def joined(reading, **others):
    return snapshot_of(*value(reading).devices, names=AB, **others)


def used(snapshot):
    """Bytes by pod, GPU and GPU instance."""
    return {(state.name.pod, state.domain.gpu, state.domain.gpu_instance): state.used for state in snapshot.containers}


def test_k18_b61_b62_a_pod_on_a_mig_device_has_the_labels_of_one_on_a_whole_gpu(driver):
    driver.write(
        gpu(0, rows=(Row(11, used=3 * GIB),)),
        gpu(1, mig_mode=True, instances=(instance(7, "MIG-x"),), rows=(row(12, 7),)),
    )
    snapshot = joined(
        driver.source().read(),
        places={11: in_pod("a"), 12: in_pod("b")},
        allocations=allocated(given("a", uuid(0)), given("b", "MIG-x", resource="nvidia.com/mig-1g.10gb")),
    )
    found = samples(snapshot, totals=account(opened(), snapshot), build=BuildInfo("0", "3"))
    printed = {one.family: one.rows for one in found.families}
    whole, sliced = ("ns", "a", "main", "0", uuid(0), ""), ("ns", "b", "main", "1", uuid(1), "7")
    assert printed[catalog.CONTAINER_MEMORY_USED] == ((whole, 3 * GIB), (sliced, GIB))
    assert printed[catalog.CONTAINER_ALLOCATED] == ((whole, 1), (sliced, 1))
    assert printed[catalog.CONTAINER_SLOTS] == ((whole, 1), (sliced, 1))
    assert printed[catalog.MIG_DEVICE_INFO] == ((("1", uuid(1), "7", "0", "MIG-x", "1g.10gb"), 1),)


def test_n57_a_process_on_two_instances_has_a_value_on_each(driver):
    instances = (instance(1, "MIG-a"), instance(2, "MIG-b", slot=1))
    driver.write(gpu(mig_mode=True, instances=instances, rows=(row(11, 1), row(11, 2, used=2 * GIB))))
    snapshot = joined(driver.source().read(), places={11: in_pod("a")})
    assert used(snapshot) == {("a", 0, "1"): GIB, ("a", 0, "2"): 2 * GIB}


def test_n53_the_gpu_itself_is_not_asked_for_rows_under_mig(driver):
    driver.write(gpu(mig_mode=True, instances=(instance(1, "MIG-a"),), rows=(row(11, 1),)))
    snapshot = joined(driver.source().read(), places={11: in_pod("a")})
    assert [state.errors for state in snapshot.sources] == [()] * len(snapshot.sources)
    assert [domain.up for domain in snapshot.devices[0].domains] == [True]


def test_n58_instance_ids_of_rows_mean_nothing_without_mig(driver):
    """Some drivers fill them with zero there."""
    driver.write(gpu(rows=(Row(11, used=GIB, gpu_instance=0, compute_instance=0), Row(12, used=GIB))))
    snapshot = joined(driver.source().read(), places={11: in_pod("a"), 12: in_pod("b")})
    assert used(snapshot) == {("a", 0, ""): GIB, ("b", 0, ""): GIB}


@pytest.mark.parametrize(("now", "pending"), [(True, False), (False, True)])
def test_n59_the_present_mode_decides_and_not_the_pending_one(driver, now, pending):
    instances = (instance(1, "MIG-a"),) if now else ()
    rows = (row(11, 1),) if now else (Row(11, used=GIB),)
    driver.write(gpu(mig_mode=now, mig_pending=pending, instances=instances, rows=rows))
    snapshot = joined(driver.source().read(), places={11: in_pod("a")})
    assert used(snapshot) == {("a", 0, "1" if now else ""): GIB}
    assert snapshot.devices[0].device.mig_mode is now


def test_b60_an_allocation_follows_its_mig_device_when_instances_are_made_anew(driver):
    source = driver.source()
    held = allocated(given("a", "MIG-x"), given("b", "MIG-y"))
    places = {11: in_pod("a"), 12: in_pod("b")}
    old = (instance(1, "MIG-x"), instance(2, "MIG-y", slot=1))
    driver.write(gpu(mig_mode=True, instances=old, rows=(row(11, 1), row(12, 2))))
    before = joined(source.read(), places=places, allocations=held)
    assert used(before) == {("a", 0, "1"): GIB, ("b", 0, "2"): GIB}
    new = (instance(5, "MIG-y"), instance(6, "MIG-x", slot=1))
    driver.write(gpu(mig_mode=True, instances=new, rows=(row(11, 6), row(12, 5))))
    after = joined(source.read(), places=places, allocations=held)
    assert used(after) == {("a", 0, "6"): GIB, ("b", 0, "5"): GIB}
    assert {state.allocated for state in after.containers} == {True}


def test_b70_no_handle_of_an_instance_outlives_a_reading(driver):
    """An instance with an open handle cannot be destroyed."""

    def handles():
        gc.collect()
        return sum(type(found).__name__ == "LP_struct_c_nvmlDevice_t" for found in gc.get_objects())

    before = handles()
    instances = (instance(1, "MIG-a"), instance(2, "MIG-b", slot=1))
    driver.write(gpu(mig_mode=True, instances=instances, rows=(row(11, 1),)))
    source = driver.source()
    source.read()
    assert handles() == before + 1  # the GPU's own


@pytest.mark.parametrize("generation", ["470", "615"])
def test_b63_a_profile_is_the_drivers_own_word_for_it(driver, generation):
    """12 GB on one slice is a profile of few GPUs; a table of profiles would not have it."""
    odd = GpuInstance(
        3,
        profile="1g.12gb",
        slices=1,
        memory=Memory(12 * GIB),
        devices=(MigDevice("MIG-x", slot=0, compute_instance=0, slices=1),),
    )
    driver.write(gpu(mig_mode=True, name="NVIDIA H100 NVL", instances=(odd,)))
    assert [mig.profile for mig in devices(driver.source().read())[0].mig_devices] == ["1g.12gb"]


@pytest.mark.parametrize("symbol", [LISTS, MEMORY])
def test_b73_an_instance_whose_calls_fail_shows_no_zero(driver, symbol):
    driver.write(
        gpu(0, mig_mode=True, instances=(instance(1, "MIG-a"),), rows=(row(11, 1),)),
        faults=(Fault(symbol, code=pynvml.NVML_ERROR_UNKNOWN),),
    )
    snapshot = joined(driver.source().read(), places={11: in_pod("a")}, allocations=allocated(given("a", "MIG-a")))
    (domain,) = snapshot.devices[0].domains
    assert domain.key == DomainKey(0, uuid(0), "1")
    assert not domain.up
    (state,) = snapshot.containers
    if symbol == LISTS:
        assert (state.used, state.processes, domain.classes[MemoryClass.UNREAD]) == (None, None, GIB)
    else:
        assert (state.used, domain.capacity, dict(domain.classes)) == (GIB, None, {})
    errors = {state.source: [problem.reason for problem in state.errors] for state in snapshot.sources}
    assert errors["nvml"] == [Reason.DRIVER_ERROR]


@pytest.mark.parametrize(
    "symbol",
    [
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
        "nvmlDeviceGetMigMode",
    ],
)
def test_a_mig_gpu_that_cannot_be_seen_whole_is_down_and_not_smaller(driver, symbol):
    fault = Fault(symbol, gpu=0, code=pynvml.NVML_ERROR_UNKNOWN)
    driver.write(MIG_GPU, gpu(1), faults=(fault,))
    source = driver.source()
    reading = value(source.read())
    assert [found.device.index for found in reading.devices if found.failure is None] == [1]
    problems = [*reading.failures, *(found.failure for found in reading.devices if found.failure is not None)]
    assert [problem.reason for problem in problems] == [Reason.DRIVER_ERROR]
    assert "GPU 0" in problems[0].detail
    driver.write(MIG_GPU, gpu(1))
    assert len(devices(source.read())[0].domains) == len(MIG_GPU.instances)


def test_an_instance_that_is_destroyed_between_two_calls_costs_itself_for_a_cycle(driver):
    fault = Fault("nvmlDeviceGetMemoryInfo_v2", gpu=0, calls=1, code=pynvml.NVML_ERROR_INVALID_ARGUMENT)
    driver.write(MIG_GPU, faults=(fault,))
    source = driver.source()
    first, *others = devices(source.read())[0].domains
    assert first.memory.reason is Reason.DRIVER_ERROR
    assert all(domain.memory.total for domain in others)
    assert devices(source.read())[0].domains[0].memory.total
