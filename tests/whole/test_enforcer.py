"""The real enforcer with the real exporter beside it: from annotation to limits that somebody else reads back."""

import json
import os
import random
import re
import signal
import time

import pytest

from exporter.naming import job_namespaces
from simulator.mps import world
from tests.whole.conftest import samples

pytestmark = pytest.mark.whole

GIB = 1 << 30
ENFORCED = "podgpu_container_memory_limit_enforced"
APPLIED = "podgpu_container_memory_limit_applied_bytes"
NAMESPACE = "podgpu_mps_pinned_memory_limit_bytes"
LIMIT = "nvidia.com/container.server.gpu-memory.limit"


@pytest.fixture
def node_of(make):
    def of(scenario, *flags):
        whole = make(scenario)
        whole.start_exporter("--interval=1s", "--deadline=500ms")
        whole.start_enforcer(*flags)
        return whole

    return of


def states(whole):
    return {
        state: whole.enforcer_value("podgpu_enforcer_caps", state=state)
        for state in ("wanted", "applied", "pending", "late", "failed", "unsupported")
    }


def held(whole):
    """The limits that daemons really hold each pod's clients to: what no exporter can see."""
    limits = {}
    for path in whole.paths.root.glob(f"{whole.paths.mps_world.name}.clients.*"):
        limits |= world.held(whole.paths.mps_world, int(path.suffix[1:]))
    found = {}
    for pod in whole.node.scenario.pods:
        for container in pod.containers:
            for number in range(len(container.processes)):
                pid = whole.node._pids[pod.uid, container.name, number]
                if pod.gated and pid in limits:
                    found.setdefault(pod.name, set()).add(max(limits[pid]["limits"].values()))
    return found


def quiet(whole):
    """Whether the enforcer has nothing left to do: what it did no longer grows."""
    before = whole.enforcer_value("podgpu_enforcer_actions_total")
    stamp = whole.enforcer_value("podgpu_enforcer_last_reconcile_timestamp_seconds")
    whole.until(lambda: whole.enforcer_value("podgpu_enforcer_last_reconcile_timestamp_seconds") > stamp)
    return whole.enforcer_value("podgpu_enforcer_actions_total") == before


def test_protocol_3_from_annotation_to_limit_up_down_and_away(node_of):
    whole = node_of("caps-v3")
    whole.until(lambda: [whole.value(ENFORCED, pod="gated")] == [1])
    whole.until(lambda: whole.values(ENFORCED, pod="two") == [1, 1])
    assert whole.value(ENFORCED, pod="hasty") == 0
    assert whole.value("podgpu_container_condition", pod="hasty", reason="outside_mps") == 1
    name = job_namespaces(next(p.uid for p in whole.node.scenario.pods if p.name == "gated"), "server")[0]
    took = []
    for text, size in (("24Gi", 24), ("10Gi", 10), ("16Gi", 16)):
        whole.change("gated", annotations={LIMIT: text, "podgpu.io/container.server.active-thread-percentage": "30"})
        took.append(whole.until(lambda size=size: whole.value(NAMESPACE, mps_namespace=name) == size * GIB))
    print(f"annotation to limit, as the exporter's next cycles show it: {sorted(took)} s")
    whole.change("gated", end=0)
    whole.until(lambda: whole.values(NAMESPACE, mps_namespace=name) == [])
    assert whole.value(NAMESPACE, mps_namespace="kai_theirs") == 30 * GIB
    assert whole.value(NAMESPACE, mps_namespace="default") == 256 << 20


def test_protocol_2_each_pod_connects_under_its_own_limit(node_of):
    whole = node_of("caps-v2")
    whole.until(lambda: [whole.value(ENFORCED, pod=pod) for pod in ("first", "second")] == [1, 1])
    assert whole.value(APPLIED, pod="first") == 4606 << 20
    assert whole.value(APPLIED, pod="second") == 16 * GIB
    assert whole.value(ENFORCED, pod="ungated") == 0
    whole.until(lambda: states(whole)["late"] == 1 and states(whole)["applied"] == 2)
    whole.until(lambda: whole.value(NAMESPACE, scope="server") == 40 * GIB)


def test_control_groups_are_limited_and_freed(node_of):
    whole = node_of("caps-cgroup")
    whole.until(lambda: [whole.value(ENFORCED, pod=pod) for pod in ("plain", "waits", "theirs")] == [1, 1, 1])
    assert whole.value(APPLIED, pod="shrinks") == 12 * GIB
    assert whole.value(ENFORCED, pod="shrinks") == 0
    whole.now = 25
    whole.until(lambda: whole.value(ENFORCED, pod="shrinks") == 1)
    took = []
    for text, size in (("20Gi", 20), ("14Gi", 14)):
        whole.change("plain", annotations={LIMIT: text})
        took.append(whole.until(lambda size=size: whole.value(APPLIED, pod="plain") == size * GIB))
    print(f"annotation to limit, as the exporter's next cycles show it: {sorted(took)} s")
    whole.change("plain", annotations={})
    whole.until(lambda: whole.values(APPLIED, pod="plain") == [])
    whole.processes.stop(whole.enforcer)
    assert whole.value(ENFORCED, pod="waits") == 1  # what is set stays set
    whole.start_enforcer("--mode=off")
    whole.until(lambda: whole.values(APPLIED, pod="waits") == [])
    assert whole.value(APPLIED, pod="theirs") == 10 * GIB


@pytest.mark.parametrize("scenario", ["caps-v3", "caps-cgroup"])
def test_an_enforcer_that_is_killed_again_and_again_gets_there_all_the_same(node_of, scenario):
    whole = node_of(scenario)
    dice = random.Random(scenario)
    for _ in range(5):
        whole.node.advance(whole.now)
        time.sleep(dice.uniform(0, 0.4))
        whole.enforcer.send_signal(signal.SIGKILL)
        whole.enforcer.wait()
        whole.start_enforcer()
    expected = {"caps-v3": {"gated": [1], "two": [1, 1]}, "caps-cgroup": {"plain": [1], "waits": [1]}}[scenario]
    whole.until(lambda: all(whole.values(ENFORCED, pod=pod) == holds for pod, holds in expected.items()))
    whole.until(lambda: quiet(whole))


def test_a_restarted_daemon_has_its_namespaces_back_before_anybody_comes(node_of):
    whole = node_of("daemon-restart")
    enforced = {"server": 20 * GIB, "batch": 8 * GIB}
    whole.until(lambda: all(whole.value(ENFORCED, pod=pod) == 1 for pod in enforced))
    (daemon,) = whole.node.scenario.mps
    for time_of_restart in (1, 2):
        whole.daemons.advance(time_of_restart * daemon.restart_every - 1)  # not due yet
        first = whole.daemons.pid(daemon)
        whole.daemons.advance(time_of_restart * daemon.restart_every)
        assert whole.daemons.pid(daemon) != first
        whole.until(lambda n=time_of_restart: whole.value("podgpu_mps_daemon_starts_total") == n)
        whole.until(lambda: all(whole.value(ENFORCED, pod=pod) == 1 for pod in enforced))
        assert held(whole) == {pod: {limit} for pod, limit in enforced.items()}


def test_a_daemon_of_our_own_is_started_and_what_it_had_comes_back(node_of):
    whole = node_of("caps-managed")
    whole.until(lambda: [whole.value(ENFORCED, pod=pod) for pod in ("gated", "other")] == [1, 1])
    assert whole.value("podgpu_mps_daemon_info", protocol="3") == 1
    (daemon,) = whole.node.scenario.mps
    first = whole.daemons.pid(daemon)
    os.kill(first, signal.SIGKILL)
    whole.until(lambda: whole.daemons.pid(daemon) not in (0, first))
    whole.until(lambda: [whole.value(ENFORCED, pod=pod) for pod in ("gated", "other")] == [1, 1])
    assert held(whole) == {"gated": {20 * GIB}, "other": {8 * GIB}}
    again = whole.daemons.pid(daemon)
    whole.enforcer.send_signal(signal.SIGKILL)
    whole.enforcer.wait()
    whole.start_enforcer()
    whole.until(lambda: quiet(whole))
    assert whole.daemons.pid(daemon) == again  # taken over as it is
    whole.processes.stop(whole.enforcer)
    assert whole.daemons.pid(daemon) == again  # it has clients
    assert [whole.value(ENFORCED, pod=pod) for pod in ("gated", "other")] == [1, 1]


def test_overruns_are_answered_as_each_pod_asked(node_of):
    whole = node_of("reactions")
    pids = {
        (pod.name, number): whole.node._pids[pod.uid, "main", number]
        for pod in whole.node.scenario.pods
        for number in range(len(pod.containers[0].processes))
    }
    whole.until(lambda: whole.enforcer_value("podgpu_enforcer_actions_total", action="evict", result="done") > 0)
    whole.until(lambda: whole.value("podgpu_container_memory_used_bytes", pod="trimmed") in (7 * GIB, 4 * GIB))
    ended = {int(pid) for pid in (whole.paths.root / "mps.json.terminated").read_text().split()}
    assert pids["evicted", 0] in ended
    assert len(ended & {pids["trimmed", 0], pids["trimmed", 1]}) == 1
    assert not ended & {pids["warned", 0], pids["neighbour", 0]}
    assert whole.value("podgpu_container_memory_used_bytes", pod="warned") == 6 * GIB
    assert whole.enforcer_value("podgpu_enforcer_overruns_total", reaction="warn") == 1
    written = json.loads(whole.paths.apiserver_writes.read_text())
    assert [pod["name"] for pod in written["evictions"]] == ["evicted"]
    told = {(event["involvedObject"]["name"], event["reason"]) for event in written["events"]}
    assert {
        ("warned", "GpuMemoryOverrun"),
        ("trimmed", "GpuMemoryOverrun"),
        ("trimmed", "GpuClientTerminated"),
        ("evicted", "GpuMemoryEviction"),
    } <= told
    assert ("neighbour", "GpuMemoryOverrun") not in told


def test_nothing_that_a_tenant_writes_is_done(node_of):
    whole = node_of("hostile")
    whole.until(lambda: whole.value(ENFORCED, pod="victim") == 1)
    whole.until(lambda: quiet(whole))
    found = {labels["mps_namespace"]: value for labels, value in samples(whole.page(), NAMESPACE)}
    uids = {pod.uid for pod in whole.node.scenario.pods}
    ours = {name for name in found if name.startswith("j_")}
    assert found["kai_theirs"] == 30 * GIB
    assert found["default"] == 256 << 20
    assert all(any(name.startswith("j_" + uid.replace("-", "_")) for uid in uids) for name in ours)
    assert (
        found[job_namespaces(next(p.uid for p in whole.node.scenario.pods if p.name == "victim"), "victim")[0]]
        == 8 * GIB
    )
    assert whole.value("podgpu_mps_daemon_starts_total") == 0
    control = "".join(path.read_text(errors="replace") for path in whole.paths.logs.rglob("control.log"))
    commands = re.findall(r"Cmd:(.*)", control)
    assert commands
    assert not [command for command in commands if "quit" in command]
    outside = [path for path in whole.paths.run.rglob("*") if re.search(r"mallory|%2f|\.\.", path.name)]
    assert outside == []
    receipts = [json.loads(path.read_text())["pod"] for path in whole.paths.receipts.glob("*.json")]
    assert "victim" in receipts
