"""Allocations that other programs lost or doubled: from a real socket to the containers of the snapshot."""

import pytest

from exporter.model import Condition, ContainerName, DomainReading, LivePods, MigDevice
from exporter.sources.kubelet import KubeletSource
from tests.builders import GIB, gpu, in_pod, lists, memory, mig_gpu, names_of, rows, snapshot_of, used_by_pod

UUIDS = [f"GPU-{n:08d}-0000-0000-0000-000000000000" for n in range(8)]
MIG = "MIG-33333333-3333-3333-3333-333333333333"


@pytest.fixture
def source(node):
    source = KubeletSource(node.socket, deadline=20)
    yield source
    source.close()


def pod(name, *ids, resource="nvidia.com/gpu", container="main"):
    devices = [{"resource": resource, "ids": list(ids)}]
    return {"namespace": "ns", "name": name, "containers": [{"name": container, "devices": devices}]}


def held(snapshot):
    """Slots by pod and GPU instance."""
    return {(state.name.pod, state.domain.gpu_instance): state.slots for state in snapshot.containers}


def read(source):
    value = source.read().value
    assert value is not None
    return value


def test_b04_a_renamed_resource_is_mapped_as_the_original_is(node, source):
    node.says(
        pods=[
            pod("a", f"{UUIDS[0]}::3", resource="nvidia.com/gpu.shared"),
            pod("b", f"{MIG}::0", resource="nvidia.com/mig-1g.5gb.shared"),
        ]
    )
    domain = DomainReading(7, memory(used=0, total=5 * GIB, reserved=0), lists())
    sliced = mig_gpu([domain], [MigDevice(MIG, 7, 0, "1g.5gb")], index=1, uuid=UUIDS[1])
    snapshot = snapshot_of(gpu(uuid=UUIDS[0]), sliced, names=names_of("a/main", "b/main"), allocations=read(source))
    assert held(snapshot) == {("a", ""): 1, ("b", "7"): 1}


def test_b05_replicas_are_their_gpu_and_odd_suffixes_are_counted_as_unknown(node, source):
    odd = [f"{UUIDS[0]}::1::2", f"{UUIDS[0]}::x", f"{UUIDS[0]}::"]
    node.says(pods=[pod("a", f"{UUIDS[0]}::0"), pod("b", f"{UUIDS[0]}::1"), pod("c", *odd)])
    snapshot = snapshot_of(gpu(uuid=UUIDS[0]), names=names_of("a/main"), allocations=read(source))
    assert held(snapshot) == {("a", ""): 1, ("b", ""): 1}
    assert snapshot.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]


def test_b24_a_pod_with_whole_gpus_has_the_series_of_one_with_shares(node, source):
    node.says(pods=[pod("a", *UUIDS)], allocatable={"devices": [{"resource": "nvidia.com/gpu", "ids": UUIDS}]})
    devices = [gpu(lists(rows((11, n * GIB))), index=n, uuid=uuid) for n, uuid in enumerate(UUIDS)]
    snapshot = snapshot_of(*devices, places={11: in_pod("a")}, names=names_of("a/main"), allocations=read(source))
    assert [(state.used, state.allocated, state.share) for state in snapshot.containers] == [
        (n * GIB, True, 1.0) for n in range(8)
    ]


def test_b36_n34_a_sidecar_that_is_an_init_container_has_its_own_series(node, source):
    node.says(
        pods=[
            {
                "namespace": "ns",
                "name": "a",
                "containers": [
                    {"name": "proxy", "devices": [{"resource": "nvidia.com/gpu", "ids": [UUIDS[0]]}]},
                    {"name": "main"},
                ],
            }
        ]
    )
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB))), uuid=UUIDS[0]),
        places={11: in_pod("a", "proxy")},
        names=names_of("a/proxy", "a/main"),
        allocations=read(source),
    )
    (state,) = snapshot.containers
    assert (state.name, state.used, state.allocated) == (ContainerName("ns", "a", "proxy"), GIB, True)


def test_b48_an_assignment_of_a_gpu_that_was_replaced_is_counted_until_the_plugin_registers(node, source):
    devices = gpu(lists(rows((11, GIB))), uuid=UUIDS[1])
    others = {"places": {11: in_pod("a")}, "names": names_of("a/main")}
    node.says(pods=[pod("a", UUIDS[0])], allocatable={})
    snapshot = snapshot_of(devices, **others, allocations=read(source))
    assert snapshot.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]
    assert [(state.used, state.allocated, state.share) for state in snapshot.containers] == [(GIB, False, None)]
    node.says(pods=[pod("a", UUIDS[1])], allocatable={"devices": [{"resource": "nvidia.com/gpu", "ids": [UUIDS[1]]}]})
    snapshot = snapshot_of(devices, **others, allocations=read(source))
    assert not snapshot.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]
    assert [(state.used, state.allocated, state.share) for state in snapshot.containers] == [(GIB, True, 1.0)]


@pytest.mark.parametrize("resource", ["nvidia.com/GA102GL_A10", "nvidia.com/gpu"])
def test_b43_b123_a_gpu_passed_to_a_virtual_machine_is_counted_and_invents_nothing(node, source, resource):
    node.says(pods=[pod("vm", "0000:3b:00.0", resource=resource)])
    snapshot = snapshot_of(gpu(uuid=UUIDS[0]), names=names_of("vm/main"), allocations=read(source))
    assert snapshot.containers == ()
    assert snapshot.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]


def test_k01_k02_b34_of_two_owners_of_an_exclusive_gpu_the_finished_one_is_none(node, source):
    node.says(
        pods=[pod("finished", UUIDS[0]), pod("running", UUIDS[0])],
        allocatable={"devices": [{"resource": "nvidia.com/gpu", "ids": [UUIDS[0]]}]},
    )
    snapshot = snapshot_of(
        gpu(lists(rows((12, GIB))), uuid=UUIDS[0]),
        places={12: in_pod("running")},
        names=names_of("finished/main", "running/main"),
        allocations=read(source),
        live=LivePods(frozenset({"uid-of-running"})),
    )
    assert used_by_pod(snapshot, UUIDS[0]) == {"running": GIB}
