"""What users reported of other programs, as readings: each with the one right snapshot."""

from dataclasses import replace

import pytest

from exporter.accounting import account, opened
from exporter.errors import Failure, Reason
from exporter.model import DomainReading, LivePods, MemoryClass, MigDevice, UtilizationWindow
from tests.builders import (
    GIB,
    HOST_SERVER,
    MIB,
    U1,
    allocated,
    given,
    gpu,
    in_pod,
    lists,
    memory,
    mig_gpu,
    names_of,
    only_domain,
    rows,
    snapshot_of,
    uid,
    used_by_pod,
)

AB = names_of("a/main", "b/main")


def test_n13_clients_that_died_with_their_server_leave_nothing_but_remainder():
    clients = rows((11, GIB), (12, GIB))
    in_use = memory(used=3 * GIB)
    before = snapshot_of(
        gpu(lists(rows((99, 25 * MIB), (11, GIB), (12, GIB)), mps=clients), in_use),
        places={99: HOST_SERVER, 11: in_pod("a"), 12: in_pod("b")},
        names=AB,
    )
    after = snapshot_of(gpu(lists(), in_use), names=AB)
    assert used_by_pod(before) == {"a": GIB, "b": GIB}
    assert after.containers == ()
    assert only_domain(after).classes[MemoryClass.REMAINDER] == 3 * GIB
    assert account(account(opened(), before), after).peaks == {}


def test_b91_memory_of_no_process_is_remainder_and_makes_no_pod():
    snapshot = snapshot_of(gpu(lists(), memory(used=90 * MIB)), names=AB)
    assert snapshot.containers == ()
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 90 * MIB


def test_k03_slots_of_finished_pods_are_free():
    replicas = [f"{U1}::{n}" for n in range(4)]
    finished = allocated(given("a", *replicas[:3]), given("b", replicas[3]), advertised=replicas)
    snapshot = snapshot_of(gpu(), names=AB, allocations=finished, live=LivePods(frozenset({uid("b")})))
    assert only_domain(snapshot).slots == {"nvidia.com/gpu": 4}
    assert [(state.name.pod, state.slots, state.share) for state in snapshot.containers] == [("b", 1, 0.25)]


@pytest.mark.parametrize("listed", [True, False])
def test_b56_a_completed_job_uses_nothing_while_it_is_still_listed(listed):
    """The kubelet may list it; its log links may be there; its cgroup is gone, and so is its use."""
    snapshot = snapshot_of(
        gpu(),
        names=AB,
        allocations=allocated(*([given("a", U1)] if listed else []), advertised=[U1]),
        live=LivePods(frozenset({uid("b")})),
    )
    assert snapshot.containers == ()


def test_b72_two_pods_on_replicas_of_one_mig_device_are_both_there():
    domain = DomainReading(2, memory(used=3 * GIB, total=20 * GIB, reserved=0), lists(rows((11, GIB), (12, 2 * GIB))))
    snapshot = snapshot_of(
        mig_gpu([domain], [MigDevice("MIG-x", 2, 0, "2g.20gb")]),
        places={11: in_pod("a"), 12: in_pod("b")},
        names=AB,
        allocations=allocated(given("a", "MIG-x::0"), given("b", "MIG-x::1"), advertised=["MIG-x::0", "MIG-x::1"]),
    )
    assert [(state.name.pod, state.used, state.share) for state in snapshot.containers] == [
        ("a", GIB, 0.5),
        ("b", 2 * GIB, 0.5),
    ]


@pytest.mark.parametrize("window", [None, Failure(Reason.NOT_SUPPORTED, "no samples"), UtilizationWindow()])
def test_b124_a_gpus_utilization_is_never_a_containers(window):
    reading = replace(gpu(lists(rows((11, GIB)))), utilization=0.71, process_utilization=window)
    snapshot = snapshot_of(reading, places={11: in_pod("a")}, names=AB)
    assert snapshot.devices[0].utilization == 0.71
    assert [state.utilization for state in snapshot.containers] == [0.0 if window == UtilizationWindow() else None]
