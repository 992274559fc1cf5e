"""From a process that allocates too much to the message on somebody's phone, and that it is over."""

import pytest

from tests.e2e.conftest import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
TRAINER = {"namespace": "research", "pod": "llm-train-0", "container": "trainer", "node": "node-a", "gpu": "0"}


def messages(stack, alert, status):
    return [
        (path, one)
        for path, sent in stack.notifications
        for one in sent["alerts"]
        if (one["labels"]["alertname"], one["status"]) == (alert, status)
    ]


def test_the_teams_receiver_hears_of_the_overrun_and_of_its_end(stack):
    alert = "PodgpuPodMemoryOverLimit"
    eventually(lambda: messages(stack, alert, "firing"), patience=120, what="the overrun is told")
    path, told = messages(stack, alert, "firing")[0]
    assert path == "/team-research"
    assert TRAINER.items() <= told["labels"].items()
    assert told["labels"]["severity"] == "critical"
    assert "research/llm-train-0 (trainer) uses 1" in told["annotations"]["description"]  # 16 to 19 GiB
    assert "on node node-a" in told["annotations"]["description"]

    eventually(lambda: messages(stack, alert, "resolved"), patience=120, what="its end is told")
    path, ended = messages(stack, alert, "resolved")[0]
    assert path == "/team-research"
    assert ended["labels"] == told["labels"]


def test_a_misspelt_annotation_is_in_the_digest(stack):
    eventually(
        lambda: messages(stack, "PodgpuAnnotationErrors", "firing"), patience=90, what="the misspelt annotation is told"
    )
    path, told = messages(stack, "PodgpuAnnotationErrors", "firing")[0]
    assert path == "/digest"
    assert (told["labels"]["namespace"], told["labels"]["pod"]) == ("search", "indexer-0")


def test_use_without_allocation_reaches_the_platform_team(stack):
    alert = "PodgpuUseWithoutAllocation"
    eventually(lambda: messages(stack, alert, "firing"), patience=90, what="the leak is told")
    assert any(
        (path, one["labels"]["pod"]) == ("/platform", "warmup") for path, one in messages(stack, alert, "firing")
    )


def test_no_alert_of_a_pod_is_about_the_exporters_own(stack):
    pods = {
        (one["labels"]["namespace"], one["labels"]["pod"])
        for _, sent in stack.notifications
        for one in sent["alerts"]
        if one["labels"]["alertname"].startswith(("PodgpuPod", "PodgpuCap", "PodgpuUse", "PodgpuIdle"))
    }
    assert pods
    assert not any(namespace == "monitoring" for namespace, _ in pods)
