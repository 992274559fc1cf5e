"""The kubelet's Pods API: the client, and the feed that follows it through the kubelet's restarts."""

import threading

import pytest

import podresources
from exporter import settings
from exporter.errors import Reason
from exporter.model import ContainerKind, ContainerName, Owner, PodContainer
from podresources import EventKind, PodEvent, PodsClient
from podresources.pods import FIELD_MASK
from podresources.v1alpha1 import pod_pb2, pods_pb2
from simulator import podsapi
from tests.pods.conftest import PATIENCE, Kubelet, container_id, eventually, named, pod, uid

WATCH = {"method": "WatchPods"}


@pytest.fixture(autouse=True)
def _silent(capfd):
    """Whatever happens on the socket, nothing is written behind the caller's back."""
    yield
    assert capfd.readouterr().err == ""


def client(node: Kubelet, *, deadline: float = PATIENCE) -> PodsClient:
    return PodsClient(node.socket, deadline=deadline)


def events(found: PodsClient, count: int, **options) -> list[PodEvent]:
    """The first events of a watch."""
    watch = found.watch(**options)
    return [next(watch) for _ in range(count)]


def refused(kind: type[podresources.PodResourcesError], call) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the client -------------------------------------------------------------------------------------------------------


def test_field_numbers_are_those_of_kubernetes():
    """Written byte by byte, as tag (number * 8 + 2 for texts and messages, + 0 for numbers), length, content."""

    def field(number: int, *parts: bytes) -> bytes:
        content = b"".join(parts)
        tag = number * 8 + 2
        return (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + bytes([len(content)]) + content

    terminated = field(3, field(7, b"last"))
    status = field(1, b"main") + field(2, field(3, field(7, b"now"))) + field(3, terminated) + field(8, b"id")
    owner = field(1, b"Job") + field(3, b"train") + field(4, b"owner") + field(5, b"batch/v1") + bytes([6 * 8, 1])
    meta = field(1, b"pod") + field(3, b"ml") + field(5, b"uid")
    meta += field(11, field(1, b"l"), field(2, b"1")) + field(12, field(1, b"a"), field(2, b"2")) + field(13, owner)
    spec = field(2, field(1, b"main")) + field(10, b"node") + field(24, b"high")
    spec += field(20, field(1, b"side"), field(24, b"Always"))
    stati = field(1, b"Running") + field(8, status) + field(9, b"Burstable")
    stati += field(10, field(1, b"side")) + field(13, field(1, b"debug"))
    run = pod_pb2.ContainerState(terminated={"containerID": "last"})
    assert pod_pb2.Pod.FromString(field(1, meta) + field(2, spec) + field(3, stati)) == pod_pb2.Pod(
        metadata=pod_pb2.ObjectMeta(
            name="pod",
            namespace="ml",
            uid="uid",
            labels={"l": "1"},
            annotations={"a": "2"},
            ownerReferences=[
                {"kind": "Job", "name": "train", "uid": "owner", "apiVersion": "batch/v1", "controller": True}
            ],
        ),
        spec=pod_pb2.PodSpec(
            containers=[{"name": "main"}],
            nodeName="node",
            priorityClassName="high",
            initContainers=[{"name": "side", "restartPolicy": "Always"}],
        ),
        status=pod_pb2.PodStatus(
            phase="Running",
            qosClass="Burstable",
            containerStatuses=[
                pod_pb2.ContainerStatus(
                    name="main",
                    state=pod_pb2.ContainerState(terminated={"containerID": "now"}),
                    lastState=run,
                    containerID="id",
                )
            ],
            initContainerStatuses=[{"name": "side"}],
            ephemeralContainerStatuses=[{"name": "debug"}],
        ),
    )
    event = pods_pb2.WatchPodsEvent(type=pods_pb2.INITIAL_SYNC_COMPLETE, pod=b"x")
    assert event.SerializeToString() == bytes([8, 4]) + field(2, b"x")
    assert pods_pb2.ListPodsResponse(pods=[b"x"]).SerializeToString() == field(1, b"x")
    assert pods_pb2.GetPodRequest(podUID="u").SerializeToString() == field(1, b"u")
    assert pods_pb2.GetPodResponse(pod=b"x").SerializeToString() == field(1, b"x")
    kinds = (pods_pb2.UNSPECIFIED, pods_pb2.ADDED, pods_pb2.MODIFIED, pods_pb2.DELETED)
    assert kinds == (0, 1, 2, 3)


def full_pod() -> dict:
    found = pod(
        1,
        labels={"app": "train"},
        annotations={"podgpu.io/job": "nightly"},
        ownerReferences=[
            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "owner", "controller": True}
        ],
    )
    found["spec"] |= {
        "priorityClassName": "high",
        "initContainers": [{"name": "prepare"}, {"name": "proxy", "restartPolicy": "Always"}],
    }
    ended = {"terminated": {"containerID": "containerd://before"}}
    found["status"]["containerStatuses"][0]["lastState"] = ended
    found["status"]["initContainerStatuses"] = [{"name": "prepare", "state": ended}]
    found["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "containerID": "containerd://d"}]
    return found


def test_a_pod_is_what_kubernetes_says_it_is(node):
    node.says(pod_objects=[full_pod()])
    expected = podresources.Pod(
        uid=uid(1),
        namespace="ml",
        name="pod-1",
        labels={"app": "train"},
        annotations={"podgpu.io/job": "nightly"},
        owners=(podresources.Owner("Job", "train", api_version="batch/v1", uid="owner", controller=True),),
        containers=(
            podresources.PodContainer("debug", "ephemeral", ("containerd://d",)),
            podresources.PodContainer("main", "main", (f"containerd://{container_id(1)}", "containerd://before")),
            podresources.PodContainer("prepare", "init", ("containerd://before",)),
            podresources.PodContainer("proxy", "sidecar"),
        ),
        node="node-1",
        phase="Running",
        qos_class="Burstable",
        priority_class="high",
    )
    assert client(node).list() == (expected,)
    assert client(node).get(uid(1)) == expected
    assert events(client(node), 2) == [PodEvent(EventKind.ADDED, expected), PodEvent(EventKind.SYNCED)]


def test_the_field_mask_leaves_nothing_out_that_is_read(node, monkeypatch):
    node.says(pod_objects=[full_pod()])
    masked = client(node).list()
    monkeypatch.setattr("podresources.pods.FIELD_MASK", "")
    assert client(node).list() == masked


def test_a_mask_leaves_out_what_it_does_not_name(node, monkeypatch):
    assert "env" not in FIELD_MASK
    monkeypatch.setattr("podresources.pods.FIELD_MASK", "metadata.uid,status.containerStatuses.name")
    found = client(node).get(uid(1))
    assert found == podresources.Pod(uid(1), "", "")


@pytest.mark.parametrize("call", ["list", "get", "watch"])
def test_a_mask_that_the_kubelet_refuses_is_not_sent_again(node, monkeypatch, call):
    monkeypatch.setattr("podresources.pods.FIELD_MASK", "metadata.uid,spec.newest")
    found = client(node)
    for _ in range(2):
        match call:
            case "list":
                assert [known.name for known in found.list()] == ["pod-1", "pod-2"]
            case "get":
                assert found.get(uid(2)).name == "pod-2"
            case "watch":
                assert [event.kind for event in events(found, 3)][-1] is EventKind.SYNCED
    assert sum(node.calls.values()) == 2  # the simulated kubelet counts what it takes


def test_a_watch_tells_each_change(node):
    watch = client(node).watch()
    assert [next(watch).kind for _ in range(3)] == [EventKind.ADDED, EventKind.ADDED, EventKind.SYNCED]
    node.says(pod_objects=[pod(1), pod(2), pod(3)])
    assert next(watch).pod.name == "pod-3"
    node.says(pod_objects=[pod(1, labels={"a": "b"}), pod(2), pod(3)])
    changed = next(watch)
    assert (changed.kind, changed.pod.labels) == (EventKind.MODIFIED, {"a": "b"})
    node.says(pod_objects=[pod(2), pod(3)])
    assert next(watch) == PodEvent(EventKind.DELETED, podresources.Pod(uid(1), "ml", "pod-1"))
    watch.close()


def test_how_a_watch_ends(node):
    node.says(faults=[{**WATCH, "after": 1, "code": "UNAVAILABLE", "text": "bye"}])
    assert "bye" in refused(podresources.Unavailable, lambda: events(client(node), 2))
    node.says(faults=[{**WATCH, "after": 3}])
    assert "ended the watch" in refused(podresources.Unavailable, lambda: events(client(node), 4))
    node.says(faults=[{**WATCH, "code": "FAILED_PRECONDITION", "text": "not synced"}])
    refused(podresources.NotReady, lambda: events(client(node), 1))
    node.says(faults=[])
    refused(podresources.WatchOver, lambda: events(client(node), 4, seconds=0.3))


def test_pods_that_are_not_all_told_in_time_end_the_watch(node):
    node.says(faults=[{**WATCH, "after": 1, "hang": True}])
    assert "not all pods in 0.2 s" in refused(
        podresources.DeadlineExceeded, lambda: events(client(node, deadline=0.2), 2)
    )


def test_a_watch_that_is_silent_once_all_are_told_goes_on_beyond_the_deadline(node):
    watch = client(node, deadline=0.2).watch(seconds=1.0)
    assert [next(watch).kind for _ in range(3)][-1] is EventKind.SYNCED
    refused(podresources.WatchOver, lambda: next(watch))


def test_close_ends_a_watch_that_another_thread_follows(node):
    found = client(node)
    synced, errors = threading.Event(), []

    def follow() -> None:
        try:
            for event in found.watch():
                if event.kind is EventKind.SYNCED:
                    synced.set()
        except podresources.PodResourcesError as error:
            errors.append(type(error))

    thread = threading.Thread(target=follow)
    thread.start()
    assert synced.wait(PATIENCE)
    found.close()
    thread.join(PATIENCE)
    assert errors == [podresources.Unavailable]


def test_a_pod_that_is_not_there(node):
    assert uid(7) in refused(podresources.PodNotFound, lambda: client(node).get(uid(7)))


def test_a_kubelet_without_the_api(tmp_path):
    refused(podresources.SocketMissing, lambda: PodsClient(tmp_path / "pods-api.sock").list())
    refused(podresources.SocketMissing, lambda: events(PodsClient(tmp_path / "pods-api.sock"), 1))


def test_bytes_that_are_no_pod(node, monkeypatch):
    monkeypatch.setattr(podsapi, "_encoded", lambda _pod, _mask: b"\xff\xff")
    refused(podresources.MalformedAnswer, client(node).list)
    refused(podresources.MalformedAnswer, lambda: events(client(node), 1))
    monkeypatch.setattr(podsapi, "_encoded", lambda _pod, _mask: b"")
    assert "without a uid" in refused(podresources.MalformedAnswer, client(node).list)


def test_the_default_socket_is_the_same_in_both_packages():
    assert settings.DEFAULT_PODS_SOCKET == podresources.DEFAULT_PODS_SOCKET


# --- the feed ---------------------------------------------------------------------------------------------------------


def test_one_watch_and_no_list_however_long_it_goes_on(node, follow_kubelet):
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    for number in range(3, 9):
        node.says(pod_objects=[pod(number)])
        eventually(lambda number=number: named(feed) == {f"pod-{number}"})
    assert node.calls == {"WatchPods": 1}


def test_a_pod_becomes_a_value_of_the_model(node, follow_kubelet):
    node.says(pod_objects=[full_pod()])
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1"})
    found = feed.read().names.by_uid[uid(1)]
    assert found.owners == (Owner("Job", "train", api_version="batch/v1", uid="owner", controller=True),)
    assert found.containers[1] == PodContainer("main", ContainerKind.MAIN, (container_id(1), "before"))
    assert found.containers[3] == PodContainer("proxy", ContainerKind.SIDECAR)
    assert (found.phase, found.qos, found.priority_class) == ("Running", "Burstable", "high")
    assert feed.read().names.containers["d"] == ContainerName("ml", "pod-1", "debug")


def test_a_restart_keeps_all_names_and_ends_with_the_pods_that_there_are_then(node, follow_kubelet):
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    node.server.stop()
    eventually(lambda: feed.read().failure is not None)
    assert named(feed) == {"pod-1", "pod-2"}
    node.says(pod_objects=[pod(2), pod(3)])
    node.restart()
    eventually(lambda: named(feed) == {"pod-2", "pod-3"})
    assert feed.read().failure is None
    assert feed.read().names.pods[uid(1)] == ("ml", "pod-1")


def test_pods_that_were_not_all_told_change_nothing(node, follow_kubelet):
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    node.server.stop()
    node.says(pod_objects=[pod(3), pod(4)], faults=[{**WATCH, "after": 1, "code": "INTERNAL", "count": 3}])
    node.restart()
    seen = set()
    eventually(lambda: seen.add(frozenset(named(feed))) or (node.watches >= 4 and named(feed) == {"pod-3", "pod-4"}))
    assert seen <= {frozenset({"pod-1", "pod-2"}), frozenset({"pod-3", "pod-4"})}


def test_a_kubelet_that_is_not_ready_is_asked_again(node, follow_kubelet, pauses):
    node.says(faults=[{**WATCH, "code": "FAILED_PRECONDITION", "text": "not synced", "count": 3}])
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    assert pauses.seen == [0.25, 0.5, 1.0]


def test_a_kubelet_that_hangs_before_all_are_told(node, follow_kubelet):
    node.says(faults=[{**WATCH, "after": 1, "hang": True}])
    feed = follow_kubelet(deadline=0.2)
    eventually(lambda: feed.read().failure.reason is Reason.TIMEOUT)
    assert feed.read().names is None
    node.says(faults=[])
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})


def test_a_kubelet_that_cuts_each_watch_off_is_not_asked_in_a_hot_loop(node, follow_kubelet, pauses):
    node.says(faults=[{**WATCH, "after": 3, "code": "ABORTED", "count": 8}])
    feed = follow_kubelet()
    eventually(lambda: node.watches == 9)
    assert pauses.seen == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    eventually(lambda: feed.read().failure is None)


def test_a_watch_is_begun_anew_against_lost_events_and_that_is_no_failure(node, follow_kubelet, monkeypatch, pauses):
    monkeypatch.setattr("exporter.sources.podsapi.ANEW_AFTER", 0.2)
    feed = follow_kubelet()
    eventually(lambda: node.watches >= 3)
    assert named(feed) == {"pod-1", "pod-2"}
    assert feed.read().failure is None
    assert pauses.seen == []


def test_stop_ends_the_watch(node, follow_kubelet):
    feed = follow_kubelet()
    eventually(lambda: named(feed) == {"pod-1", "pod-2"})
    feed.stop()
    feed._thread.join(PATIENCE)
    assert not feed._thread.is_alive()
