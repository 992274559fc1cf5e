"""The strange answers of drivers and kubelets, each with the one right snapshot."""

from dataclasses import replace

import pytest

from exporter.errors import Failure, Reason
from exporter.model import (
    Condition,
    ContainerName,
    ContainerRef,
    DomainReading,
    Isolation,
    ListKind,
    LivePods,
    MemoryClass,
    MigDevice,
    Place,
    Pod,
    PodNames,
    ProcessList,
    ProcessRow,
)
from tests.builders import (
    GIB,
    HOST,
    HOST_SERVER,
    MIB,
    U1,
    U2,
    U3,
    UNSUPPORTED,
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


def test_n01_one_row_is_its_pods_and_the_rest_is_remainder():
    snapshot = snapshot_of(gpu(lists(rows((11, GIB))), memory(used=3 * GIB)), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 2 * GIB


def test_n02_idle_gpu_has_no_pod_series():
    snapshot = snapshot_of(gpu(lists(), memory(used=4 * MIB)))
    assert snapshot.containers == ()
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 4 * MIB
    assert only_domain(snapshot).up


def test_n03_b55_k21_blind_namespace_is_unread_and_never_zero():
    blind = Failure(Reason.BLIND_PID_NAMESPACE, "set hostPID: true")
    snapshot = snapshot_of(
        gpu(lists(rows((12, GIB))), memory(used=30 * GIB)),
        places=blind,
        names=AB,
        allocations=allocated(given("a", U1)),
    )
    assert used_by_pod(snapshot) == {"a": None}
    classes = only_domain(snapshot).classes
    assert classes[MemoryClass.UNREAD] == 30 * GIB
    assert set(classes) == {MemoryClass.UNREAD, MemoryClass.RESERVED, MemoryClass.FREE}
    assert snapshot.conditions[Condition.BLIND_PID_NAMESPACE]


@pytest.mark.parametrize("other", ["graphics", "mps"])
def test_n04_n05_a_process_in_two_lists_counts_once(other):
    found = lists(rows((11, 500 * MIB)), **{other: rows((11, 500 * MIB))})
    snapshot = snapshot_of(gpu(found), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": 500 * MIB}
    kinds = snapshot.containers[0].processes
    assert sum(kinds.values()) == 1
    assert kinds[ListKind.MPS if other == "mps" else ListKind.COMPUTE] == 1


def test_n06_a_row_given_twice_counts_once():
    snapshot = snapshot_of(gpu(lists(rows((11, GIB), (11, GIB)))), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}


def test_n08_b07_the_mps_servers_memory_is_nobodys():
    found = lists(rows((99, 25 * MIB), (11, 107 * MIB), (12, 107 * MIB)), mps=rows((11, 107 * MIB), (12, 107 * MIB)))
    snapshot = snapshot_of(
        gpu(found, memory(used=242 * MIB)),
        places={99: HOST_SERVER, 11: in_pod("a"), 12: in_pod("b")},
        names=AB,
    )
    assert used_by_pod(snapshot) == {"a": 107 * MIB, "b": 107 * MIB}
    assert only_domain(snapshot).classes[MemoryClass.MPS_SERVER] == 25 * MIB
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 3 * MIB


def test_n09_a_server_without_clients_is_no_error():
    snapshot = snapshot_of(gpu(lists(rows((99, 25 * MIB)))), places={99: HOST_SERVER})
    assert snapshot.containers == ()
    assert only_domain(snapshot).classes[MemoryClass.MPS_SERVER] == 25 * MIB


def test_n10_before_volta_clients_hide_behind_the_server():
    snapshot = snapshot_of(
        gpu(lists(rows((99, 4 * GIB))), capability=(6, 1)),
        places={99: HOST_SERVER},
        names=AB,
        allocations=allocated(given("a", f"{U1}::0"), given("b", f"{U1}::1")),
    )
    assert used_by_pod(snapshot) == {"a": None, "b": None}
    assert only_domain(snapshot).classes[MemoryClass.MPS_SERVER] == 4 * GIB
    assert snapshot.conditions[Condition.CLIENT_MEMORY_HIDDEN]


def test_n11_the_server_in_the_daemons_own_pod_is_no_tenant():
    snapshot = snapshot_of(
        gpu(lists(rows((99, 25 * MIB)))), places={99: in_pod("daemon", server=True)}, names=names_of("daemon/main")
    )
    assert snapshot.containers == ()
    assert only_domain(snapshot).classes[MemoryClass.MPS_SERVER] == 25 * MIB


@pytest.mark.parametrize("kind", ["allocated", "client"])
def test_a_tenant_that_calls_itself_the_server_is_billed_all_the_same(kind):
    found = lists(rows((11, 9 * GIB)), mps=rows((11, 9 * GIB)) if kind == "client" else ProcessList())
    snapshot = snapshot_of(
        gpu(found),
        places={11: in_pod("a", server=True)},
        names=AB,
        allocations=allocated(given("a", U1)) if kind == "allocated" else None,
    )
    assert used_by_pod(snapshot) == {"a": 9 * GIB}


def test_n12_b08_a_client_in_the_mps_list_only():
    snapshot = snapshot_of(gpu(lists(mps=rows((11, GIB)))), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}


def test_n14_b78_one_process_of_unknown_memory_makes_the_containers_sum_unknown():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, None), (13, 2 * GIB), (14, 512 * MIB))), memory(used=10 * GIB)),
        places={11: in_pod("a"), 12: in_pod("a"), 13: in_pod("b"), 14: HOST},
        names=AB,
    )
    assert used_by_pod(snapshot) == {"a": None, "b": 2 * GIB}
    state = next(state for state in snapshot.containers if state.name.pod == "a")
    assert (state.processes_memory_unknown, sum(state.processes.values())) == (1, 2)
    classes = only_domain(snapshot).classes
    assert MemoryClass.CONTAINERS not in classes
    assert MemoryClass.REMAINDER not in classes
    assert classes[MemoryClass.HOST] == 512 * MIB
    assert classes[MemoryClass.UNREAD] == 10 * GIB - 512 * MIB


def test_n15_n62_only_unknown_memory_leaves_everything_unread():
    snapshot = snapshot_of(gpu(lists(rows((11, None))), memory(used=GIB)), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": None}
    assert MemoryClass.REMAINDER not in only_domain(snapshot).classes
    assert only_domain(snapshot).classes[MemoryClass.UNREAD] == GIB


def test_n17_zero_is_a_value():
    snapshot = snapshot_of(gpu(lists(rows((11, 0)))), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": 0}
    assert snapshot.containers[0].processes[ListKind.COMPUTE] == 1


@pytest.mark.parametrize("missing", [{"graphics": UNSUPPORTED}, {"mps": UNSUPPORTED}])
def test_n20_n23_a_driver_without_a_list_has_nothing_to_say_in_it(missing):
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)), **missing)), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}
    assert only_domain(snapshot).up
    assert all(not state.errors for state in snapshot.sources)


@pytest.mark.parametrize("kind", ["compute", "graphics", "mps"])
def test_b11_a_list_that_failed_makes_its_gpu_unread_and_no_other(kind):
    failed = lists(**{kind: Failure(Reason.DRIVER_ERROR, "UNKNOWN")})
    snapshot = snapshot_of(
        gpu(failed, memory(used=9 * GIB)),
        gpu(lists(rows((12, GIB))), index=1, uuid=U2),
        places={12: in_pod("b")},
        names=AB,
        allocations=allocated(given("a", U1), given("b", U2)),
    )
    assert used_by_pod(snapshot, U1) == {"a": None}
    assert used_by_pod(snapshot, U2) == {"b": GIB}
    assert [domain.up for device in snapshot.devices for domain in device.domains] == [False, True]
    assert snapshot.devices[0].domains[0].classes[MemoryClass.UNREAD] == 9 * GIB


def test_n25_n26_n27_rejected_and_truncated_lists_raise_their_conditions():
    strange = ProcessList((ProcessRow(11, GIB),), truncated=True, rejected=1)
    snapshot = snapshot_of(gpu(lists(strange)), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}
    assert snapshot.conditions[Condition.ROWS_REJECTED]
    assert snapshot.conditions[Condition.PROCESS_LIST_TRUNCATED]


def test_n24_b79_a_scrambled_list_is_unread():
    scrambled = Failure(Reason.ROWS_REJECTED, "2 of 3 rows are impossible")
    snapshot = snapshot_of(gpu(lists(scrambled), memory(used=GIB)), names=AB)
    assert snapshot.conditions[Condition.ROWS_REJECTED]
    assert only_domain(snapshot).classes[MemoryClass.UNREAD] == GIB
    assert not only_domain(snapshot).up


@pytest.mark.parametrize(
    "reason", [Reason.EXITED, Reason.PID_REUSED, Reason.CGROUP_UNREADABLE, Reason.CGROUP_AMBIGUOUS]
)
def test_n28_n31_b54_b98_a_process_without_a_place_is_unresolved_with_its_reason(reason):
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: Place(reason=reason)}, names=AB)
    assert snapshot.containers == ()
    assert only_domain(snapshot).classes[MemoryClass.UNRESOLVED] == GIB
    assert only_domain(snapshot).unresolved == {reason: 1}


def test_n32_a_host_process_is_host_memory():
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: HOST})
    assert only_domain(snapshot).classes[MemoryClass.HOST] == GIB


def test_n33_b10_a_pod_that_nobody_names_keeps_its_bytes_under_its_uid():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB)))),
        places={11: Place(ContainerRef("0a1b-uid", "f" * 64))},
        names=Failure(Reason.MISSING, "/var/log/containers is not mounted"),
        allocations=allocated(given("a", U1)),
    )
    named, unnamed = sorted(snapshot.containers, key=lambda state: state.used is not None)
    assert unnamed.name == ContainerName("", "0a1b-uid", "f" * 12)
    assert unnamed.used == GIB
    assert unnamed.allocated is None
    # The kubelet's container "a" may well be the one without a name: its use is not known, and not 0.
    assert (named.name.pod, named.used, named.processes, named.allocated) == ("a", None, None, True)


def test_k41_n34_a_sandbox_in_a_known_pod_is_the_pods():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB)))),
        places={11: Place(ContainerRef(uid("a"), "sandbox-id"))},
        names=AB,
        allocations=allocated(given("a", U1)),
    )
    by_container = {state.name.container: state for state in snapshot.containers}
    assert by_container[""].used == GIB
    assert by_container[""].allocated is None
    assert by_container["main"].used is None


def test_same_pod_behind_a_private_cgroup_namespace_is_named_by_its_container_id():
    place = Place(ContainerRef("", "a/main"))
    assert used_by_pod(snapshot_of(gpu(lists(rows((11, GIB)))), places={11: place}, names=AB)) == {"a": GIB}
    nobody = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: Place(ContainerRef("", "x"))}, names=AB)
    assert only_domain(nobody).unresolved == {Reason.CGROUP_RELATIVE: 1}


def test_n35_one_process_on_two_gpus():
    snapshot = snapshot_of(
        gpu(lists(rows((11, 2 * GIB)))),
        gpu(lists(rows((11, GIB))), index=1, uuid=U2),
        places={11: in_pod("a")},
        names=AB,
    )
    assert used_by_pod(snapshot, U1) == {"a": 2 * GIB}
    assert used_by_pod(snapshot, U2) == {"a": GIB}


def test_n36_k16_b01_pods_sharing_a_gpu_have_their_own_values():
    snapshot = snapshot_of(
        gpu(lists(rows((11, 3 * GIB), (12, 5 * GIB), (13, 7 * GIB))), memory(used=15 * GIB)),
        places={11: in_pod("a"), 12: in_pod("b"), 13: in_pod("c")},
        names=names_of("a/main", "b/main", "c/main"),
        allocations=allocated(given("a", f"{U1}::0"), given("b", f"{U1}::1"), given("c", f"{U1}::2")),
    )
    assert used_by_pod(snapshot) == {"a": 3 * GIB, "b": 5 * GIB, "c": 7 * GIB}
    assert only_domain(snapshot).classes[MemoryClass.CONTAINERS] == 15 * GIB


def test_n37_n39_b86_managed_memory_shows_as_remainder():
    snapshot = snapshot_of(gpu(lists(rows((11, 5 * GIB))), memory(used=65 * GIB)), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": 5 * GIB}
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 60 * GIB
    assert only_domain(snapshot).over_attributed == 0


def test_n38_rows_above_used_scale_nobody_down():
    snapshot = snapshot_of(
        gpu(lists(rows((11, 3 * GIB), (12, 2 * GIB))), memory(used=4 * GIB)),
        places={11: in_pod("a"), 12: in_pod("b")},
        names=AB,
    )
    assert used_by_pod(snapshot) == {"a": 3 * GIB, "b": 2 * GIB}
    assert only_domain(snapshot).classes[MemoryClass.REMAINDER] == 0
    assert only_domain(snapshot).over_attributed == GIB
    assert snapshot.conditions[Condition.OVER_ATTRIBUTED]


def test_n40_n41_b87_without_device_memory_pods_keep_theirs():
    snapshot = snapshot_of(gpu(lists(rows((11, 8 * GIB))), UNSUPPORTED), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": 8 * GIB}
    domain = only_domain(snapshot)
    assert (domain.capacity, dict(domain.classes), domain.over_attributed, domain.up) == (None, {}, None, True)


def test_n42_n43_b80_without_a_reserved_value_that_class_is_absent():
    snapshot = snapshot_of(gpu(lists(), memory(used=900 * MIB, reserved=None)))
    classes = only_domain(snapshot).classes
    assert MemoryClass.RESERVED not in classes
    assert sum(classes.values()) == only_domain(snapshot).capacity


def test_n46_b100_a_lost_gpu_is_down_and_the_other_complete():
    lost = gpu(index=1, uuid=U2, failure=Failure(Reason.GPU_LOST, "off the bus"))
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB)))),
        lost,
        places={11: in_pod("a")},
        names=AB,
        allocations=allocated(given("b", U2)),
    )
    assert used_by_pod(snapshot, U1) == {"a": GIB}
    assert used_by_pod(snapshot, U2) == {"b": None}
    assert snapshot.devices[1].domains[0].capacity is None
    assert not snapshot.devices[1].domains[0].up
    errors = {state.source: state.errors for state in snapshot.sources}
    assert [problem.reason for problem in errors["nvml"]] == [Reason.GPU_LOST]


def test_n48_without_a_driver_there_are_no_devices_and_no_conditions_of_it():
    snapshot = snapshot_of(driver=Failure(Reason.DRIVER_NOT_LOADED, "load it"), allocations=allocated(given("a", U1)))
    assert snapshot.devices == snapshot.containers == ()
    assert snapshot.driver is None
    assert Condition.OVER_ATTRIBUTED not in snapshot.conditions


def test_n73_graphics_memory_is_memory():
    snapshot = snapshot_of(gpu(lists(graphics=rows((11, GIB)))), places={11: in_pod("a")}, names=AB)
    assert used_by_pod(snapshot) == {"a": GIB}
    assert snapshot.containers[0].processes[ListKind.GRAPHICS] == 1


def test_b06_k15_two_slots_of_one_gpu_are_one_value_and_two_slots():
    replicas = [f"{U1}::{n}" for n in range(48)]
    snapshot = snapshot_of(
        gpu(lists(rows((11, 10056 * MIB)))),
        places={11: in_pod("a")},
        names=AB,
        allocations=allocated(given("a", replicas[5], replicas[19]), advertised=replicas),
    )
    (state,) = snapshot.containers
    assert (state.used, state.slots, state.share) == (10056 * MIB, 2, 2 / 48)
    assert only_domain(snapshot).slots == {"nvidia.com/gpu": 48}


def test_b12_two_containers_of_one_pod_have_their_own_values():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, 2 * GIB)))),
        places={11: in_pod("p", "c1"), 12: in_pod("p", "c2")},
        names=names_of("p/c1", "p/c2"),
        allocations=allocated(given("p", f"{U1}::0", container="c1"), given("p", f"{U1}::1", container="c2")),
    )
    assert used_by_pod(snapshot) == {"p/c1": GIB, "p/c2": 2 * GIB}


def test_b14_b74_gpus_without_pods_keep_their_series():
    devices = [gpu(index=n, uuid=f"GPU-{n}") for n in range(8)]
    snapshot = snapshot_of(*devices, names=AB, allocations=allocated(given("a", "GPU-0"), given("b", "GPU-1")))
    assert [device.domains[0].capacity is not None for device in snapshot.devices] == [True] * 8


def test_b18_a_known_container_whose_processes_ended_uses_zero():
    snapshot = snapshot_of(gpu(), names=AB, allocations=allocated(given("a", U1)))
    (state,) = snapshot.containers
    assert (state.used, sum(state.processes.values()), state.allocated) == (0, 0, True)


def test_b23_processes_of_one_container_add_up():
    found = lists(rows((11, 324 * MIB), (12, 324 * MIB), (13, 324 * MIB)))
    snapshot = snapshot_of(gpu(found), places=dict.fromkeys((11, 12, 13), in_pod("a")), names=AB)
    assert used_by_pod(snapshot) == {"a": 972 * MIB}


def test_k17_b41_use_without_allocation_is_attributed_and_marked():
    snapshot = snapshot_of(gpu(lists(rows((11, 2 * GIB)))), places={11: in_pod("a")}, names=AB)
    (state,) = snapshot.containers
    assert (state.used, state.allocated, state.slots, state.share) == (2 * GIB, False, None, None)


def test_b48_b43_an_allocated_device_that_is_not_there_is_a_condition():
    snapshot = snapshot_of(gpu(), names=AB, allocations=allocated(given("a", "GPU-old"), given("b", "0000:65:00.0")))
    assert snapshot.containers == ()
    assert snapshot.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]


def test_b49_all_means_every_gpu():
    snapshot = snapshot_of(gpu(), gpu(index=1, uuid=U2), names=AB, allocations=allocated(given("a", "all")))
    assert used_by_pod(snapshot, U1) == used_by_pod(snapshot, U2) == {"a": 0}


def test_b122_four_quarters_make_one_gpu():
    replicas = [f"{U1}::{n}" for n in range(4)]
    snapshot = snapshot_of(
        gpu(),
        names=names_of(*(f"p{n}/main" for n in range(4))),
        allocations=allocated(*(given(f"p{n}", replicas[n]) for n in range(4)), advertised=replicas),
    )
    assert [state.share for state in snapshot.containers] == [0.25] * 4


def test_without_the_kubelet_allocation_is_unknown_and_use_stays():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB)))),
        places={11: in_pod("a")},
        names=AB,
        allocations=Failure(Reason.SOCKET_MISSING, "mount it"),
    )
    (state,) = snapshot.containers
    assert (state.used, state.allocated, state.slots, state.share) == (GIB, None, None, None)
    assert only_domain(snapshot).slots == {}


def test_compute_instances_of_one_gpu_instance_are_one_domain():
    shared = memory(used=22 * MIB, total=70 * GIB, reserved=0)
    domain = DomainReading(2, shared, lists(rows((11, 10 * MIB), (12, 8 * MIB))))
    migs = [MigDevice("MIG-x", 2, 0, "1c.4g.71gb"), MigDevice("MIG-y", 2, 1, "1c.4g.71gb")]
    snapshot = snapshot_of(
        mig_gpu([domain], migs, uuid=U3),
        places={11: in_pod("a"), 12: in_pod("b")},
        names=AB,
        allocations=allocated(given("a", "MIG-x"), given("b", "MIG-y"), advertised=["MIG-x", "MIG-y"]),
    )
    assert only_domain(snapshot).capacity == 70 * GIB
    assert only_domain(snapshot).key.gpu_instance == "2"
    assert {state.name.pod: (state.used, state.share) for state in snapshot.containers} == {
        "a": (10 * MIB, 0.5),
        "b": (8 * MIB, 0.5),
    }


def test_unnamed_containers_without_any_source_of_names():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, GIB)))),
        places={11: Place(ContainerRef("u1", "a" * 64)), 12: Place(ContainerRef("u1"))},
        names=PodNames({}, {}),
    )
    assert [state.name for state in snapshot.containers] == [
        ContainerName("", "u1", ""),
        ContainerName("", "u1", "a" * 12),
    ]


def test_k01_k02_b34_b19_a_finished_pod_that_the_kubelet_still_lists_holds_nothing():
    snapshot = snapshot_of(
        gpu(lists(rows((12, GIB)))),
        places={12: in_pod("b")},
        names=AB,
        allocations=allocated(given("a", U1), given("b", U1), advertised=[U1]),
        live=LivePods(frozenset({uid("b")})),
    )
    (state,) = snapshot.containers
    assert (state.name.pod, state.used, state.allocated, state.share) == ("b", GIB, True, 1.0)


@pytest.mark.parametrize("unknown", ["names", "cgroups", "pod"])
def test_nobody_is_taken_for_finished_who_may_be_running(unknown):
    snapshot = snapshot_of(
        gpu(),
        names=Failure(Reason.MISSING, "") if unknown == "names" else names_of("b/main") if unknown == "pod" else AB,
        allocations=allocated(given("a", U1)),
        live=None if unknown == "cgroups" else LivePods(frozenset({uid("b")})),
    )
    assert [state.name.pod for state in snapshot.containers] == ["a"]


def test_a_pod_that_was_replaced_under_its_name_is_running():
    names = PodNames({"old": ("ns", "a"), "new": ("ns", "a")}, {})
    snapshot = snapshot_of(gpu(), names=names, allocations=allocated(given("a", U1)), live=LivePods(frozenset({"new"})))
    assert [state.name.pod for state in snapshot.containers] == ["a"]


def _reserved(pod, *ids):
    return replace(given(pod, *ids), reserves=True)


def test_a_schedulers_reservation_pod_is_no_consumer_and_its_tenants_are_no_thieves():
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, 2 * GIB)))),
        gpu(lists(rows((13, GIB))), index=1, uuid=U2),
        places={11: in_pod("a"), 12: in_pod("b"), 13: in_pod("b")},
        names=AB,
        allocations=allocated(_reserved("gpu-reservation-1", U1), advertised=[U1, U2]),
    )
    assert used_by_pod(snapshot, U1) == {"a": GIB, "b": 2 * GIB}
    allocation = {(state.domain.gpu_uuid, state.name.pod): state.allocated for state in snapshot.containers}
    assert allocation == {(U1, "a"): None, (U1, "b"): None, (U2, "b"): False}
    assert snapshot.devices[0].domains[0].tenants == (1, Isolation.NONE)


def _labelled(pod, labels):
    return Pod(uid(pod), "ns", pod, labels=labels)


def test_the_pods_of_a_reservations_group_are_given_the_gpu_and_others_are_not():
    pods = [
        _labelled("gpu-reservation-1", {"runai-gpu-group": "g1"}),
        _labelled("a", {"runai-gpu-group": "g1"}),
        _labelled("b", {"runai-gpu-group/g0": "x", "runai-gpu-group/g1": "x"}),
        _labelled("c", {"runai-gpu-group": "g2"}),
    ]
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, GIB), (13, GIB), (14, GIB)))),
        places={11: in_pod("a"), 12: in_pod("b"), 13: in_pod("c"), 14: in_pod("a", server=True)},
        names=names_of("a/main", "b/main", "c/main"),
        allocations=allocated(_reserved("gpu-reservation-1", U1), advertised=[U1]),
        pods=pods,
    )
    assert {state.name.pod: state.allocated for state in snapshot.containers} == {"a": True, "b": True, "c": False}
    assert used_by_pod(snapshot)["a"] == 2 * GIB  # a tenant that calls itself the MPS server is billed all the same


def test_a_pod_outside_the_schedulers_namespace_is_no_reservation_whatever_its_labels():
    pods = [_labelled("a", {"runai-gpu-group": "g1"}), _labelled("b", {"runai-gpu-group": "g1"})]
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB), (12, GIB)))),
        places={11: in_pod("a"), 12: in_pod("b")},
        names=AB,
        allocations=allocated(given("a", U1)),
        pods=pods,
    )
    assert {state.name.pod: state.allocated for state in snapshot.containers} == {"a": True, "b": False}


@pytest.mark.parametrize(
    ("ids", "advertised", "tenants"),
    [
        ([[U1]], [U1], (1, Isolation.EXCLUSIVE)),
        ([], [U1], (0, Isolation.EXCLUSIVE)),
        ([[f"{U1}::0"]], [f"{U1}::0", f"{U1}::1"], (1, Isolation.NONE)),
        ([[f"{U1}::0"], [f"{U1}::1"]], [f"{U1}::0", f"{U1}::1"], (2, Isolation.NONE)),
    ],
)
def test_tenants_of_a_gpu_and_what_is_between_them(ids, advertised, tenants):
    given_to = [replace(given("a", *held), name=ContainerName(f"team-{n}", "a", "main")) for n, held in enumerate(ids)]
    snapshot = snapshot_of(gpu(), names=AB, allocations=allocated(*given_to, advertised=advertised))
    assert only_domain(snapshot).tenants == tenants


def test_a_second_user_of_an_exclusive_gpu_is_a_tenant_without_isolation():
    snapshot = snapshot_of(
        gpu(lists(rows((12, GIB)))),
        places={12: in_pod("b")},
        names=AB,
        allocations=allocated(replace(given("a", U1), name=ContainerName("other", "a", "main")), advertised=[U1]),
    )
    assert only_domain(snapshot).tenants == (2, Isolation.NONE)


@pytest.mark.parametrize(
    ("migs", "isolation"),
    [(["MIG-x"], Isolation.HARDWARE), (["MIG-x", "MIG-y"], Isolation.NONE), (["MIG-x::0", "MIG-x::1"], Isolation.NONE)],
)
def test_tenants_of_a_gpu_instance(migs, isolation):
    devices = [MigDevice(uuid, 2, n, "") for n, uuid in enumerate(dict.fromkeys(m.partition("::")[0] for m in migs))]
    snapshot = snapshot_of(
        mig_gpu([DomainReading(2, memory(used=0), lists())], devices),
        names=AB,
        allocations=allocated(given("a", migs[0]), advertised=migs),
    )
    assert only_domain(snapshot).tenants == (1, isolation)


def test_tenants_are_not_counted_where_one_has_no_name():
    snapshot = snapshot_of(gpu(lists(rows((11, GIB)))), places={11: in_pod("nobody")}, names=AB)
    assert only_domain(snapshot).tenants is None
