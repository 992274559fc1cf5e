"""The list and watch of the API server: names stay right through everything that goes wrong with it."""

import json
import subprocess
import sys

import pytest

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.model import ContainerName
from exporter.sources import apiserver
from exporter.sources.apipods import ApiServerPods
from tests.pods.conftest import NODE, container_id, eventually, named, pod, uid

GONE = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}})
WATCHES = {"path": "/api/v1/pods", "watch": True}


def added(number: int, version: str) -> str:
    item = pod(number)
    item["metadata"]["resourceVersion"] = version
    return json.dumps({"type": "ADDED", "object": item})


def test_k63_one_list_and_one_watch_however_long_it_goes_on(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    for number in range(3, 9):
        cluster.says(pods=[pod(number)])
        eventually(lambda number=number: named(feed) == {f"pod-{number}"})
    assert (cluster.lists, cluster.watches) == (1, 1)
    assert cluster.server.calls.total() == 2


def test_only_this_nodes_pods_are_asked_for_and_kept(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    names = feed.read().names
    assert names.pods == {uid(1): ("ml", "pod-1"), uid(2): ("ml", "pod-2")}
    assert names.containers[container_id(1)] == ContainerName("ml", "pod-1", "main")


def test_a_pod_that_changes_and_one_that_goes(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    cluster.says(pods=[pod(1, labels={"team": "a"})])
    eventually(lambda: named(feed) == {"pod-1"})
    eventually(lambda: feed.read().names.by_uid[uid(1)].labels == {"team": "a"})  # a line of its own in the stream
    # By force: its processes may go on for a while, and a uid never gets another name.
    assert feed.read().names.pods[uid(2)] == ("ml", "pod-2")
    assert feed.read().names.containers[container_id(2)] == ContainerName("ml", "pod-2", "main")


def test_the_name_of_a_pod_that_is_gone_is_forgotten_in_time(cluster, follow_api, moment):
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    cluster.says(pods=[pod(1)])
    eventually(lambda: named(feed) == {"pod-1"})
    moment.now += 601
    assert feed.read().names.pods == {uid(1): ("ml", "pod-1")}


def test_k53_v02_a_watch_that_ends_in_order_goes_on_from_the_last_version(cluster, follow_api, pauses):
    cluster.says(faults=[{**WATCHES, "lines": [added(3, "1"), added(4, "2")], "count": 1}])
    feed = follow_api()
    # The version of the last line is of no use to this server, which proves that it was sent: it says 410.
    eventually(lambda: (cluster.lists, cluster.watches) == (2, 3))
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})


def test_k53_k61_a_cut_in_the_middle_of_a_line_loses_nothing(cluster, follow_api, pauses):
    cluster.says(faults=[{**WATCHES, "lines": [], "cut": True, "count": 3}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 4)
    assert named(feed) == {"pod-1", "pod-2"}
    eventually(lambda: feed.read().failure is None)
    assert cluster.lists == 1
    assert pauses.seen[-3:] == [0.25, 0.5, 1.0]  # half of a bound that doubles


@pytest.mark.parametrize("first", [[], [added(3, "5")]], ids=["at-once", "after-an-event"])
def test_k54_k55_k56_v01_v03_v05_v07_a_version_that_is_gone_on_every_watch_makes_no_hot_loop(
    cluster, follow_api, pauses, first
):
    cluster.says(faults=[{**WATCHES, "lines": [*first, GONE], "count": 8}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 9)
    assert cluster.lists == 9  # each time anew, and never the same version twice
    assert pauses.seen[-8:] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    eventually(lambda: feed.read().failure is None)
    assert named(feed) == {"pod-1", "pod-2"}


@pytest.mark.parametrize("status", [410, 504])
def test_k54_a_version_that_is_refused_with_a_status(cluster, follow_api, status):
    cluster.says(faults=[{**WATCHES, "status": status, "count": 1}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 2)
    assert cluster.lists == 2
    eventually(lambda: feed.read().failure is None)


def test_a_list_from_memory_that_is_refused_is_asked_for_from_the_database(cluster, follow_api):
    cluster.says(faults=[{"path": "/api/v1/pods", "watch": False, "status": 410, "count": 1}])
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    assert cluster.lists == 2


def test_another_server_that_knows_no_version_of_the_first_one(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: cluster.watches == 1)
    cluster.says(pods=[pod(1), pod(3)])
    eventually(lambda: named(feed) == {"pod-1", "pod-3"})
    cluster.says(pods=[pod(3), pod(4)])
    eventually(lambda: named(feed) == {"pod-3", "pod-4"})
    cluster.restart()
    cluster.says(pods=[pod(5)])
    eventually(lambda: named(feed) == {"pod-5"})


def test_v08_a_server_that_falls_silent_is_left(cluster, follow_api, monkeypatch):
    monkeypatch.setattr("exporter.sources.apipods.SILENT_FOR", -29.9)  # 0.1 seconds, with half of the spread of 60
    cluster.says(faults=[{**WATCHES, "lines": [], "silent": True, "count": 2}])
    monkeypatch.setattr("exporter.sources.apipods.WATCH_FOR", 3600.0)
    feed = follow_api()
    eventually(lambda: feed.read().failure is not None and feed.read().failure.reason is Reason.TIMEOUT)
    assert named(feed) == {"pod-1", "pod-2"}
    eventually(lambda: cluster.watches >= 3)
    assert cluster.lists == 1  # from where it was


def test_a_server_that_never_answers_costs_a_deadline(cluster, follow_api):
    cluster.says(faults=[{"hang": True}])
    feed = follow_api(deadline=0.1)
    eventually(lambda: feed.read().failure.reason is Reason.TIMEOUT)
    cluster.says(faults=[])
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})


def test_v06_too_many_requests_are_not_made(cluster, follow_api, pauses):
    cluster.says(faults=[{**WATCHES, "status": 429, "headers": {"Retry-After": "40"}, "count": 1}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 2)
    assert pauses.seen[-1] == 45.0  # and not at the moment at which all others come back
    assert cluster.lists == 1
    assert named(feed) == {"pod-1", "pod-2"}


def test_a_pause_that_an_error_event_asks_for(cluster, follow_api, pauses):
    error = {"type": "ERROR", "object": {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 80}}}
    cluster.says(faults=[{**WATCHES, "lines": [json.dumps(error)], "count": 1}])
    follow_api()
    eventually(lambda: cluster.watches == 2)
    assert pauses.seen[-1] == 90.0
    assert cluster.lists == 1


def test_what_is_not_allowed_is_seldom_asked_for(cluster, follow_api, pauses):
    cluster.says(faults=[{"status": 403, "count": 1}])
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    assert pauses.seen[-1] == 67.5


def test_the_right_that_is_missing_is_named(cluster, follow_api, moment, monkeypatch):
    cluster.says(faults=[{"status": 403}])
    feed = follow_api()
    eventually(lambda: feed.read().failure.reason is Reason.NO_PERMISSION)
    assert "resources: [pods], verbs: [list, watch]" in feed.read().failure.detail
    assert feed.read().names is None


def test_k57_a_token_that_was_replaced_is_used_for_the_next_request(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: cluster.watches == 1)
    (cluster.account / "token").write_text("second-token")
    cluster.says(tokens=["second-token"], pods=[pod(3)])
    eventually(lambda: named(feed) == {"pod-3"})  # an open watch outlives its token
    cluster.restart()
    cluster.says(pods=[pod(4)])
    eventually(lambda: named(feed) == {"pod-4"})


def test_k57_an_old_token_is_refused_until_it_is_replaced(cluster, follow_api):
    cluster.says(tokens=["second-token"])
    feed = follow_api()
    eventually(lambda: feed.read().failure.reason is Reason.NO_PERMISSION)
    (cluster.account / "token").write_text("second-token")
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})


def test_k62_v04_bookmarks_with_nulls_move_the_version_on_and_nothing_else(cluster, follow_api):
    cluster.says(bookmark_every=0.01)
    feed = follow_api()
    eventually(lambda: cluster.watches == 1)
    cluster.says(pods=[pod(1), pod(2), pod(3)])
    eventually(lambda: named(feed) == {"pod-1", "pod-2", "pod-3"})
    marked = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    lines = [json.dumps({"type": "BOOKMARK", "object": marked}), json.dumps({"type": "UNHEARD_OF", "object": pod(7)})]
    cluster.says(faults=[{**WATCHES, "lines": lines, "count": 1}])
    cluster.restart()
    eventually(lambda: cluster.lists == 1)  # of the new server, after it has refused version 9
    eventually(lambda: named(feed) == {"pod-1", "pod-2", "pod-3"})


@pytest.mark.parametrize("line", ["{", "[]", "null", '{"type": "ADDED"}', '{"object": {}}', "\x00"])
def test_a_line_that_is_no_event_ends_the_watch_and_no_more(cluster, follow_api, line):
    cluster.says(faults=[{**WATCHES, "lines": [line], "count": 1}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 2)
    assert named(feed) == {"pod-1", "pod-2"}
    assert cluster.lists == 1


@pytest.mark.parametrize("body", ["", "[]", "null", '{"kind": "PodList"}', '{"kind": "Status"}'])
def test_a_list_that_is_none_is_asked_for_again(cluster, follow_api, body):
    cluster.says(faults=[{"body": body, "count": 1}])
    feed = follow_api()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    assert cluster.lists == 2


def test_a_line_without_an_end_is_not_kept_in_memory(cluster, follow_api, monkeypatch):
    monkeypatch.setattr(apiserver, "LARGEST_LINE", 100_000)
    cluster.says(faults=[{**WATCHES, "lines": ["x" * 300_000], "count": 1}])
    feed = follow_api()
    eventually(lambda: cluster.watches == 2)
    assert named(feed) == {"pod-1", "pod-2"}


def test_the_list_is_made_anew_against_lost_events(cluster, follow_api, moment):
    feed = follow_api()
    eventually(lambda: cluster.watches == 1)
    moment.now += 2701  # half an hour, and half of the half hour over which nodes spread
    cluster.says(faults=[{**WATCHES, "lines": [], "count": 1}])
    cluster.restart()
    eventually(lambda: (cluster.lists, cluster.watches) >= (1, 2))
    assert named(feed) == {"pod-1", "pod-2"}


def test_the_first_lists_of_many_nodes_are_spread(cluster, follow_api, pauses):
    feed = follow_api(chance=0.7)
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    assert pauses.seen[0] == 7.0


def test_without_a_node_name_no_pods_of_nowhere_are_asked_for(cluster, follow_api):
    feed = follow_api(node="")
    eventually(lambda: feed.read().failure.reason is Reason.MISSING and feed.decided.is_set())
    assert "spec.nodeName" in feed.read().failure.detail
    assert cluster.server.calls.total() == 0


def test_stop_ends_the_open_watch(cluster, follow_api):
    feed = follow_api()
    eventually(lambda: cluster.watches == 1)
    feed.stop()
    feed._thread.join(20)
    assert not feed._thread.is_alive()


def test_the_query_is_the_one_that_costs_the_server_least(cluster):
    asked = []

    class Api:
        def get(self, path):
            asked.append(path)
            return apiserver.Answer(200, b'{"kind": "PodList", "metadata": {"resourceVersion": "7/x"}, "items": null}')

        def stream(self, path, *, idle, total):
            asked.append((path, idle, total))
            feed._stopped.set()
            return apiserver.Answer(503, b"")

    feed = ApiServerPods(Api(), node=NODE, clock=Clock(), chance=lambda: 0.5, wait=lambda _seconds: None)
    feed.run()
    selected = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"
    assert asked == [
        f"{selected}&resourceVersion=0",
        (f"{selected}&watch=true&allowWatchBookmarks=true&timeoutSeconds=450&resourceVersion=7%2Fx", 120.0, 540.0),
    ]


def test_k59_nothing_of_the_kubernetes_package_is_loaded():
    code = "import sys, exporter.service; print([name for name in sys.modules if name.startswith('kubernetes')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
