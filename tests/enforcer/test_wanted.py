"""From pods, policy and what is held to caps on GPUs; and from readings to what the plan sees."""

from dataclasses import replace

import pytest

from enforcer.model import CapKey, Level, PodId, Records
from enforcer.observed import levels_wanted, running, seen
from enforcer.wanted import GATE, gpu_of, wanted
from exporter.attribution import attribute
from exporter.caps.book import Caps
from exporter.caps.policy import Policy, Rule
from exporter.caps.requests import Reaction
from exporter.caps_read_back import LimitReadings, with_limits
from exporter.errors import Failure, Reason
from exporter.model import (
    Backend,
    CgroupMemory,
    ContainerKind,
    ContainerMemory,
    ContainerName,
    ContainerRef,
    DomainReading,
    DriverReading,
    LimitReading,
    LivePods,
    MigDevice,
    MpsClient,
    MpsDaemon,
    MpsReading,
    MpsServer,
    Pod,
    PodContainer,
    PodNames,
    ProcessReading,
    Reading,
    ServerStatus,
)
from exporter.readings import Readings
from tests.builders import GIB, MIB, U1, U2, allocated, given, gpu, in_pod, lists, memory, mig_gpu, rows, uid

LIMIT = "nvidia.com/container.main.gpu-memory.limit"


def pod(name, annotations=None, *, containers=("main",), phase="Running", gate=False, **more):
    declared = [PodContainer(container, ids=(f"{name}/{container}",)) for container in containers]
    if gate:
        declared.insert(0, PodContainer(GATE, ContainerKind.INIT))
    return Pod(uid(name), "ns", name, annotations=annotations or {}, containers=tuple(declared), phase=phase, **more)


def readings(*pods, devices=None, places=None, allocations=None, stale=None, policy=None, mps=None):
    names = PodNames(
        {found.uid: (found.namespace, found.name) for found in pods},
        {
            container_id: ContainerName(found.namespace, found.name, container.name)
            for found in pods
            for container in found.containers
            for container_id in container.ids
        },
        {found.cgroup_uid: found for found in pods},
        stale,
    )
    return Readings(
        driver=Reading("nvml", DriverReading("615.71.09", "13.4", tuple(devices or (gpu(),)))),
        processes=Reading("procfs", ProcessReading(places or {})),
        names=Reading("pods", names),
        allocations=Reading("kubelet", allocations or allocated()),
        live=Reading("cgroups", LivePods(frozenset(found.uid for found in pods))),
        policy=policy,
        limits=LimitReadings(mps=Reading("mps", mps) if mps is not None else None),
    )


def snapshot_of(found):
    joined = attribute(
        driver=found.driver,
        processes=found.processes,
        names=found.names,
        allocations=found.allocations,
        live=found.live,
        timestamp=1.0,
        monotonic=1.0,
    )
    return with_limits(joined, found.limits, names=found.names.value, seen=found.containers)


def caps_of(found, *, policy=None):
    snapshot = snapshot_of(found)
    book = Caps(policy=policy or Policy()).of(found.pods)
    return wanted(found.pods, book, snapshot), snapshot


def held(*pods):
    return allocated(*(given(name, f"{U1}::{n}") for n, name in enumerate(pods)), advertised=[f"{U1}::0"])


def key(name, container="main", where=U1):
    return CapKey(PodId("ns", name, uid(name), uid(name)), container, where)


def test_a_cap_is_about_the_gpus_that_the_container_holds_or_uses():
    pods = (pod("a", {LIMIT: "2Gi"}), pod("b", {LIMIT: "3Gi"}), pod("c", {LIMIT: "4Gi"}))
    found = readings(
        *pods,
        devices=(gpu(lists(rows((7, GIB)))), gpu(index=1, uuid=U2)),
        places={7: in_pod("b")},
        allocations=held("a"),
    )
    caps, _ = caps_of(found)
    assert {cap.key: cap.limit for cap in caps.caps} == {key("a"): 2 * GIB, key("b"): 3 * GIB}


def test_a_scheduler_may_name_the_gpu_before_anything_runs_on_it():
    named = pod("a", {LIMIT: "2Gi", "nvidia.com/container.main.gpus.devices": U2})
    caps, _ = caps_of(readings(named, devices=(gpu(), gpu(index=1, uuid=U2))))
    assert [cap.key for cap in caps.caps] == [key("a", where=U2)]


def test_limits_are_whole_mebibytes_rounded_down():
    caps, _ = caps_of(readings(pod("a", {LIMIT: "10000000"}), allocations=held("a")))
    assert [cap.limit for cap in caps.caps] == [9 * MIB]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_are_over_want_nothing(phase):
    caps, _ = caps_of(readings(pod("a", {LIMIT: "2Gi"}, phase=phase), allocations=held("a")))
    assert (caps.caps, caps.pods) == ((), {})


def test_policy_decides_what_holds():
    policy = Policy(Rule(memory_ceiling=GIB, threads_default=30, reaction=Reaction.EVICT, harshest=Reaction.TERMINATE))
    caps, _ = caps_of(readings(pod("a", {LIMIT: "2Gi"}), pod("b"), allocations=held("a", "b")), policy=policy)
    assert {(cap.key.pod.name, cap.limit, cap.percentage, cap.reaction) for cap in caps.caps} == {
        ("a", GIB, 30, Reaction.TERMINATE),
        ("b", GIB, 30, Reaction.TERMINATE),
    }
    assert [note.change.value for note in caps.decided[key("a")].decision.notes] == [
        "memory_ceiling",
        "threads_default",
        "reaction",
    ]


def test_a_gate_is_an_init_container_of_that_name():
    pods = (pod("a", {LIMIT: "2Gi"}, gate=True), pod("b", gate=True), pod("c", containers=(GATE,)))
    caps, _ = caps_of(readings(*pods, allocations=held("a")))
    assert {found.name for found in caps.gated} == {"a", "b"}
    assert [cap.gated for cap in caps.caps] == [True]


def test_gpu_instances_are_places_of_their_own():
    domain = DomainReading(3, memory(used=GIB), lists(rows((7, GIB))))
    mig = mig_gpu([domain], [MigDevice("MIG-x", 3, 0)])
    found = readings(pod("a", {LIMIT: "2Gi"}), devices=(mig,), places={7: in_pod("a")})
    caps, snapshot = caps_of(found)
    assert [cap.key.gpu_uuid for cap in caps.caps] == [f"{U1}/3"] == [gpu_of(snapshot.containers[0].domain)]
    there = look(found, caps, snapshot)
    assert (there.gpus[f"{U1}/3"].mig, there.gpus[f"{U1}/3"].mps, there.gpus[f"{U1}/3"].cgroup) == (True, False, None)


# --- what is there ------------------------------------------------------------------------------------------------


def look(found, caps, snapshot, *, limits=None, places=frozenset(), records=None, without=frozenset()):
    return seen(
        caps,
        found,
        snapshot,
        memory=limits,
        places=places,
        records=records or Records(),
        starts={7: 50.0},
        without_cgroup=without,
        now=100.0,
    )


def test_levels_are_those_that_exist_with_what_is_told_of_them():
    found = readings(pod("a", {LIMIT: "2Gi"}), places={7: in_pod("a")}, devices=(gpu(lists(rows((7, GIB)))),))
    caps, snapshot = caps_of(found)
    main, whole = ContainerRef(uid("a"), "a/main"), ContainerRef(uid("a"))
    assert running(caps, found) == {(uid("a"), "main"): main}
    (refs,) = levels_wanted(caps, found, snapshot, Records()).values()
    assert refs == {main, whole}
    level = CgroupMemory(Backend.DMEM, GIB, None)
    told = {(main, U1): ContainerMemory(own=level, pod=level), (whole, U1): ContainerMemory(pod=level)}
    limits = LimitReading(told, backends={U1: Backend.DMEM})
    there = look(found, caps, snapshot, limits=limits, places=frozenset({main, whole}))
    assert there.levels == {Level(main, U1): level, Level(whole, U1): level}
    virgin = look(
        found, caps, snapshot, limits=LimitReading({}, backends={U1: Backend.MISC}), places=frozenset({main, whole})
    )
    assert virgin.levels == {Level(main, U1): None, Level(whole, U1): None}
    failed = LimitReading({(main, U1): Failure(Reason.TIMEOUT)}, backends={U1: Backend.MISC})
    assert look(found, caps, snapshot, limits=failed, places=frozenset({main})).levels == {}
    assert look(found, caps, snapshot, limits=None, places=frozenset({main})).levels == {}
    assert look(found, caps, snapshot, limits=limits, places=frozenset({main}), without=frozenset({U1})).levels == {}


def test_what_was_recorded_is_looked_at_again_even_without_a_cap():
    found = readings(pod("a"))
    caps, snapshot = caps_of(found)
    gone = ContainerRef("uid-of-gone", "x")
    (refs,) = levels_wanted(caps, found, snapshot, Records(limits={Level(gone, U1): None})).values()
    assert refs == {gone}


def test_pods_are_certain_only_when_heard_and_policy_is_read():
    found = readings(pod("a"))
    for changed, certain in (
        (found, True),
        (replace(found, names=Reading("pods", Failure(Reason.TIMEOUT))), False),
        (replace(found, names=Reading("pods", PodNames({}, {}))), False),
        (readings(pod("a"), stale=Failure(Reason.TIMEOUT)), False),
        (replace(found, policy=Reading("policy", Failure(Reason.MALFORMED))), False),
        (replace(found, policy=Reading("policy", Policy())), True),
    ):
        caps, snapshot = caps_of(found)
        assert (look(changed, caps, snapshot).pods is not None) is certain


def test_clients_are_told_by_container_and_start():
    server = MpsServer("s", 5, 0, ServerStatus.ACTIVE, (MpsClient(7), MpsClient(8)), devices=(U1,))
    mps = MpsReading({"/run/mps": MpsDaemon(2, servers=(server,)), "/run/wedged": Failure(Reason.DAEMON_WEDGED)})
    found = readings(
        pod("a", {LIMIT: "2Gi"}), places={7: in_pod("a")}, devices=(gpu(lists(mps=rows((7, GIB)))),), mps=mps
    )
    caps, snapshot = caps_of(found)
    there = look(found, caps, snapshot)
    assert there.clients == {7: (7, uid("a"), "main", 50.0)}
    assert set(there.daemons) == {"/run/mps"}
    assert there.holders == {(uid("a"), U1): frozenset({"main"})}


def test_gpus_before_volta_have_no_limits_in_mps():
    found = readings(pod("a"), devices=(gpu(capability=(6, 1)), gpu(index=1, uuid=U2, capability=(7, 0))))
    caps, snapshot = caps_of(found)
    there = look(found, caps, snapshot)
    assert {uuid: found.mps for uuid, found in there.gpus.items()} == {U1: False, U2: True}
