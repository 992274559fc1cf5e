"""Which source is in force, what stands in for it, and what a reading says of that."""

import logging

import pytest

from exporter.clock import Clock
from exporter.conditions import partial_failures
from exporter.errors import Reason
from exporter.sources.apipods import ApiServerPods
from exporter.sources.podchoice import PodChoice
from exporter.sources.pods import LogLinkNames
from exporter.sources.podsapi import KubeletPods
from simulator.podlogs import PodLogs
from tests.pods.conftest import NODE, PATIENCE, eventually, nobody_follows, pod, uid


class Chosen:
    """A choice between the sources that a test has, and what its last reading was."""

    def __init__(self, tmp_path, moment, pauses, *, node=None, cluster=None, links=True):
        clock = Clock(monotonic=moment)
        self.logs = PodLogs(tmp_path / "log")
        self.moment = moment
        socket = str(tmp_path / "pods-api.sock")
        self.choice = PodChoice(
            kubelet=(lambda: KubeletPods(socket, clock=clock, wait=pauses)) if node else None,
            api=(lambda: ApiServerPods(cluster.api(), node=NODE, clock=clock, wait=pauses)) if cluster else None,
            links=LogLinkNames(tmp_path / "log", clock=clock) if links else None,
            pods_socket=socket,
            clock=clock,
            first_wait=PATIENCE,
        )

    def log_of(self, number: int) -> None:
        name = f"log-{number}"
        self.logs.put("ml", pod=name, uid=uid(number), container="main", container_id=f"{number:064x}")

    def read(self):
        return self.choice.read().outcome

    def pods(self) -> set[str]:
        outcome = self.choice.read().value
        return {name for _, name in outcome.pods.values()} if outcome is not None else set()


@pytest.fixture
def chosen(tmp_path, moment, pauses, node, cluster):  # both servers outlive whoever asks them
    made = []

    def make(**sources) -> Chosen:
        made.append(Chosen(tmp_path, moment, pauses, **sources))
        return made[-1]

    yield make
    for each in made:
        each.choice.stop()
    eventually(nobody_follows)


def in_force(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.message.startswith("pods now come from")]


@pytest.fixture(autouse=True)
def _logging(caplog):
    caplog.set_level(logging.INFO)


def test_the_first_reading_has_the_kubelets_pods_and_the_api_server_is_left_alone(chosen, node, cluster, caplog):
    found = chosen(node=node, cluster=cluster)
    assert found.pods() == {"pod-1", "pod-2"}
    found.moment.now += 1000
    assert found.pods() == {"pod-1", "pod-2"}
    assert node.calls == {"WatchPods": 1}
    assert cluster.server.calls.total() == 0
    assert in_force(caplog) == ["pods now come from the kubelet's Pods API"]
    assert partial_failures(found.choice.read()) == ()


def test_without_a_socket_the_api_server_is_asked_and_until_it_answers_the_log_links(chosen, node, cluster, caplog):
    node.server.stop()
    found = chosen(node=node, cluster=cluster)
    cluster.says(faults=[{"delay": 1.0, "count": 1}])
    found.log_of(1)
    assert found.pods() == {"log-1"}
    assert found.read().stale is None  # it has only just been asked
    eventually(lambda: found.pods() == {"pod-1", "pod-2"})
    assert (cluster.lists, cluster.watches) in ((1, 0), (1, 1))
    assert [line.partition(" (")[0] for line in in_force(caplog)] == [
        "pods now come from the log links",
        "pods now come from the API server",
    ]


def test_a_kubelet_that_gets_the_api_later_is_found_and_the_api_server_left(chosen, node, cluster):
    node.server.stop()
    found = chosen(node=node, cluster=cluster)
    eventually(lambda: found.pods() == {"pod-1", "pod-2"})
    node.says(pod_objects=[pod(5)])
    node.restart()
    eventually(lambda: set(found.read().by_uid) == {uid(5)})
    asked = cluster.server.calls.total()
    cluster.restart()  # whoever still watched would come back
    found.moment.now += 1000
    assert found.pods() == {"pod-5"}
    assert asked <= 2
    assert cluster.server.calls.total() == 0


def test_a_kubelet_that_restarts_loses_no_name_and_new_ones_come_from_the_log_links(chosen, node, cluster):
    found = chosen(node=node, cluster=cluster)
    found.read()
    node.server.stop()
    found.log_of(1)
    found.log_of(3)
    eventually(lambda: found.pods() == {"pod-1", "pod-2", "log-3"})
    reading = found.choice.read()
    stale = reading.value.stale
    assert stale.reason in (Reason.UNAVAILABLE, Reason.SOCKET_MISSING)
    assert stale.detail.startswith("the kubelet's Pods API: ")
    assert "known pods are as of" in stale.detail
    assert partial_failures(reading) == (stale,)
    assert cluster.server.calls.total() == 0
    node.restart()
    eventually(lambda: found.read().stale is None)
    assert found.pods() == {"pod-1", "pod-2"}


def test_a_kubelet_that_stays_away_is_stood_in_for_by_the_api_server(chosen, node, cluster):
    found = chosen(node=node, cluster=cluster)
    found.read()
    node.server.stop()
    cluster.says(pods=[pod(1), pod(4)])
    eventually(lambda: found.read().stale is not None)
    found.moment.now += 31
    eventually(lambda: found.pods() == {"pod-1", "pod-4"})
    assert found.read().stale is None


def test_the_log_links_alone_where_nothing_else_is(chosen, node, caplog):
    node.server.stop()
    found = chosen(node=node)
    found.log_of(1)
    assert found.pods() == {"log-1"}
    assert found.read().stale is None
    assert in_force(caplog) == ["pods now come from the log links"]


def test_an_api_server_that_refuses_leaves_the_log_links_and_says_why(chosen, cluster):
    cluster.says(faults=[{"status": 403}])
    found = chosen(cluster=cluster)
    found.log_of(1)
    eventually(lambda: found.read().stale is not None)
    assert found.pods() == {"log-1"}
    assert found.read().stale.reason is Reason.NO_PERMISSION


def test_names_survive_without_log_links_too(chosen, node):
    found = chosen(node=node, links=False)
    assert found.pods() == {"pod-1", "pod-2"}
    node.server.stop()
    eventually(lambda: found.read().stale is not None)
    found.moment.now += 100_000
    assert found.pods() == {"pod-1", "pod-2"}
    assert found.read().by_uid.keys() == {uid(1), uid(2)}


def test_a_kubelet_that_was_asked_for_and_is_not_there_is_a_failure(chosen, node):
    node.server.stop()
    found = chosen(node=node, links=False)
    assert found.read().reason is Reason.SOCKET_MISSING
    node.restart()
    eventually(lambda: found.pods() == {"pod-1", "pod-2"})


def test_an_api_server_that_was_asked_for_and_has_not_answered_is_a_failure(chosen, cluster):
    cluster.says(faults=[{"hang": True}])
    found = chosen(cluster=cluster, links=False)
    assert found.read().reason is Reason.MISSING


def test_everything_gone_is_a_failure_with_the_best_sources_reason(tmp_path, chosen, node, cluster):
    node.says(faults=[{"method": "WatchPods", "code": "UNIMPLEMENTED"}])
    cluster.says(faults=[{"status": 403}])
    found = chosen(node=node, cluster=cluster)
    (tmp_path / "log" / "containers").rmdir()
    eventually(lambda: found.read().reason is Reason.UNIMPLEMENTED)


def test_one_line_for_each_change(chosen, node, caplog):
    found = chosen(node=node)
    for _ in range(5):
        found.read()
    node.server.stop()
    eventually(lambda: found.read().stale is not None)
    for _ in range(5):
        found.read()
    lines = in_force(caplog)
    assert len(lines) == 2
    assert lines[1].startswith("pods now come from the log links (the kubelet's Pods API: ")
    assert "secret" not in caplog.text
