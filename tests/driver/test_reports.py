"""Drivers as users reported them of other programs: from the driver's answers to the snapshot."""

import pynvml
import pytest

from exporter.errors import Failure, Reason
from exporter.model import Condition, MemoryClass
from simulator.nvml.state import Driver, Fault, Memory, Row
from tests.builders import in_pod, names_of, only_domain, snapshot_of, used_by_pod
from tests.driver.conftest import GIB, MIB, devices, gpu, uuid, value

LISTS = "nvmlDeviceGetComputeRunningProcesses_v3"
A = names_of("a/main")
# What a GPU is asked once, and need not answer.
OPTIONAL = (
    "nvmlDeviceGetName",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetUtilizationRates",
    "nvmlSystemGetCudaDriverVersion",
)


def joined(reading):
    return snapshot_of(*value(reading).devices, places={11: in_pod("a")}, names=A)


@pytest.mark.parametrize("decoded", [True, False])
def test_n74_names_are_text_whatever_the_binding_returns(driver, monkeypatch, decoded):
    """Old bindings return bytes; pynvml still has those functions, below the decorator that decodes."""
    if not decoded:
        for name in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlSystemGetDriverVersion"):
            monkeypatch.setattr(pynvml, name, getattr(pynvml, name).__wrapped__)
    driver.write(gpu(0))
    reading = value(driver.source().read())
    (found,) = reading.devices
    assert (reading.driver_version, found.device.uuid, found.device.name) == (
        "580.65.06",
        uuid(0),
        "NVIDIA H100 80GB HBM3",
    )


@pytest.mark.parametrize("generation", ["470"])
def test_n22_a_binding_that_finds_the_library_too_old_costs_that_call_only(driver, monkeypatch, generation):
    """pynvml raises an error of another family for functions that it has under one version only, such as this one."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUtilizationRates", pynvml.nvmlDeviceGetComputeRunningProcesses)
    driver.write(gpu(0, rows=(Row(11, used=GIB),), utilization=(55, 0)))
    snapshot = joined(driver.source().read())
    assert snapshot.devices[0].utilization is None
    assert used_by_pod(snapshot, uuid(0)) == {"a": GIB}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_UNKNOWN])
def test_b45_a_gpu_that_tells_nothing_of_itself_has_its_memory_and_pods(driver, code):
    faults = [Fault(symbol, code=code) for symbol in OPTIONAL]
    # Whether it is under MIG is another matter: without an answer nothing can be said of it.
    faults.append(Fault("nvmlDeviceGetMigMode", code=pynvml.NVML_ERROR_NOT_SUPPORTED))
    driver.write(gpu(0, rows=(Row(11, used=GIB),)), faults=tuple(faults))
    snapshot = joined(driver.source().read())
    assert used_by_pod(snapshot, uuid(0)) == {"a": GIB}
    device = snapshot.devices[0].device
    assert (device.name, device.minor, device.pci_bus_id, device.compute_capability) == ("", None, "", None)
    assert (device.compute_mode, device.persistence, device.mig_mode) == ("", None, None)
    assert snapshot.driver == ("580.95.05", "13.0")


@pytest.mark.parametrize("generation", ["470", "580"])
def test_n42_b80_b81_b114_an_idle_gpu_uses_nothing_and_its_memory_adds_up(driver, generation):
    """What the driver reserves for itself is in "used" of the first version of the call, and in none of the second."""
    driver.write(gpu(memory=Memory(24 * GIB, used=0, reserved=308 * MIB)))
    domain = only_domain(joined(driver.source().read()))
    if generation == "470":
        assert MemoryClass.RESERVED not in domain.classes
        assert domain.classes[MemoryClass.REMAINDER] == 308 * MIB
    else:
        assert domain.classes[MemoryClass.RESERVED] == 308 * MIB
        assert domain.classes[MemoryClass.REMAINDER] == 0
    assert sum(domain.classes.values()) == domain.capacity == 24 * GIB


@pytest.mark.parametrize("symbol", [LISTS, "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCount_v2"])
def test_b89_a_symbol_that_is_missing_all_of_a_sudden_costs_one_cycle_and_no_program(driver, monkeypatch, symbol):
    """A library that was replaced below a running program does not have what is looked up only now."""
    found = pynvml._nvmlGetFunctionPointer

    def gone(name):
        if name.startswith(symbol.removesuffix("_v3").removesuffix("_v2")):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return found(name)

    driver.write(gpu(0, rows=(Row(11, used=GIB),)))
    source = driver.source(fixed_time=True)
    assert used_by_pod(joined(source.read()), uuid(0)) == {"a": GIB}
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", gone)
    driver.time.now += 61
    reading = source.read()
    if symbol == "nvmlDeviceGetCount_v2":
        assert reading.failure.reason is Reason.NOT_SUPPORTED
    elif symbol == LISTS:
        snapshot = joined(reading)
        assert snapshot.containers == ()
        assert only_domain(snapshot).classes[MemoryClass.UNREAD] == 10 * GIB
        assert not only_domain(snapshot).up
    else:
        assert used_by_pod(joined(reading), uuid(0)) == {"a": GIB}
        assert only_domain(joined(reading)).capacity is None


def test_b110_each_gpu_says_for_itself_whether_it_was_read(driver):
    ill = Fault(LISTS, gpu=1, code=pynvml.NVML_ERROR_UNKNOWN)
    driver.write(gpu(0), gpu(1), gpu(2), faults=(ill,))
    snapshot = joined(driver.source().read())
    assert [domain.up for device in snapshot.devices for domain in device.domains] == [True, False, True]
    errors = {state.source: state.errors for state in snapshot.sources}
    assert [problem.reason for problem in errors["nvml"]] == [Reason.DRIVER_ERROR]


def test_n24_b79_scrambled_rows_raise_their_condition_and_hide_nothing_else(driver):
    rows = (Row(11, used=2 * GIB), Row(2147483648, used=12))
    driver.write(gpu(0, rows=rows), gpu(1, rows=(Row(11, used=GIB),)), driver=Driver())
    snapshot = joined(driver.source().read())
    assert snapshot.conditions[Condition.ROWS_REJECTED]
    assert used_by_pod(snapshot, uuid(0)) == {}
    assert used_by_pod(snapshot, uuid(1)) == {"a": GIB}


def test_b93_blanks_in_place_of_numbers_are_absent(driver):
    blank = 2**64 - 1
    driver.write(
        gpu(0, memory=Memory(80 * GIB, used=blank, free=blank), utilization=(2147483632, 808334905)),
        gpu(1, memory=Memory(80 * GIB, reserved=blank, used=0, free=0)),
        gpu(2, memory=Memory(0, used=0, free=0)),
    )
    found = devices(driver.source().read())
    assert all(isinstance(found[n].domains[0].memory, Failure) for n in (0, 1, 2))
    assert found[0].utilization is None
