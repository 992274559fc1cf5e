"""Pods as values: out of JSON that may say anything, and the names that follow from them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import ContainerKind, ContainerName, Owner, Pod, PodContainer
from exporter.sources.backoff import Backoff
from exporter.sources.podjson import Event, PodList, parse_event, parse_list, pod_of
from exporter.sources.podstore import PodStore, bounded, names_of
from tests.pods.conftest import NODE, Moment, container_id, pod, uid

MIRROR = {
    "kubernetes.io/config.hash": "b53dfa9e2dc9b890f7fadb2770857b03",
    "kubernetes.io/config.mirror": "b53dfa9e2dc9b890f7fadb2770857b03",
    "kubernetes.io/config.source": "file",
}
STATIC_UID = "b53dfa9e2dc9b890f7fadb2770857b03"


def read(**changes) -> Pod | None:
    return pod_of({**pod(1), **changes}, node=NODE)


def test_a_whole_pod():
    item = pod(
        1,
        labels={"app": "train"},
        annotations={"podgpu.io/job": "nightly"},
        ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "o", "controller": True}],
    )
    item["spec"]["priorityClassName"] = "high"
    item["spec"]["initContainers"] = [{"name": "prepare"}, {"name": "proxy", "restartPolicy": "Always"}]
    ended = {"terminated": {"containerID": "cri-o://before"}}
    item["status"]["containerStatuses"][0]["lastState"] = ended
    item["status"]["initContainerStatuses"] = [{"name": "prepare", "containerID": "docker://p", "state": ended}]
    item["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "containerID": "d"}]
    assert pod_of(item, node=NODE) == Pod(
        uid=uid(1),
        namespace="ml",
        name="pod-1",
        labels={"app": "train"},
        annotations={"podgpu.io/job": "nightly"},
        owners=(Owner("Job", "train", api_version="batch/v1", uid="o", controller=True),),
        containers=(
            PodContainer("debug", ContainerKind.EPHEMERAL, ("d",)),
            PodContainer("main", ContainerKind.MAIN, (container_id(1), "before")),
            PodContainer("prepare", ContainerKind.INIT, ("p", "before")),
            PodContainer("proxy", ContainerKind.SIDECAR),
        ),
        phase="Running",
        qos="Burstable",
        priority_class="high",
    )


def test_what_is_no_pod_of_this_node_is_none():
    assert read(metadata={"namespace": "ml", "name": "a"}) is None
    assert read(metadata={"uid": 7, "namespace": "ml", "name": "a"}) is None
    assert read(spec={"nodeName": "node-2"}) is None
    assert read(spec=None, status=None) == Pod(uid(1), "ml", "pod-1")


KEYS = """metadata spec status uid name namespace labels annotations ownerReferences containers initContainers
containerStatuses state terminated containerID object type kind items resourceVersion code details"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=25,
)


@given(JSON)
def test_whatever_the_json_says_there_is_an_answer(found):
    text = json.dumps(found).encode()
    assert isinstance(parse_list(text, node=NODE), PodList | Failure)
    assert isinstance(parse_event(text, node=NODE), Event | Failure)
    pod_of(found, node=NODE)


@given(JSON, st.sampled_from(["metadata", "spec", "status"]))
def test_whatever_one_part_of_a_pod_says_the_rest_is_read(found, part):
    item = {**pod(1), part: found}
    answer = pod_of(item, node=NODE)
    if part == "status" and answer is not None:
        assert [container.name for container in answer.containers if container.kind is ContainerKind.MAIN] == ["main"]
    body = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [item, pod(2)]}
    listed = parse_list(json.dumps(body).encode(), node=NODE)
    assert isinstance(listed, PodList)
    assert uid(2) in {known.uid for known in listed.pods}


@given(st.binary(max_size=40))
def test_bytes_that_are_no_json_are_a_failure(text):
    assert isinstance(parse_list(text, node=NODE), Failure)


def test_deep_nesting_is_a_failure_and_no_crash():
    text = b"[" * 200_000
    assert parse_list(text, node=NODE).reason is Reason.MALFORMED
    assert parse_event(text, node=NODE).reason is Reason.MALFORMED


def test_annotations_are_kept_to_a_size_and_never_to_a_value_that_was_not_written():
    kept = bounded(
        {"a": "1", "b": "4096" + " " * 100_000, "kubectl.kubernetes.io/last-applied-configuration": "{}" * 50_000}
    )
    assert kept.keys() == {"a", "b"}
    assert kept["a"] == "1"
    assert len(kept["b"]) == 4097
    assert kept["b"].endswith("…")


# --- names ------------------------------------------------------------------------------------------------------------


def plain(number: int, name: str = "", **fields) -> Pod:
    container = PodContainer("main", ids=(container_id(number),))
    return Pod(uid(number), "ml", name or f"pod-{number}", containers=(container,), **fields)


def test_k43_k44_a_mirror_pod_names_the_static_pod_by_the_kubelets_uid():
    mirror = pod_of(pod(1, "etcd", annotations=MIRROR), node=NODE)
    names = names_of([mirror, plain(2)])
    assert names.pods[STATIC_UID] == names.pods[uid(1)] == ("ml", "etcd")
    assert names.by_uid[STATIC_UID] is mirror
    assert len(names.by_uid) == 2


def test_the_hash_alone_makes_no_static_pod():
    annotations = {"kubernetes.io/config.hash": uid(2)}
    assert pod_of(pod(1, annotations=annotations), node=NODE).static_uid == ""


def test_no_pod_takes_the_uid_of_another_by_an_annotation():
    thief = plain(1, static_uid=uid(2))
    names = names_of([thief, plain(2)])
    assert names.pods[uid(2)] == ("ml", "pod-2")
    assert names.by_uid[uid(2)].name == "pod-2"
    rivals = names_of([plain(3, static_uid="same"), plain(4, static_uid="same")])
    assert "same" not in rivals.pods
    assert "same" not in rivals.by_uid


def test_a_container_id_that_two_pods_claim_names_neither():
    rival = Pod(uid(3), "ml", "rival", containers=(PodContainer("other", ids=(container_id(1),)),))
    assert container_id(1) not in names_of([plain(1), rival]).containers
    assert names_of([plain(1)], gone=[rival]).containers[container_id(1)] == ContainerName("ml", "pod-1", "main")


def test_two_pods_of_one_name_are_two_pods():
    names = names_of([plain(1, "train-0")], gone=[plain(2, "train-0")])
    assert names.pods == {uid(1): ("ml", "train-0"), uid(2): ("ml", "train-0")}
    assert names.by_uid.keys() == {uid(1)}


@given(st.permutations([plain(1), plain(2), plain(3, static_uid="s"), plain(4, static_uid="s"), plain(5, "pod-1")]))
def test_names_do_not_depend_on_the_order_of_pods(pods):
    names, sorted_names = names_of(pods), names_of(sorted(pods, key=lambda found: found.uid))
    assert names == sorted_names


# --- the store --------------------------------------------------------------------------------------------------------


def test_a_store_without_news_answers_with_the_same_names():
    store = PodStore(Clock(monotonic=Moment()))
    assert store.read().names is None
    store.replace([plain(1), plain(2)])
    first = store.read().names
    store.put(plain(1))
    assert store.read().names is first
    store.put(plain(1, labels={"a": "b"}))
    assert store.read().names is not first


def test_a_store_says_since_when_it_has_heard_nothing():
    moment = Moment()
    store = PodStore(Clock(monotonic=moment))
    store.replace([plain(1)])
    moment.now += 10
    assert (store.read().failure, store.read().heard_at) == (None, moment.now)
    for _ in range(3):
        store.lost(Failure(Reason.TIMEOUT, "gone"))
        moment.now += 10
    assert (store.read().failure.detail, moment.now - store.read().heard_at) == ("gone", 30)
    store.heard()
    assert store.read().failure is None


def test_k58_churning_pods_leave_nothing_behind():
    moment = Moment()
    store = PodStore(Clock(monotonic=moment))
    for number in range(3000):
        store.put(plain(number))
        store.remove(uid(number - 10))
        moment.now += 10
    store.replace([plain(5000)])
    moment.now += 601
    assert store.read().names.pods == {uid(5000): ("ml", "pod-5000")}
    assert store._gone == {}


@given(st.lists(st.tuples(st.sampled_from("pdr"), st.integers(1, 5)), max_size=30))
def test_a_store_has_the_pods_that_were_put_and_not_removed_and_knows_all_names(steps):
    store = PodStore(Clock(monotonic=Moment()))
    store.replace([])
    present, seen = set(), set()
    for step, number in steps:
        match step:
            case "p":
                store.put(plain(number))
                present.add(uid(number))
            case "d":
                store.remove(uid(number))
                present.discard(uid(number))
            case "r":
                store.replace([plain(number)])
                present = {uid(number)}
        seen |= present
        names = store.read().names
        assert names.by_uid.keys() == present
        assert names.pods.keys() == seen


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.floats(0, 100))
def test_pauses_are_bounded_and_never_shorter_than_the_server_asks(chances, at_least):
    backoff = Backoff(first=0.5, longest=30.0, chance=lambda: chances[0])
    for _ in chances:
        pause = backoff.pause(at_least=at_least)
        assert at_least <= pause <= max(30.0, at_least * 1.25)
        chances.append(chances.pop(0))


def test_what_worked_for_a_while_is_tried_again_soon():
    backoff = Backoff(first=0.5, longest=30.0, chance=lambda: 1.0)
    assert [backoff.pause() for _ in range(3)] == [0.5, 1.0, 2.0]
    assert backoff.pause(worked_for=29.0) == 4.0
    assert backoff.pause(worked_for=30.0) == 0.5
