"""The real program on a node whose GPUs are given out by claims, with an API server that fails and comes back."""

import json

import pytest

from simulator import apiserver

pytestmark = pytest.mark.whole

USED = "podgpu_container_memory_used_bytes"
ALLOCATED = "podgpu_container_allocated"
GIB = 1 << 30


def allocated(whole):
    """The value by pod and container; those without a value are not there."""
    pods = ("pretrain-0", "ranker-a", "ranker-b", "detector-0", "labeler-0", "notebook-7c9f")
    found = {}
    for pod in pods:
        for container in ("trainer", "ranker", "sidecar", "serve", "labeler", "jupyter"):
            value = whole.value(ALLOCATED, pod=pod, container=container)
            if value is not None:
                found[pod, container] = value
    return found


EVERYTHING = {
    ("pretrain-0", "trainer"): 1,
    ("ranker-a", "ranker"): 1,
    ("ranker-b", "ranker"): 1,
    ("ranker-b", "sidecar"): 0,
    ("detector-0", "serve"): 1,
    ("notebook-7c9f", "jupyter"): 1,
}
# What is certain without slices: who has no claim at all, and the one GPU that its name alone tells.
WITHOUT_SLICES = {("ranker-b", "sidecar"): 0, ("notebook-7c9f", "jupyter"): 1}
FULL_USE = sorted(size * GIB for size in (61, 9, 11, 0.5, 17, 5))


def used(whole):
    return sorted(value for value in whole.values(USED) if value)


def up(whole):
    return whole.value("podgpu_source_up", source="resourceslices")


def well(whole):
    return up(whole) == 1 and allocated(whole) == EVERYTHING


def requests(whole):
    path = whole.paths.root / "apiserver.calls"
    calls = json.loads(path.read_text()) if path.exists() else {}
    return sum(count for asked, count in calls.items() if asked.endswith("/resourceslices"))


def test_an_api_server_that_is_down_costs_allocations_and_comes_back(make):
    whole = make("dra")
    whole.processes.stop(whole.apiserver)
    whole.start_exporter()
    whole.eventually(lambda: up(whole) == 0)
    assert used(whole) == FULL_USE
    assert allocated(whole) == WITHOUT_SLICES
    assert whole.values("podgpu_device_slots") == whole.values("podgpu_container_share_ratio") == []
    assert whole.value("podgpu_source_errors_total", source="resourceslices", reason="unavailable") > 0
    assert whole.value("podgpu_condition", condition="unknown_device_allocated") == 1
    whole.start_apiserver()
    whole.eventually(lambda: well(whole))
    assert used(whole) == FULL_USE
    assert whole.values("podgpu_device_slots", resource="gpu.nvidia.com") == [1] * 5
    assert whole.log.count("source resourceslices:") == 2  # when it began and when it was over
    assert "token-of" not in whole.log


def test_an_api_server_that_never_answers_costs_the_same_and_no_scrape(make):
    whole = make("dra")
    state = whole.node.apiserver_state()
    apiserver.write_state(whole.paths.apiserver_state, {**state, "faults": [{"hang": True}]})
    whole.start_exporter()
    whole.eventually(lambda: up(whole) == 0)
    assert whole.value("podgpu_source_errors_total", source="resourceslices", reason="timeout") > 0
    begun = whole.threads()
    whole.until_next_cycles(3)
    assert used(whole) == FULL_USE
    assert allocated(whole) == WITHOUT_SLICES
    assert whole.threads() == begun
    assert requests(whole) <= 2  # a second one after the first one's own deadline


def test_b77_a_right_that_is_missing_is_named(make):
    whole = make("dra")
    state = whole.node.apiserver_state()
    apiserver.write_state(whole.paths.apiserver_state, {**state, "faults": [{"status": 403}]})
    whole.start_exporter()
    whole.eventually(lambda: up(whole) == 0)
    whole.eventually(lambda: "resources: [resourceslices], verbs: [list]" in whole.log)
    assert used(whole) == FULL_USE
    assert allocated(whole) == WITHOUT_SLICES


def test_k63_cycles_do_not_ask_the_api_server(make):
    whole = make("dra")
    whole.start_exporter()
    whole.eventually(lambda: well(whole))
    asked = requests(whole)
    whole.until_next_cycles(8)
    assert requests(whole) == asked == 1


def test_a_node_without_claims_never_asks_for_slices(make):
    whole = make("mixed")
    apiserver.write_state(whole.paths.apiserver_state, {"tokens": ["any"]})
    whole.start_apiserver()
    whole.start_exporter("--pods.source=logs")
    whole.until_next_cycles(3)
    assert not (whole.paths.root / "apiserver.calls").exists()
    assert up(whole) is None


@pytest.mark.parametrize("reason", ["switched off", "no service account"])
def test_without_the_source_claims_stay_unknown_and_nothing_fails(make, reason):
    whole = make("dra")
    if reason == "no service account":
        (whole.paths.service_account / "token").unlink()
    whole.start_exporter(*(["--dra.source=none"] if reason == "switched off" else []))
    whole.until_next_cycles()
    assert up(whole) is None
    assert requests(whole) == 0
    assert allocated(whole) == WITHOUT_SLICES
    assert used(whole) == FULL_USE
