"""How busy a container keeps the SMs: the means of its own processes, unknown wherever one of them is."""

from dataclasses import replace

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from exporter.errors import Failure, Reason
from exporter.model import (
    Condition,
    DeviceReading,
    DomainReading,
    MigDevice,
    Place,
    ProcessUtilization,
    UtilizationWindow,
)
from tests.builders import (
    GIB,
    HOST,
    HOST_SERVER,
    U1,
    UNSUPPORTED,
    allocated,
    given,
    gpu,
    in_pod,
    lists,
    memory,
    mig_gpu,
    names_of,
    rows,
    snapshot_of,
    used_by_pod,
)

NAMES = names_of("a/main", "b/main")
PLACES = {11: in_pod("a"), 12: in_pod("a"), 21: in_pod("b"), 31: HOST}
DRIVER_ERROR = Failure(Reason.DRIVER_ERROR, "nvmlDeviceGetProcessUtilization: UNKNOWN")


def busy(*means: tuple[int, float | None], rejected: int = 0) -> UtilizationWindow:
    return UtilizationWindow(tuple(ProcessUtilization(pid, sm) for pid, sm in means), rejected)


def with_samples(window: UtilizationWindow | Failure | None, *pids: int, reading: DeviceReading | None = None):
    """A GPU that lists these processes, and what the driver said about how busy they are."""
    listed = gpu(lists(rows(*((pid, GIB) for pid in pids))))
    return replace(reading if reading is not None else listed, process_utilization=window)


def by_pod(*readings: DeviceReading, **others: object) -> dict[str, float | None]:
    snapshot = snapshot_of(*readings, **{"places": PLACES, "names": NAMES} | others)
    return {state.name.pod: state.utilization for state in snapshot.containers}


def test_a_container_has_the_sum_of_its_processes():
    window = busy((11, 0.25), (12, 0.5), (21, 0.125))
    assert by_pod(with_samples(window, 11, 12, 21)) == {"a": 0.75, "b": 0.125}


def test_b20_processes_that_took_turns_do_not_add_up_to_more_than_the_device():
    assert by_pod(with_samples(busy((11, 0.8), (12, 0.7)), 11, 12)) == {"a": 1.0}


def test_b82_a_process_without_a_sample_was_idle():
    assert by_pod(with_samples(busy((21, 0.5)), 11, 21)) == {"a": 0.0, "b": 0.5}
    assert by_pod(with_samples(busy(), 11, 21)) == {"a": 0.0, "b": 0.0}


def test_a_container_without_a_process_has_no_value():
    found = by_pod(with_samples(busy((11, 0.5)), 11), allocations=allocated(given("a", U1), given("b", U1)))
    assert found == {"a": 0.5, "b": None}


@pytest.mark.parametrize("pid", [12, 31, 99])
def test_n52_b85_a_sample_of_a_process_that_is_not_listed_counts_for_nobody(pid):
    assert by_pod(with_samples(busy((11, 0.25), (pid, 0.5)), 11, 21)) == {"a": 0.25, "b": 0.0}


def test_b21_a_process_that_cannot_be_placed_counts_for_nobody():
    places = {11: in_pod("a"), 12: Place(reason=Reason.EXITED)}
    assert by_pod(with_samples(busy((11, 0.25), (12, 0.5)), 11, 12), places=places) == {"a": 0.25}


def test_the_host_and_the_mps_server_count_for_no_container():
    places = {11: in_pod("a"), 31: HOST, 41: HOST_SERVER, 42: in_pod("b", server=True)}
    window = busy((11, 0.25), (31, 0.5), (41, 0.5), (42, 0.5))
    assert by_pod(with_samples(window, 11, 31, 41, 42), places=places) == {"a": 0.25}


def test_n72_a_process_of_one_list_only_counts():
    reading = gpu(lists(compute=rows((11, GIB)), mps=rows((12, GIB))))
    assert by_pod(with_samples(busy((11, 0.25), (12, 0.5)), reading=reading)) == {"a": 0.75}


def test_a_process_of_two_lists_counts_once():
    reading = gpu(lists(compute=rows((11, GIB)), mps=rows((11, GIB)), graphics=rows((11, GIB))))
    assert by_pod(with_samples(busy((11, 0.25)), reading=reading)) == {"a": 0.25}


def test_b92_a_process_whose_samples_were_nonsense_makes_its_container_unknown_and_no_other():
    assert by_pod(with_samples(busy((11, 0.5), (12, None), (21, 0.25), rejected=1), 11, 12, 21)) == {
        "a": None,
        "b": 0.25,
    }


@pytest.mark.parametrize("window", [DRIVER_ERROR, UNSUPPORTED, None])
def test_b65_b124_without_samples_it_is_unknown_and_the_device_value_is_nobodys(window):
    reading = with_samples(window, 11)
    assert reading.utilization == 0.5
    snapshot = snapshot_of(reading, places=PLACES, names=NAMES)
    assert [state.utilization for state in snapshot.containers] == [None]
    assert used_by_pod(snapshot) == {"a": GIB}
    assert snapshot.devices[0].domains[0].up


def test_where_processes_are_unknown_it_is_unknown():
    window = busy((11, 0.5))
    unread = with_samples(window, reading=gpu(lists(compute=DRIVER_ERROR)))
    assert by_pod(unread, allocations=allocated(given("a", U1))) == {"a": None}
    blind = Failure(Reason.BLIND_PID_NAMESPACE, "")
    assert by_pod(with_samples(window, 11), allocations=allocated(given("a", U1)), places=blind) == {"a": None}


def test_b65_under_mig_it_is_unknown():
    domain = DomainReading(1, memory(used=GIB, total=10 * GIB), lists(rows((11, GIB))))
    assert by_pod(mig_gpu([domain], [MigDevice("MIG-a", 1, 0)])) == {"a": None}


def test_a_container_on_two_gpus_has_a_value_on_each():
    second = replace(with_samples(busy((11, 0.75)), 11), device=gpu(index=1, uuid="GPU-2").device)
    snapshot = snapshot_of(with_samples(busy((11, 0.25)), 11), second, places=PLACES, names=NAMES)
    assert {state.domain.gpu: state.utilization for state in snapshot.containers} == {0: 0.25, 1: 0.75}


@pytest.mark.parametrize(("window", "errors"), [(DRIVER_ERROR, (DRIVER_ERROR,)), (UNSUPPORTED, ()), (None, ())])
def test_a_failure_is_counted_and_what_is_not_supported_is_none(window, errors):
    snapshot = snapshot_of(with_samples(window, 11), places=PLACES, names=NAMES)
    (driver,) = (source for source in snapshot.sources if source.source == "nvml")
    assert driver.failure is None
    assert driver.errors == tuple(replace(error, detail=f"GPU 0: {error.detail}") for error in errors)


@pytest.mark.parametrize(("window", "holds"), [(busy(), False), (busy(rejected=1), True), (None, False)])
def test_b84_rejected_samples_are_a_condition(window, holds):
    snapshot = snapshot_of(gpu(index=1, uuid="GPU-2"), with_samples(window, 11))
    assert snapshot.conditions[Condition.UTILIZATION_SAMPLES_REJECTED] is holds


_PIDS = st.integers(1, 9)
_WINDOW = st.dictionaries(_PIDS, st.none() | st.floats(0, 1)).map(lambda means: list(means.items()))
_LISTED = st.lists(_PIDS, unique=True)
_PLACED = st.dictionaries(_PIDS, st.sampled_from([in_pod("a"), in_pod("b"), HOST, Place(reason=Reason.EXITED)]))


@for_all(_WINDOW, _LISTED, _PLACED)
def test_a_value_is_a_ratio_and_only_of_containers_with_processes(window, listed, placed):
    snapshot = snapshot_of(with_samples(busy(*window), *listed), places=placed, names=NAMES)
    unknown = {pid for pid, sm in window if sm is None}
    for state in snapshot.containers:
        mine = {pid for pid in listed if placed.get(pid) == in_pod(state.name.pod)}
        assert mine
        assert (state.utilization is None) == bool(mine & unknown)
        assert state.utilization is None or 0 <= state.utilization <= 1


@for_all(_WINDOW, _LISTED, _PLACED, st.randoms())
def test_p6_order_does_not_matter(window, listed, placed, random):
    def shuffled(values):
        mixed = list(values)
        random.shuffle(mixed)
        return mixed

    first = by_pod(with_samples(busy(*window), *listed), places=placed)
    other = by_pod(with_samples(busy(*shuffled(window)), *shuffled(listed)), places=dict(shuffled(placed.items())))
    assert other == first


@for_all(_WINDOW, _LISTED, _PLACED)
def test_samples_of_others_change_nothing(window, listed, placed):
    mine = [(pid, sm) for pid, sm in window if pid in listed]
    assert by_pod(with_samples(busy(*mine), *listed), places=placed) == by_pod(
        with_samples(busy(*window), *listed), places=placed
    )
