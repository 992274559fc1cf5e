"""From annotation to what the node's own parts hold jobs to, on each kind of node, and back."""

import pytest

from enforcer.model import CapState
from enforcer.reconcile import Mode
from exporter.naming import job_namespaces
from tests.reconciling.conftest import states

GIB, MIB = 1 << 30, 1 << 20

pytestmark = pytest.mark.whole


def by_container(found):
    """What each process is held to: bytes and namespace, by pod/container."""
    wanted = {}
    for pod in found.node.scenario.pods:
        for container in pod.containers:
            for number in range(len(container.processes)):
                pid = found.node._pids[pod.uid, container.name, number]
                if (held := found.held().get(pid)) is not None:
                    wanted[f"{pod.name}/{container.name}"] = (max(held["limits"].values(), default=None), held)
    return wanted


def test_protocol_3_jobs_get_a_namespace_of_their_own(enforced):
    found = enforced("caps-v3")
    report = found.settle(found.start())
    assert states(report) == {
        "gated/server": CapState.APPLIED,
        "two/trainer": CapState.APPLIED,
        "two/eval": CapState.APPLIED,
        "hasty/main": CapState.APPLIED,  # its namespace is there, and open; that it is not in it, the exporter shows
    }
    namespaces = {
        ns.name: ns for d in report.observation.seen.daemons.values() for s in d.servers for ns in s.namespaces
    }
    assert namespaces["kai_theirs"].pinned.shown == 30 * GIB
    assert namespaces["default"].pinned.shown == 256 * MIB
    mine = job_namespaces(found.pod("gated").uid, "server")[0]
    assert (namespaces[mine].pinned.shown, namespaces[mine].ratio) == (20 * GIB, 0.3)
    assert len(namespaces) == 6


def test_a_cap_is_changed_and_withdrawn(enforced):
    found = enforced("caps-v3")
    enforcer = found.start()
    found.settle(enforcer)
    key = "nvidia.com/container.server.gpu-memory.limit"
    for text, size in (("24Gi", 24 * GIB), ("10Gi", 10 * GIB)):
        found.annotate("gated", **{key: text, "podgpu.io/container.server.active-thread-percentage": "30"})
        report = found.settle(enforcer)
        (namespace,) = [
            ns
            for d in report.observation.seen.daemons.values()
            for s in d.servers
            for ns in s.namespaces
            if ns.name == job_namespaces(found.pod("gated").uid, "server")[0]
        ]
        assert namespace.pinned.shown == size
    for pod in ("gated", "two", "hasty"):
        found.end(pod)
    report = found.settle(enforcer)
    names = {ns.name for d in report.observation.seen.daemons.values() for s in d.servers for ns in s.namespaces}
    assert names == {"default", "kai_theirs"}
    assert not list(found.node.paths.run.glob("nvidia-mps/.doors/*"))
    assert not list(found.node.paths.receipts.glob("*.json"))


def test_protocol_2_pods_are_let_in_one_after_the_other(enforced):
    found = enforced("caps-v2")
    report = found.settle(found.start())
    assert states(report) == {
        "first/main": CapState.APPLIED,
        "second/main": CapState.APPLIED,
        "ungated/main": CapState.LATE,
    }
    (daemon,) = report.observation.seen.daemons.values()
    (server,) = daemon.servers
    assert server.pinned[0].shown == 40 * GIB
    assert server.ratio == 0.5
    pinned = {client.pid: client.pinned[0] for client in server.clients}
    pids = {pod.name: found.node._pids[pod.uid, "main", 0] for pod in found.node.scenario.pods}
    assert pinned == {pids["first"]: 4606 * MIB, pids["second"]: 16 * GIB, pids["ungated"]: 40 * GIB}


def test_control_groups_are_limited_and_lowered_with_the_use(enforced):
    found = enforced("caps-cgroup")
    enforcer = found.start()
    report = found.settle(enforcer)
    assert states(report) == {
        "plain/server": CapState.APPLIED,
        "waits/server": CapState.APPLIED,
        "shrinks/trainer": CapState.PENDING,
        "theirs/main": CapState.APPLIED,
    }

    def hard(pod, container=None):
        levels = report.observation.seen.levels
        uid = found.pod(pod).uid
        cid = found.pod(pod).container_id(container) if container else ""
        (level,) = [level for level in levels if (level.ref.pod_uid, level.ref.container_id) == (uid, cid)]
        return levels[level].hard

    assert (hard("plain"), hard("plain", "server")) == (16 * GIB, 16 * GIB)
    assert hard("shrinks", "trainer") == 12 * GIB
    assert hard("theirs") == 10 * GIB
    found.pass_time(25)
    report = found.settle(enforcer)
    assert states(report)["shrinks/trainer"] is CapState.APPLIED
    assert hard("shrinks", "trainer") == 8 * GIB
    found.annotate("plain", **{"nvidia.com/container.server.gpu-memory.limit": "20Gi"})
    report = found.settle(enforcer)
    assert (hard("plain"), hard("plain", "server")) == (20 * GIB, 20 * GIB)


def test_off_gives_everything_back(enforced):
    found = enforced("caps-cgroup")
    found.settle(found.start())
    report = found.settle(found.start(mode=Mode.OFF))
    limits = {level.ref.pod_uid: memory.hard for level, memory in report.observation.seen.levels.items()}
    assert set(limits.values()) <= {None, 10 * GIB}
    assert not report.observation.seen.records.limits


@pytest.mark.parametrize("scenario", ["caps-v3", "caps-v2", "caps-cgroup"])
def test_audit_changes_nothing_and_says_what_it_would_do(enforced, scenario, caplog):
    found = enforced(scenario)
    caplog.set_level("INFO")
    enforcer = found.start(mode=Mode.AUDIT)
    first = enforcer.reconcile()
    again = enforcer.reconcile()
    assert first.planned
    assert first.planned == again.planned
    assert {result for _, result in found.counted} == {"planned"}
    assert len(found.counted) == len(first.planned)
    assert sum("would " in record.message for record in caplog.records) == len(first.planned)
    assert not list(found.node.paths.receipts.glob("*"))
