"""An eviction: the pod that was meant, with its budget heeded, and nobody else."""

import json

import pytest

from enforcer.mechanisms.eviction import evict
from enforcer.model import EvictPod, PodId
from enforcer.outcomes import Done, Pending
from exporter.errors import Failure, Reason
from tests.events.conftest import POD, UID, pod_object

PODS = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"


def listed(cluster):
    return [item["metadata"]["uid"] for item in json.loads(cluster.writer().get(PODS).body)["items"]]


def test_the_pod_is_evicted(cluster):
    assert isinstance(evict(cluster.writer(), EvictPod(POD)), Done)
    assert cluster.server.writes.evictions == [{"namespace": "team", "name": "job-0", "uid": UID}]
    assert listed(cluster) == []


def test_asked_again_it_is_gone_and_that_is_well(cluster):
    evict(cluster.writer(), EvictPod(POD))
    assert evict(cluster.writer(), EvictPod(POD)) == Done("the pod is gone")
    assert len(cluster.server.writes.evictions) == 1


def test_another_pod_of_the_same_name_is_left_alone(cluster):
    new = PodId("team", "job-0", "b" * 8 + UID[8:])
    cluster.says(pods=[pod_object(new)])
    found = evict(cluster.writer(), EvictPod(POD))
    assert isinstance(found, Done)
    assert "another" in found.detail
    assert cluster.server.writes.evictions == []
    assert listed(cluster) == [new.uid]


def test_a_disruption_budget_is_heeded_and_it_is_pending(cluster):
    cluster.says(protected=["team/job-0"])
    found = evict(cluster.writer(), EvictPod(POD))
    assert isinstance(found, Pending)
    assert "disruption budget" in found.why
    assert listed(cluster) == [UID]
    cluster.says()
    assert isinstance(evict(cluster.writer(), EvictPod(POD)), Done)


@pytest.mark.parametrize(
    ("fault", "reason", "says"),
    [
        ({"status": 403}, Reason.NO_PERMISSION, "create on pods/eviction"),
        ({"status": 401}, Reason.NO_PERMISSION, "token"),
        (
            {"status": 500, "body": '{"message": "This pod has more than one\\nbudget"}'},
            Reason.UNAVAILABLE,
            "than one b",
        ),
        ({"status": 500, "body": "[]"}, Reason.UNAVAILABLE, "failed"),
        ({"status": 503}, Reason.UNAVAILABLE, "503"),
        ({"hang": True}, Reason.TIMEOUT, "answer"),
    ],
    ids=["403", "401", "500", "500-without-words", "503", "hang"],
)
def test_what_goes_wrong_is_a_failure(cluster, fault, reason, says):
    cluster.says(faults=[{"method": "POST", **fault}])
    found = evict(cluster.writer(deadline=1.0), EvictPod(POD))
    assert isinstance(found, Failure)
    assert found.reason is reason
    assert says in found.detail
    assert "\n" not in found.detail


def test_too_many_requests_without_a_body_is_pending_too(cluster):
    cluster.says(faults=[{"method": "POST", "status": 429, "body": ""}])
    assert evict(cluster.writer(), EvictPod(POD)) == Pending("the API server asks to wait")


def test_a_static_pod_is_not_evicted(cluster):
    static = PodId("team", "job-0", "0" * 32, UID)
    found = evict(cluster.writer(), EvictPod(static))
    assert isinstance(found, Failure)
    assert "manifest" in found.detail
    assert cluster.server.calls == {}


@pytest.mark.parametrize(
    ("namespace", "name"), [("team/../kube-system", "job-0"), ("team", "../../nodes/x"), ("", "a")]
)
def test_a_name_that_is_none_reaches_no_path(cluster, namespace, name):
    found = evict(cluster.writer(), EvictPod(PodId(namespace, name, UID, UID)))
    assert isinstance(found, Failure)
    assert found.reason is Reason.MALFORMED
    assert cluster.server.calls == {}
