"""What Kubernetes and the pods' authors say, joined with what was measured."""

from fractions import Fraction

import pytest

from exporter.caps.book import Caps
from exporter.caps.policy import Policy, Rule
from exporter.caps.requests import Share
from exporter.description import described
from exporter.model import ContainerName, DomainReading, MigDevice, Owner, Pod, PodContainer
from tests.builders import (
    GIB,
    U1,
    U2,
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
    uid,
)

LIMIT = "nvidia.com/container.main.gpu-memory.limit"
REQUEST = "nvidia.com/container.main.gpu-memory.request"
DEVICES = "nvidia.com/container.main.gpus.devices"


def pod(name="a", annotations=None, *, labels=None, owners=(), pod_uid=None, phase="Running"):
    return Pod(
        pod_uid or uid(name),
        "ns",
        name,
        annotations=annotations or {},
        labels=labels or {},
        owners=owners,
        containers=(PodContainer("main"), PodContainer("side")),
        phase=phase,
        qos="Burstable",
        priority_class="high",
    )


def using(used=3 * GIB, **others):
    return snapshot_of(gpu(lists(rows((11, used)))), places={11: in_pod("a")}, names=names_of("a/main"), **others)


def caps(*pods, policy=None):
    return Caps(policy=policy or Policy()).of(pods)


def only(snapshot):
    (state,) = snapshot.containers
    return state


def test_a_cap_is_shown_beside_the_use():
    mine = pod(annotations={LIMIT: "2Gi", REQUEST: "1Gi"})
    state = only(described(using(), [mine], caps(mine)))
    assert (state.used, state.requested, state.limit) == (3 * GIB, GIB, 2 * GIB)


def test_a_share_is_one_of_the_device():
    mine = pod(annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"})
    state = only(described(using(), [mine], caps(mine)))
    assert (state.requested, state.limit) == (40 * GIB, 40 * GIB)


def test_a_pod_without_caps_is_as_it_was():
    assert only(described(using(), [pod()], caps(pod()))) == only(using())
    assert described(using(), [], caps()) == using()


def test_a_policys_default_is_a_limit_of_everybody():
    default = Policy(Rule(memory_default=Share(Fraction(1, 4))))
    state = only(described(using(), [pod()], caps(pod(), policy=default)))
    assert (state.requested, state.limit) == (None, 20 * GIB)


@pytest.mark.parametrize(("listed", "capped"), [(U1, {U1}), ("1", {U2}), ("all", {U1, U2}), (f"{U1},{U2}", {U1, U2})])
def test_a_request_that_names_devices_is_about_these(listed, capped):
    mine = pod(annotations={LIMIT: "2Gi", DEVICES: listed})
    both = snapshot_of(
        gpu(), gpu(index=1, uuid=U2), names=names_of("a/main"), allocations=allocated(given("a", U1, U2))
    )
    found = described(both, [mine], caps(mine))
    assert {state.domain.gpu_uuid for state in found.containers if state.limit == 2 * GIB} == capped


def test_a_request_that_names_a_mig_device_is_about_its_gpu_instance():
    mine = pod(annotations={LIMIT: "2Gi", DEVICES: "MIG-x"})
    domains = [DomainReading(number, memory(used=0, total=10 * GIB, reserved=0), lists()) for number in (1, 2)]
    snapshot = snapshot_of(
        mig_gpu(domains, [MigDevice("MIG-x", 1, 0), MigDevice("MIG-y", 2, 0)]),
        names=names_of("a/main"),
        allocations=allocated(given("a", "MIG-x", "MIG-y")),
    )
    found = described(snapshot, [mine], caps(mine))
    assert {state.domain.gpu_instance: state.limit for state in found.containers} == {"1": 2 * GIB, "2": None}


def test_errors_are_counted_by_container_and_reason():
    mine = pod(annotations={LIMIT: "2Gigs", "nvidia.com/container.nobody.gpu-memory.limit": "1Gi"})
    found = described(using(), [mine], caps(mine)).annotation_errors
    assert found[ContainerName("ns", "a", "main"), "malformed"] == 1
    assert found[ContainerName("ns", "a", ""), "unknown_container"] == 1


def test_pods_that_hold_no_gpu_are_not_described():
    assert [state.name for state in described(using(), [pod(), pod("b")], caps()).pods] == ["a"]


def test_a_pod_with_its_workload():
    mine = pod(owners=(Owner("StatefulSet", "db", controller=True),), labels={"team": "x"})
    (state,) = described(using(), [mine], caps(mine)).pods
    assert (state.uid, state.workload_kind, state.workload) == (uid("a"), "StatefulSet", "db")
    assert (state.priority_class, state.qos, state.labels) == ("high", "Burstable", {"team": "x"})


def test_of_two_pods_of_one_name_the_running_one_is_meant():
    old = pod(pod_uid="z-old", phase="Succeeded")
    new = pod(pod_uid="a-new")
    for pods in ([old, new], [new, old]):
        assert [state.uid for state in described(using(), pods, caps()).pods] == ["a-new"]


def test_reading_the_same_pods_again_gives_the_same_caps():
    mine = pod(annotations={LIMIT: "2Gi"})
    book = Caps(policy=Policy())
    assert book.of([mine]).pods == book.of([mine]).pods
    changed = pod(annotations={LIMIT: "3Gi"})
    assert only(described(using(), [changed], book.of([changed]))).limit == 3 * GIB


def test_without_a_readable_policy_nobody_has_a_cap_and_annotations_are_read_all_the_same():
    mine = pod(annotations={LIMIT: "2Gi", REQUEST: "1Gigs", "podgpu.io/job": "mine"})
    found = described(using(), [mine], Caps(policy=None).of([mine]))
    assert (only(found).requested, only(found).limit) == (None, None)
    assert found.annotation_errors[ContainerName("ns", "a", "main"), "malformed"] == 1
    assert (found.pods[0].workload_kind, found.pods[0].workload) == ("Job", "mine")
