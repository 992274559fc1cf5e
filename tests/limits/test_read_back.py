"""What was read of limits, joined with the containers of a snapshot."""

from dataclasses import replace

import pytest

from exporter.caps_read_back import LimitReadings, with_limits
from exporter.errors import Failure, Reason
from exporter.limited_containers import limited_containers
from exporter.model import (
    NO_NAMES,
    Backend,
    CapCondition,
    CgroupMemory,
    ClientEnvironment,
    Condition,
    ContainerMemory,
    ContainerName,
    ContainerRef,
    DriverReading,
    EnvironmentReading,
    FractionalContainer,
    FractioningReading,
    Isolation,
    LimitReading,
    Mechanism,
    MpsClient,
    MpsReading,
    NamespaceLease,
    PodNames,
    ProcessReading,
    Reading,
    ShareSource,
)
from exporter.naming import job_namespaces, name_of, refs_of
from tests.builders import (
    GIB,
    HOST,
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
)
from tests.limits.conftest import namespace, reading, server

A, B = ContainerRef(uid("a"), "a/main"), ContainerRef(uid("b"), "b/main")
NAMES = names_of("a/main", "b/main", "idle/main")
PLACES = {7: in_pod("a"), 8: in_pod("a"), 9: in_pod("b")}
CAP = 16 * GIB
PLAIN = EnvironmentReading(dict.fromkeys(PLACES, ClientEnvironment()))


@pytest.fixture
def base():
    """Two containers with clients on one GPU and an idle one, each with a cap."""
    found = snapshot_of(
        gpu(lists(mps=rows((7, 2 * GIB), (8, GIB), (9, 3 * GIB))), memory(used=7 * GIB)),
        places=PLACES,
        names=NAMES,
        allocations=allocated(
            *(given(pod, f"{U1}::{n}") for n, pod in enumerate("ab")), given("idle", f"{U1}::2"),
            advertised=[f"{U1}::{n}" for n in range(3)],
        ),
    )  # fmt: skip
    return replace(found, containers=tuple(replace(state, limit=CAP) for state in found.containers))


def joined(snapshot, *, mps=None, environments=PLAIN, limits=None, extra=None):
    readings = LimitReadings(
        Reading("mps", mps) if mps is not None else None,
        Reading("environ", environments) if mps is not None else None,
        Reading("memory_limits", limits) if limits is not None else None,
        Reading("fractioning", extra) if extra is not None else None,
    )
    return with_limits(snapshot, readings, names=NAMES, seen=[place.container for place in PLACES.values()])


def of(snapshot, pod):
    (found,) = [state for state in snapshot.containers if state.name.pod == pod]
    return found


JOB_A, JOB_B = job_namespaces(uid("a"), "main")[0], job_namespaces(uid("b"), "main")[0]
BOTH = [namespace("default", 1, 0.1), namespace(JOB_A, 8, 0.25), namespace(JOB_B, 16, 0.5)]


def test_each_container_gets_its_clients_shares_and_limits(base):
    members = [MpsClient(7, "0", JOB_A), MpsClient(8, "0", JOB_A), MpsClient(9, "0", JOB_B)]
    found = joined(base, mps=reading(server(*members, namespaces=BOTH)))
    a, b, idle = of(found, "a"), of(found, "b"), of(found, "idle")
    assert (a.mps_clients, b.mps_clients, idle.mps_clients) == (2, 1, 0)
    assert (a.mps_thread_ratio, a.mps_thread_source) == (0.25, ShareSource.NAMESPACE)
    assert (b.mps_thread_ratio, idle.mps_thread_ratio) == (0.5, None)
    assert a.applied == {Mechanism.MPS_NAMESPACE: 8 * GIB}
    assert (a.enforced, b.enforced, idle.enforced) == (True, True, None)
    assert found.mps == reading(server(*members, namespaces=BOTH)).daemons
    assert found.conditions[Condition.CLIENT_ENVIRONMENT_UNREADABLE] is False


def test_a_client_in_another_namespace_than_the_one_made_for_its_pod(base):
    found = joined(base, mps=reading(server(MpsClient(9, "0", "default"), namespaces=BOTH)))
    assert of(found, "b").cap_conditions == (CapCondition.OTHER_NAMESPACE,)
    assert of(found, "b").mps_thread_source is ShareSource.SERVER
    assert of(found, "a").cap_conditions == (CapCondition.OUTSIDE_MPS,)
    assert (of(found, "a").mps_clients, of(found, "a").enforced) == (0, False)


def test_others_may_have_made_the_namespace(base):
    foreign = [namespace("default", 1), namespace("kai_b", 16)]
    mps = reading(server(MpsClient(9, "0", "default"), namespaces=foreign))
    assert of(joined(base, mps=mps), "b").cap_conditions == ()
    lease = NamespaceLease("shared", "kai_b", "", 0.5, (U1,), released=False)
    leased = joined(base, mps=mps, extra=FractioningReading({}, {"b/main": lease}))
    assert of(leased, "b").cap_conditions == (CapCondition.OTHER_NAMESPACE,)
    released = FractioningReading({}, {"b/main": replace(lease, released=True)})
    assert of(joined(base, mps=mps, extra=released), "b").cap_conditions == ()


def test_the_environment_lowers_the_share_and_of_several_clients_the_largest_counts(base):
    members = [MpsClient(7, "0", JOB_A), MpsClient(8, "0", JOB_A)]
    mps = reading(server(*members, namespaces=BOTH))
    lowered = ClientEnvironment(percentage="20")
    one = EnvironmentReading({7: lowered, 8: ClientEnvironment()})
    assert of(joined(base, mps=mps, environments=one), "a").mps_thread_ratio == 0.25
    both = EnvironmentReading({7: lowered, 8: ClientEnvironment(percentage="10")})
    a = of(joined(base, mps=mps, environments=both), "a")
    assert (a.mps_thread_ratio, a.mps_thread_source) == (0.2, ShareSource.CLIENT_ENV)


def test_nothing_sets_a_share(base):
    mps = reading(server(MpsClient(9, "0", "j"), namespaces=[namespace("j")]))
    b = of(joined(base, mps=mps), "b")
    assert (b.mps_thread_ratio, b.mps_thread_source) == (1.0, ShareSource.DEFAULT)


def test_a_share_that_the_daemon_did_not_tell_is_absent(base):
    failed = replace(namespace("j"), ratio=Failure(Reason.MALFORMED))
    mps = reading(server(MpsClient(9, "0", "j"), namespaces=[failed]))
    assert of(joined(base, mps=mps), "b").mps_thread_ratio is None


def test_a_wedged_daemon_hides_only_those_who_are_seen_nowhere_else(base):
    mps = reading(server(MpsClient(9, "0", JOB_B), namespaces=BOTH))
    wedged = MpsReading({**mps.daemons, "/run/other": Failure(Reason.DAEMON_WEDGED, "no answer")})
    found = joined(base, mps=wedged)
    assert (of(found, "b").mps_clients, of(found, "b").enforced) == (1, True)
    assert (of(found, "a").mps_clients, of(found, "a").enforced) == (None, None)
    (state,) = [state for state in found.sources if state.source == "mps"]
    assert (state.failure, [problem.reason for problem in state.errors]) == (None, [Reason.DAEMON_WEDGED])


def test_daemons_that_could_not_be_asked_at_all_leave_everything_open(base):
    found = joined(base, mps=Failure(Reason.TIMEOUT, "mps"), environments=Failure(Reason.TIMEOUT, "environ"))
    assert {(state.enforced, state.mps_clients) for state in found.containers if state.pids} == {(None, None)}
    assert not found.mps
    assert Condition.CLIENT_ENVIRONMENT_UNREADABLE not in found.conditions


def test_an_unreadable_environment_is_a_condition_of_the_node(base):
    denied = EnvironmentReading({7: Failure(Reason.NO_PERMISSION), 9: Failure(Reason.EXITED)})
    mps = reading(server())
    assert joined(base, mps=mps, environments=denied).conditions[Condition.CLIENT_ENVIRONMENT_UNREADABLE] is True
    gone = EnvironmentReading({9: Failure(Reason.EXITED)})
    assert joined(base, mps=mps, environments=gone).conditions[Condition.CLIENT_ENVIRONMENT_UNREADABLE] is False


def test_another_agents_record_is_the_cap_of_a_pod_whose_annotations_are_not_known(base):
    plain = replace(base, containers=tuple(replace(state, limit=None) for state in base.containers))
    record = FractionalContainer("ns", "a", uid("a"), 5 * GIB, (U1,))
    found = joined(plain, extra=FractioningReading({"a/main": record}, {}))
    assert (of(found, "a").limit, of(found, "b").limit) == (5 * GIB, None)
    assert of(found, "a").cap_conditions == (CapCondition.LIMIT_MISSING,)
    for other in (replace(record, gpu_uuids=("GPU-x",)), replace(record, pod_uid="u"), replace(record, requested=None)):
        assert of(joined(plain, extra=FractioningReading({"a/main": other}, {})), "a").limit is None
    assert of(joined(base, extra=FractioningReading({"a/main": record}, {})), "a").limit == CAP
    broken = joined(plain, extra=FractioningReading({}, {}, (Failure(Reason.MALFORMED, "x"),)))
    assert [state.errors for state in broken.sources if state.source == "fractioning"]
    assert "fractioning" not in {state.source for state in joined(plain, extra=FractioningReading({}, {})).sources}


def limits(own=None, **containers):
    refs = {"a": A, "b": B, "idle": ContainerRef(uid("idle"), "idle/main")}
    return LimitReading({(refs[pod], U1): answer for pod, answer in containers.items()}, own)


def level(hard, charged=GIB, backend=Backend.DMEM):
    return CgroupMemory(backend, charged, hard)


def test_cgroups_say_what_is_charged_and_limited(base):
    found = joined(
        base,
        limits=limits(
            False,
            a=ContainerMemory(level(CAP, 3 * GIB), level(None, 3 * GIB)),
            b=ContainerMemory(level(None, 2 * GIB), level(None, 2 * GIB)),
            idle=ContainerMemory(level(CAP, 0), level(None, 0)),
        ),
    )
    a, b, idle = of(found, "a"), of(found, "b"), of(found, "idle")
    assert (a.charged, b.charged, idle.charged) == (3 * GIB, 2 * GIB, 0)
    assert (a.enforced, b.enforced, idle.enforced) == (True, False, True)
    assert (a.applied, b.applied) == ({Mechanism.CGROUP: CAP}, {})
    assert found.conditions[Condition.MEMORY_VIEW_LIMITED] is False


def test_what_the_pods_cgroup_is_charged_is_not_one_containers(base):
    pod = level(CAP, 5 * GIB, Backend.MISC)
    found = joined(base, limits=limits(a=ContainerMemory(None, pod, shared=True), b=ContainerMemory(None, pod)))
    assert (of(found, "a").charged, of(found, "b").charged) == (None, 5 * GIB)
    assert of(found, "a").applied == {Mechanism.CGROUP: CAP}


def test_every_cap_that_holds_is_isolation_of_memory(base):
    whole = ContainerMemory(level(CAP), level(None))
    assert only_domain(base).tenants == (1, Isolation.NONE)
    assert only_domain(joined(base, limits=limits(a=whole, b=whole, idle=whole))).tenants == (1, Isolation.MEMORY)
    assert only_domain(joined(base, limits=limits(a=whole, b=whole))).tenants == (1, Isolation.NONE)


def test_a_limited_exporter_may_not_see_all_memory(base):
    assert joined(base, limits=limits(True)).conditions[Condition.MEMORY_VIEW_LIMITED] is True
    assert Condition.MEMORY_VIEW_LIMITED not in joined(replace(base, conditions={}), limits=limits(None)).conditions


def test_a_driver_without_such_limits_is_no_failing_source(base):
    found = joined(base, limits=Failure(Reason.NOT_SUPPORTED, "driver 580"))
    assert "memory_limits" not in {state.source for state in found.sources}
    assert of(found, "a").cap_conditions == (CapCondition.LIMIT_MISSING,)
    failing = joined(base, limits=Failure(Reason.TIMEOUT, "no answer"))
    assert "memory_limits" in {state.source for state in failing.sources}
    assert (of(failing, "a").enforced, of(failing, "a").cap_conditions) == (None, (CapCondition.LIMIT_UNKNOWN,))


def test_without_any_mechanism_a_cap_with_processes_does_not_hold(base):
    found = joined(base)
    assert (of(found, "a").enforced, of(found, "a").cap_conditions) == (False, (CapCondition.LIMIT_MISSING,))
    assert of(found, "idle").enforced is None
    uncapped = replace(base, containers=tuple(replace(state, limit=None) for state in base.containers))
    assert joined(uncapped).containers == uncapped.containers


# --- names and pairs ----------------------------------------------------------------------------------------------


def test_a_container_that_runs_is_known_by_the_id_of_its_processes():
    names = PodNames(
        {uid("a"): ("ns", "a")},
        {"old": ContainerName("ns", "a", "main"), "new": ContainerName("ns", "a", "main")},
    )
    name = ContainerName("ns", "a", "main")
    assert refs_of([name], [ContainerRef(uid("a"), "new")], names) == {name: {ContainerRef(uid("a"), "new")}}
    assert refs_of([name], [], names)[name] == {ContainerRef(uid("a"), "new"), ContainerRef(uid("a"), "old")}
    assert name_of(ContainerRef(uid("a"), "unheard"), names) == ContainerName("ns", "a", "")
    assert refs_of([ContainerName("ns", "nobody", "x")], [], NO_NAMES) == {}


def test_job_namespaces_are_names_that_the_daemon_takes():
    pod, container = job_namespaces("4a163a05-439d-484b-8e53-2968bc15824f", "Ugly.Name-\u00e9")
    assert pod == "j_4a163a05_439d_484b_8e53_2968bc15824f"
    assert container.startswith(pod + "_")
    assert all(
        len(name) <= 64 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_") for name in (pod, container)
    )
    assert container != job_namespaces("4a163a05-439d-484b-8e53-2968bc15824f", "other")[1]


def test_limits_are_asked_for_processes_and_for_idle_holders_but_not_under_mig(base):
    whole = gpu(lists(compute=rows((7, GIB), (5, GIB)), mps=rows((9, GIB))))
    driver = DriverReading("615.71.09", "13.4", (whole, mig_gpu([], [], index=1, uuid="GPU-mig")))
    idle = [state for state in base.containers if state.name.pod == "idle"]
    places = ProcessReading({**PLACES, 5: HOST})
    found = limited_containers(driver, places, idle=idle, names=NAMES)
    assert found == {whole.device: {A, B, ContainerRef(uid("idle"), "idle/main")}}
    assert limited_containers(None, places, idle=idle, names=NAMES) == {}
    assert limited_containers(driver, None, idle=idle, names=NAMES) == {}
