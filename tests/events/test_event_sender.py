"""Notices as Events: one for each, counted up, and a slow or failing API server holds nobody up."""

import json
import logging
import time
from datetime import UTC, datetime

import pytest

from enforcer.mechanisms.events import MOST_WAITING, EventSender
from enforcer.model import PodId
from enforcer.notices import NoticeReason, notice
from exporter.clock import Clock
from tests.events.conftest import POD, UID

NOTICE = notice(POD, NoticeReason.CAP_LATE, "In force too late: main 10Gi on GPU-0.")
EVENTS = "/api/v1/namespaces/team/events"
SOON = 20.0  # seconds


class Time:
    def __init__(self):
        self.now = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC).timestamp() + 0.9

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def make(cluster, clock):
    made = []

    def new(*, deadline=20.0):
        pauses = []

        def pause(seconds):
            pauses.append(seconds)
            return False

        found = EventSender(cluster.writer(deadline=deadline), node="node-1", clock=Clock(unix=clock), pause=pause)
        found.pauses = pauses
        made.append(found)
        found.start()
        return found

    yield new
    for sender in made:
        sender.stop(5.0)


def settle(sender, total):
    """Wait until so many notices have come to an end."""
    until = time.monotonic() + SOON
    while sum(sender.counts.values()) < total:
        assert time.monotonic() < until, sender.counts
        time.sleep(0.005)


def send(sender, *notices):
    before = sum(sender.counts.values())
    for found in notices:
        sender.send(found)
    settle(sender, before + len(notices))


def test_an_event_says_whom_it_is_about_and_who_says_it(cluster, make):
    send(make(), NOTICE)
    (event,) = cluster.events
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team",
        "name": "job-0",
        "uid": UID,
    }
    assert event["metadata"]["namespace"] == "team"
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "GpuCapLate", NOTICE.message)
    assert (event["reportingComponent"], event["source"]["host"], event["count"]) == ("podgpu-enforcer", "node-1", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-11-29T12:00:00Z"


def test_a_static_pod_goes_by_the_uid_that_the_api_server_has(cluster, make):
    send(make(), notice(PodId("team", "etcd", "0" * 32, UID), NoticeReason.OVERRUN, "x"))
    assert cluster.events[0]["involvedObject"]["uid"] == UID


def test_the_same_notice_again_is_the_same_event_counted_up(cluster, make, clock):
    sender = make()
    for _ in range(3):
        send(sender, NOTICE)
        clock.now += 600
    (event,) = cluster.events
    assert (event["count"], event["firstTimestamp"]) == (3, "2026-11-29T12:00:00Z")
    assert event["lastTimestamp"] == "2026-11-29T12:20:00Z"
    assert cluster.server.calls[f"POST {EVENTS}"] == 1
    assert sender.counts == {"sent": 3, "gone": 0, "failed": 0, "dropped": 0}


def test_after_a_restart_it_is_still_the_same_event(cluster, make):
    sender = make()
    send(sender, NOTICE, NOTICE)
    again = make()
    send(again, NOTICE, NOTICE)
    (event,) = cluster.events
    assert event["count"] == 4


def test_one_that_the_api_server_has_forgotten_is_made_anew(cluster, make):
    sender = make()
    send(sender, NOTICE, NOTICE)
    cluster.server.writes.events.clear()
    send(sender, NOTICE)
    assert [event["count"] for event in cluster.events] == [1]


def test_other_texts_reasons_and_pods_are_other_events(cluster, make):
    other = PodId("team", "job-1", UID[::-1], UID[::-1])
    send(
        make(),
        NOTICE,
        notice(POD, NoticeReason.CAP_LATE, "else"),
        notice(POD, NoticeReason.CAP_FAILED, NOTICE.message),
        notice(other, NoticeReason.CAP_LATE, NOTICE.message),
    )
    assert len({event["metadata"]["name"] for event in cluster.events}) == 4


def test_a_failure_that_passes_is_tried_again_after_the_pause_that_is_asked_for(cluster, make):
    faults = [
        {"method": "POST", "first": 1, "count": 1, "status": 503},
        {"method": "POST", "first": 2, "count": 1, "status": 429, "headers": {"Retry-After": "7"}},
    ]
    cluster.says(faults=faults)
    sender = make()
    send(sender, NOTICE)
    assert sender.counts["sent"] == 1
    assert len(sender.pauses) == 2
    assert sender.pauses[1] >= 7.0
    assert len(cluster.events) == 1


def test_after_three_attempts_it_has_failed_and_the_next_ones_go_on(cluster, make, caplog):
    cluster.says(faults=[{"method": "POST", "count": 6, "status": 500}])
    sender = make()
    with caplog.at_level(logging.WARNING):
        send(sender, NOTICE, NOTICE, NOTICE)
    assert (sender.counts["failed"], sender.counts["sent"]) == (2, 1)
    assert caplog.text.count("Events can't be sent") == 1


def test_a_missing_right_is_named_and_not_tried_again(cluster, make, caplog):
    cluster.says(faults=[{"method": "POST", "status": 403}])
    sender = make()
    with caplog.at_level(logging.WARNING):
        send(sender, NOTICE)
    assert sender.counts["failed"] == 1
    assert sender.pauses == []
    assert "create and patch on events" in caplog.text


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 404},
        {"status": 403, "body": json.dumps({"details": {"causes": [{"reason": "NamespaceTerminating"}]}})},
    ],
    ids=["no-namespace", "terminating"],
)
def test_a_namespace_that_goes_is_no_failure(cluster, make, fault):
    cluster.says(faults=[{"method": "POST", **fault}])
    sender = make()
    send(sender, NOTICE)
    assert sender.counts["gone"] == 1


@pytest.mark.parametrize(
    "body", ["[]", '{"details": []}', '{"details": {"causes": 7}}', '{"details": {"causes": [7]}}']
)
def test_a_refusal_in_strange_words_ends_nothing(cluster, make, body):
    cluster.says(faults=[{"method": "POST", "count": 1, "status": 403, "body": body}])
    sender = make()
    send(sender, NOTICE, NOTICE)
    assert (sender.counts["failed"], sender.counts["sent"]) == (1, 1)


@pytest.mark.parametrize("body", ["[]", '{"count": "many"}', '{"count": -1}', "no json"])
def test_a_count_that_is_none_begins_at_two(cluster, make, body):
    send(make(), NOTICE)
    cluster.says(faults=[{"method": "PATCH", "count": 1, "status": 200, "body": body}])
    sender = make()
    send(sender, NOTICE)
    assert cluster.events[0]["count"] == 2


def test_a_namespace_that_is_none_reaches_no_path(cluster, make):
    sender = make()
    send(sender, notice(PodId("a/../b", "x", UID), NoticeReason.OVERRUN, "x"))
    assert sender.counts["failed"] == 1
    assert cluster.server.calls == {}


def test_an_api_server_that_hangs_holds_nobody_up_and_what_finds_no_place_is_counted(cluster, make):
    cluster.says(faults=[{"method": "POST", "hang": True}])
    sender = make(deadline=30.0)
    sender.send(NOTICE)
    until = time.monotonic() + SOON
    while not cluster.server.calls:
        assert time.monotonic() < until
        time.sleep(0.005)
    begun = time.monotonic()
    for _ in range(MOST_WAITING + 10):
        sender.send(NOTICE)
    assert time.monotonic() - begun < 5.0
    assert sender.counts["dropped"] == 10
    cluster.server.stop()


def test_it_stops_at_once_with_notices_left(cluster, make):
    cluster.says(faults=[{"method": "POST", "status": 503}])
    sender = make()
    for _ in range(MOST_WAITING + 1):
        sender.send(NOTICE)
    begun = time.monotonic()
    sender.stop(10.0)
    assert time.monotonic() - begun < 10.0
    sent = sum(sender.counts.values())
    sender.stop(1.0)
    assert sum(sender.counts.values()) == sent
