"""From a process that allocates too much to the message on somebody's phone, and that it is over."""

import pytest

from tests.e2e.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
TRAINER = {"namespace": "research", "pod": "llm-train-0", "container": "trainer", "node": "node-a", "gpu": "0"}


def messages(stack, alert, status, **labels):
    """What was told of an alert whose labels are among others these, with the path of who was told."""
    return [
        (path, one)
        for path, sent in stack.notifications
        for one in sent["alerts"]
        if one["status"] == status and {"alertname": alert, **labels}.items() <= one["labels"].items()
    ]


def test_the_teams_receiver_hears_of_the_overrun_and_of_its_end(stack):
    alert = "PodgpuPodMemoryOverLimit"
    eventually(lambda: messages(stack, alert, "firing", **TRAINER), patience=120, what="the overrun is told")
    path, told = messages(stack, alert, "firing", **TRAINER)[0]
    assert path == "/team-research"
    assert told["labels"]["severity"] == "critical"
    assert "research/llm-train-0 (trainer) uses 1" in told["annotations"]["description"]  # 16 to 19 GiB
    assert "on node node-a" in told["annotations"]["description"]

    eventually(lambda: messages(stack, alert, "resolved", **TRAINER), patience=120, what="its end is told")
    path, ended = messages(stack, alert, "resolved", **TRAINER)[0]
    assert path == "/team-research"
    assert ended["labels"] == told["labels"]


def test_a_misspelt_annotation_is_in_the_digest(stack):
    alert, pod = "PodgpuAnnotationErrors", {"namespace": "search", "pod": "indexer-0"}
    eventually(lambda: messages(stack, alert, "firing", **pod), patience=90, what="the misspelt annotation is told")
    assert messages(stack, alert, "firing", **pod)[0][0] == "/digest"


def test_use_without_allocation_reaches_the_platform_team(stack):
    alert, pod = "PodgpuUseWithoutAllocation", {"namespace": "vision", "pod": "warmup"}
    eventually(lambda: messages(stack, alert, "firing", **pod), patience=90, what="the leak is told")
    assert messages(stack, alert, "firing", **pod)[0][0] == "/platform"


def test_a_cap_that_mps_does_not_hold_is_an_alert(stack):
    """Its pipe directory leads nowhere, and other caps on its node are applied."""
    alert, pod = "PodgpuCapNotEnforced", {"namespace": "serving", "pod": "lost", "node": "node-b"}

    def fires():
        return any(
            one["state"] == "firing" and {"alertname": alert, **pod}.items() <= one["labels"].items()
            for one in stack.ask("alerts")["alerts"]
        )

    eventually(fires, patience=90, what="the cap that is not in force is told")


def test_no_alert_of_a_pod_is_about_the_exporters_own(stack):
    pods = {
        (one["labels"]["namespace"], one["labels"]["pod"])
        for _, sent in stack.notifications
        for one in sent["alerts"]
        if one["labels"]["alertname"].startswith(("PodgpuPod", "PodgpuCap", "PodgpuUse", "PodgpuIdle"))
        and one["labels"]["alertname"] != "PodgpuCapsNotApplied"  # is about a node
    }
    assert pods
    assert not any(namespace == "monitoring" for namespace, _ in pods)
