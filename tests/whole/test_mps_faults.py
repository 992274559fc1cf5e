"""MPS control daemons under a running exporter: what goes wrong there costs its own series, and is seen."""

import pytest

from simulator.mps.world import Fault

pytestmark = pytest.mark.whole

USED = "podgpu_container_memory_used_bytes"
ENFORCED = "podgpu_container_memory_limit_enforced"
CLIENTS = "podgpu_container_mps_clients"
UP = "podgpu_mps_daemon_up"


@pytest.fixture
def running(make, request):
    whole = make(getattr(request, "param", "mps-v3"))
    whole.start_exporter("--interval=2s")
    return whole


def test_a_wedged_daemon_costs_one_deadline_and_its_own_series(running):
    assert running.value(UP) == 1
    assert running.value(ENFORCED, pod="well") == 1
    used = sorted(running.values(USED))
    running.node.mps_fault(Fault(hang=True))
    running.eventually(lambda: running.value(UP) == 0)
    assert running.value("podgpu_source_errors_total", source="mps", reason="daemon_wedged") > 0
    assert sorted(running.values(USED)) == used
    assert 1 not in running.values(ENFORCED)  # who is over its cap is certainly not held to it; of others nobody knows
    assert running.value(ENFORCED, pod="well") is None
    for family in (CLIENTS, "podgpu_container_mps_active_thread_ratio", "podgpu_mps_server_info"):
        assert running.values(family) == [], family
    assert running.value("podgpu_container_condition", pod="well", reason="limit_unknown") == 1
    assert running.value("podgpu_source_up", source="mps") == 1
    gap = running.value("podgpu_sampling_gap_seconds_total")
    running.until_next_cycles()
    assert running.value("podgpu_sampling_gap_seconds_total") == gap
    assert running.value("podgpu_device_up") == 1
    running.node.mps_fault()
    running.eventually(lambda: running.value(UP) == 1 and running.value(ENFORCED, pod="well") == 1)


def test_a_wrong_pipe_directory_is_said_of_the_pod_that_has_it(running):
    assert running.value(ENFORCED, pod="lost") == 0
    assert running.value("podgpu_container_condition", pod="lost", reason="outside_mps") == 1
    assert running.value("podgpu_container_condition", pod="astray", reason="other_namespace") == 1
    assert running.value("podgpu_container_condition", pod="blind", reason="variable_voids_limit") == 1


@pytest.mark.parametrize("running", ["mps-v2"], indirect=True)
def test_a_restarted_daemon_is_seen_and_holds_nobody(running):
    assert running.value(ENFORCED, pod="fits") == 1
    assert running.value("podgpu_mps_daemon_starts_total") == 0
    (daemon,) = running.node.scenario.mps
    running.daemons.call(daemon, line="quit -t 0")
    running.eventually(lambda: running.value(UP) == 0)
    assert running.value(ENFORCED, pod="fits") is None
    running.daemons.start_one(daemon)
    running.eventually(lambda: running.value("podgpu_mps_daemon_starts_total") == 1)
    assert running.value(UP) == 1


@pytest.mark.parametrize("running", ["mps-v2"], indirect=True)
def test_a_limit_for_clients_to_come_is_seen_in_the_next_cycle_and_says_nothing_of_those_that_are_there(running):
    """In which the enforcer lets pods in one after another, and which no client that comes or goes gives away."""
    where = {"scope": "server", "device": "1"}
    enforced = {pod: running.value(ENFORCED, pod=pod) for pod in ("fits", "modest")}
    (daemon,) = running.node.scenario.mps
    server = running.daemons.call(daemon, line="get_server_list").strip()
    for size in (30, 5):
        running.daemons.call(daemon, line=f"set_device_pinned_mem_limit {server} 1 {size}G")
        running.until_next_cycles()
        assert running.value("podgpu_mps_pinned_memory_limit_bytes", **where) == size << 30
        assert {pod: running.value(ENFORCED, pod=pod) for pod in enforced} == enforced


@pytest.mark.parametrize("running", ["mps-v2"], indirect=True)
def test_lost_commands_are_asked_again(running):
    running.node.mps_fault(Fault(lose=2))
    running.until_next_cycles(3)
    assert running.value(UP) == 1
    assert running.value(ENFORCED, pod="fits") == 1


@pytest.mark.parametrize("running", ["mps-v2"], indirect=True)
def test_a_server_in_fault_says_so(running):
    running.node.mps_fault(Fault(server_state="FAULT"))
    running.eventually(lambda: running.value("podgpu_mps_server_state", state="fault") == 1)
    assert running.value("podgpu_mps_server_state", state="active") == 0
