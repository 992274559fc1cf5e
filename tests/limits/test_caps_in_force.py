"""Whether a cap holds: each documented way in which one silently does not must be seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.caps_in_force import Evidence, applied, verdict
from exporter.errors import Failure, Reason
from exporter.memberships import Memberships
from exporter.model import (
    Backend,
    CapCondition,
    CgroupMemory,
    ClientEnvironment,
    ContainerMemory,
    Mechanism,
    MpsClient,
    MpsReading,
    PinnedLimit,
)
from tests.builders import GIB, MIB, U1, U2
from tests.limits.conftest import NOTHING_SET, namespace, reading, server

CAP = 16 * GIB
WEDGED = Failure(Reason.DAEMON_WEDGED, "no answer")


def holds(evidence, cap=CAP):
    found = verdict(evidence, cap)
    return found.enforced, set(found.conditions)


# --- MPS namespaces -----------------------------------------------------------------------------------------------


def test_every_process_in_its_limited_namespace_holds(v3):
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)], own={"j_a"})
    assert holds(evidence) == (True, set())
    assert applied(evidence) == {Mechanism.MPS_NAMESPACE: 16 * GIB}


def test_a_process_outside_mps_is_not_held_by_it(v3):
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)], pids=(7, 8))
    assert holds(evidence) == (False, {CapCondition.OUTSIDE_MPS})
    assert applied(evidence) == {}


def test_a_client_in_the_default_namespace_is_not_in_its_own(v3):
    evidence = v3({7: "default"}, [namespace("j_a", 16), namespace("default", 16)], own={"j_a"})
    assert holds(evidence) == (False, {CapCondition.OTHER_NAMESPACE})
    assert applied(evidence) == {Mechanism.MPS_SERVER: 16 * GIB}


def test_a_named_namespace_without_a_limit_gives_the_whole_gpu(v3):
    evidence = v3({7: "j_a"}, [namespace("j_a"), namespace("default", 1)])
    assert holds(evidence) == (False, {CapCondition.LIMIT_MISSING})
    assert applied(evidence) == {}


def test_a_limit_above_the_cap(v3):
    assert holds(v3({7: "j_a"}, [namespace("j_a", 17)])) == (False, {CapCondition.LIMIT_ABOVE_CAP})


def test_a_limit_below_the_cap_holds_it(v3):
    assert holds(v3({7: "j_a"}, [namespace("j_a", 12)])) == (True, set())


def test_limits_are_per_client_and_add_up(v3):
    evidence = v3({7: "j_a", 8: "j_a"}, [namespace("j_a", 16)])
    assert holds(evidence) == (False, {CapCondition.SEVERAL_CLIENTS})
    assert holds(evidence, cap=32 * GIB) == (True, set())
    assert applied(evidence) == {Mechanism.MPS_NAMESPACE: 16 * GIB}


def test_memory_above_the_cap_shows_that_it_did_not_hold(v3):
    assert holds(v3({7: "j_a"}, [namespace("j_a", 16)], used=CAP + 1)) == (False, {CapCondition.ABOVE_CAP})


def test_a_namespace_that_the_list_does_not_have_is_unknown(v3):
    assert holds(v3({7: "j_b"}, [namespace("j_a", 16)])) == (None, {CapCondition.LIMIT_UNKNOWN})


def test_a_wedged_daemon_may_have_the_process_as_client(v3):
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)], pids=(7, 8), broken=WEDGED)
    assert holds(evidence) == (None, {CapCondition.LIMIT_UNKNOWN})


def test_a_wedged_daemon_costs_nobody_who_is_seen_elsewhere(v3):
    assert holds(v3({7: "j_a"}, [namespace("j_a", 16)], broken=WEDGED)) == (True, set())


def test_a_pid_that_two_servers_claim_is_nobodys():
    client = MpsClient(7, "0", "default")
    twice = reading(
        server(client, namespaces=[namespace("default", 16)]),
        server(client, namespaces=[namespace("default", 16)], name="second"),
    )
    evidence = Evidence(U1, (7,), GIB, Memberships(twice), {7: NOTHING_SET})
    assert holds(evidence) == (None, {CapCondition.LIMIT_UNKNOWN})


# --- the client's own variables -----------------------------------------------------------------------------------


def test_a_variable_that_names_an_invisible_gpu_voids_the_namespaces_limit(v3):
    environment = ClientEnvironment(pinned="0=2G,1=4G")
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)], environments={7: environment})
    assert holds(evidence) == (False, {CapCondition.VARIABLE_VOIDS_LIMIT})


def test_an_environment_that_cant_be_read_may_void_the_limit(v3):
    denied = Failure(Reason.NO_PERMISSION)
    for environments in ({7: denied}, {}):
        evidence = v3({7: "j_a"}, [namespace("j_a", 16)], environments=environments)
        assert holds(evidence) == (None, {CapCondition.ENVIRONMENT_UNREADABLE})


def test_a_variable_alone_proves_nothing(v3):
    environment = ClientEnvironment(pinned="0=8G")
    evidence = v3({7: "j_a"}, [namespace("j_a")], environments={7: environment})
    assert holds(evidence) == (False, {CapCondition.LIMIT_MISSING})
    assert applied(evidence) == {Mechanism.CLIENT_ENV: 8 * GIB}


def test_both_limits_are_shown(v3):
    environments = {7: ClientEnvironment(pinned="0=8G")}
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)], environments=environments)
    assert applied(evidence) == {Mechanism.MPS_NAMESPACE: 16 * GIB, Mechanism.CLIENT_ENV: 8 * GIB}


# --- protocol 2 ---------------------------------------------------------------------------------------------------


def test_a_client_that_is_known_to_have_connected_under_the_limit(v2):
    evidence = v2({7: 16})
    assert holds(evidence) == (True, set())
    assert applied(evidence) == {Mechanism.MPS_SERVER: 16 * GIB}


def test_a_client_that_connected_without_a_limit(v2):
    assert holds(v2({7: 0}, pinned={0: PinnedLimit.exactly(CAP)})) == (False, {CapCondition.LIMIT_MISSING})


def test_the_servers_present_limit_proves_nothing_of_a_client_that_is_there(v2):
    evidence = v2({7: None}, pinned={0: PinnedLimit.exactly(CAP)})
    assert holds(evidence) == (None, {CapCondition.LIMIT_UNPROVEN})
    assert applied(evidence) == {Mechanism.MPS_SERVER: CAP}


def test_a_truncated_reading_is_no_proof_even_where_it_fits(v2):
    evidence = v2({7: None}, pinned={0: PinnedLimit(4 * GIB, 5 * GIB)})
    assert holds(evidence, cap=4606 * MIB) == (None, {CapCondition.LIMIT_UNPROVEN})


@pytest.mark.parametrize("now", [None, PinnedLimit.exactly(CAP + MIB)])
def test_nor_does_it_disprove_a_cap(v2, now):
    evidence = v2({7: None}, pinned={0: now})  # the client may have come while another limit was set
    assert holds(evidence) == (None, {CapCondition.LIMIT_UNPROVEN})


@pytest.mark.parametrize(("pinned", "devices"), [({}, (U1,)), ({0: None}, None), ({0: None}, (U2,)), (WEDGED, (U1,))])
def test_an_ordinal_that_cant_be_told_is_unknown(v2, pinned, devices):
    assert holds(v2({7: None}, pinned=pinned, devices=devices)) == (None, {CapCondition.LIMIT_UNKNOWN})


# --- control groups -----------------------------------------------------------------------------------------------


def dmem(hard, charged=GIB):
    return CgroupMemory(Backend.DMEM, charged, hard)


def misc(hard, charged=GIB):
    return CgroupMemory(Backend.MISC, charged, hard)


def test_a_cgroups_limit_holds_all_processes_whether_in_mps_or_not(bare):
    evidence = bare(ContainerMemory(own=dmem(CAP)), pids=(7, 8, 9))
    assert holds(evidence) == (True, set())
    assert applied(evidence) == {Mechanism.CGROUP: CAP}


def test_a_cgroups_limit_holds_a_container_that_has_not_started_anything(bare):
    assert holds(bare(ContainerMemory(own=dmem(CAP)), pids=(), used=0)) == (True, set())


def test_the_kernels_limits_nest_and_the_drivers_do_not(bare):
    nested = ContainerMemory(own=dmem(20 * GIB), pod=dmem(CAP))
    assert applied(bare(nested)) == {Mechanism.CGROUP: CAP}
    assert holds(bare(nested)) == (True, set())
    flat = ContainerMemory(own=misc(20 * GIB), pod=misc(CAP))
    assert applied(bare(flat)) == {Mechanism.CGROUP: 20 * GIB}
    assert holds(bare(flat)) == (False, {CapCondition.LIMIT_ABOVE_CAP})


def test_a_limit_of_the_pod_alone(bare):
    for level in (dmem(CAP), misc(CAP)):
        assert holds(bare(ContainerMemory(own=None, pod=level))) == (True, set())
    assert holds(bare(ContainerMemory(own=dmem(None), pod=dmem(CAP)))) == (True, set())


def test_no_limit_anywhere(bare):
    for memory in (None, ContainerMemory(own=dmem(None), pod=dmem(None))):
        assert holds(bare(memory)) == (False, {CapCondition.LIMIT_MISSING})
        assert holds(bare(memory, pids=())) == (None, set())


def test_what_was_there_before_the_limit_is_not_charged_by_the_driver(bare):
    late = ContainerMemory(own=misc(CAP, charged=2 * GIB))
    assert holds(bare(late, used=9 * GIB)) == (False, {CapCondition.NOT_ALL_CHARGED})
    assert holds(bare(late, used=2 * GIB + 60 * MIB)) == (True, set())
    assert holds(bare(ContainerMemory(own=dmem(CAP, charged=2 * GIB)), used=9 * GIB)) == (True, set())


def test_a_limit_that_cant_be_read_is_unknown(bare):
    assert holds(bare(Failure(Reason.TIMEOUT))) == (None, {CapCondition.LIMIT_UNKNOWN})


def test_either_of_two_mechanisms_is_enough(v3):
    evidence = v3({7: "j_a"}, [namespace("j_a", 16)])
    for memory in (ContainerMemory(own=dmem(20 * GIB)), Failure(Reason.TIMEOUT)):
        both = Evidence(U1, (7,), GIB, evidence.memberships, evidence.environments, memory)
        assert holds(both) == (True, set())


def test_who_is_in_no_mps_is_judged_by_its_cgroup_alone(v3):
    evidence = v3({}, [], pids=(7,))
    limited = Evidence(U1, (7,), GIB, evidence.memberships, {}, ContainerMemory(own=dmem(20 * GIB)))
    assert holds(limited) == (False, {CapCondition.LIMIT_ABOVE_CAP})


# --- laws ---------------------------------------------------------------------------------------------------------

_GIB = st.one_of(st.none(), st.integers(1, 40))


@st.composite
def evidences(draw):
    namespaces = {name: draw(_GIB) for name in ("default", "j_a", "j_b")}
    pids = range(1, draw(st.integers(0, 4)) + 1)
    clients = [
        MpsClient(pid, "0", draw(st.sampled_from(("default", "j_a", "j_b")))) for pid in pids if draw(st.booleans())
    ]
    daemons = dict(reading(server(*clients, namespaces=[namespace(n, gib) for n, gib in namespaces.items()])).daemons)
    if draw(st.booleans()):
        daemons["/run/other"] = WEDGED
    own, pod = (draw(_GIB) for _ in range(2))
    backend = draw(st.sampled_from(Backend))
    memory = draw(
        st.sampled_from(
            (
                None,
                Failure(Reason.TIMEOUT),
                ContainerMemory(
                    own=CgroupMemory(backend, GIB, own * GIB if own else None),
                    pod=CgroupMemory(backend, GIB, pod * GIB if pod else None),
                ),
            )
        )
    )
    texts = st.sampled_from((None, "0=2G", "0=2G,1=3G", "junk", "1073741824"))
    environments = {pid: ClientEnvironment(pinned=draw(texts)) for pid in pids if draw(st.integers(0, 4))}
    used = draw(st.integers(0, 20)) * GIB
    return Evidence(U1, tuple(pids), used, Memberships(MpsReading(daemons)), environments, memory, held=(U1,))


@given(evidences(), st.integers(1, 40).map(lambda gib: gib * GIB))
def test_enforced_is_said_only_under_a_limit_that_was_read_back(evidence, cap):
    found = verdict(evidence, cap)
    assert (found.enforced is True) <= (not found.conditions)
    if found.enforced:
        proofs = [limit for mechanism, limit in applied(evidence).items() if mechanism is not Mechanism.CLIENT_ENV]
        assert min(proofs) <= cap
    else:
        assert found.conditions or not evidence.pids


@given(evidences(), st.integers(1, 20).map(lambda gib: gib * GIB), st.integers(0, 20).map(lambda gib: gib * GIB))
def test_what_holds_a_cap_holds_every_greater_one(evidence, cap, more):
    if verdict(evidence, cap).enforced:
        assert verdict(evidence, cap + more).enforced


@given(evidences(), st.randoms())
def test_the_order_of_processes_does_not_matter(evidence, random):
    pids = list(evidence.pids)
    random.shuffle(pids)
    other = Evidence(
        U1, tuple(pids), evidence.used, evidence.memberships, evidence.environments, evidence.memory, held=evidence.held
    )
    assert verdict(other, CAP) == verdict(evidence, CAP)
    assert applied(other) == applied(evidence)
