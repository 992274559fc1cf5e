"""What a pod is a part of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Owner, Pod
from exporter.workloads import Workload, workload


def pod(*owners, labels=None, annotations=None):
    return Pod("uid", "ns", "p-0", labels=labels or {}, annotations=annotations or {}, owners=owners)


def controller(kind, name):
    return Owner(kind, name, controller=True)


@pytest.mark.parametrize(
    ("found", "part_of"),
    [
        (pod(), ("Pod", "p-0")),
        (pod(controller("StatefulSet", "db")), ("StatefulSet", "db")),
        (pod(controller("Job", "train-1")), ("Job", "train-1")),
        (pod(controller("ReplicaSet", "web-6d4b"), labels={"pod-template-hash": "6d4b"}), ("Deployment", "web")),
        (pod(controller("ReplicaSet", "bare-rs")), ("ReplicaSet", "bare-rs")),
        (pod(controller("ReplicaSet", "web-6d4b"), labels={"pod-template-hash": "beef"}), ("ReplicaSet", "web-6d4b")),
        (pod(Owner("ConfigMap", "not-a-controller")), ("Pod", "p-0")),
        (
            pod(controller("StatefulSet", "lws-0"), labels={"leaderworkerset.sigs.k8s.io/name": "lws"}),
            ("LeaderWorkerSet", "lws"),
        ),
        (pod(controller("RayCluster", "ray"), labels={"ray.io/cluster": "ray"}), ("RayCluster", "ray")),
        (pod(controller("Job", "js-workers-0"), labels={"jobset.sigs.k8s.io/jobset-name": "js"}), ("JobSet", "js")),
        (
            pod(controller("PyTorchJob", "bert"), labels={"training.kubeflow.org/job-name": "bert"}),
            ("PyTorchJob", "bert"),
        ),
        (pod(labels={"training.kubeflow.org/job-name": "bert"}), ("TrainingJob", "bert")),
        (pod(labels={"scheduling.x-k8s.io/pod-group": "gang"}), ("PodGroup", "gang")),
        (pod(annotations={"pod-group-name": "kai-gang"}), ("PodGroup", "kai-gang")),
        (
            pod(controller("StatefulSet", "db"), labels={"scheduling.x-k8s.io/pod-group": "gang"}),
            ("StatefulSet", "db"),
        ),
    ],
)
def test_what_a_pod_is_a_part_of(found, part_of):
    assert workload(found) == Workload(*part_of)


def test_the_name_that_the_author_gave_goes_before_all():
    assert workload(pod(controller("Job", "x"), labels={"ray.io/cluster": "ray"}), job="mine") == ("Job", "mine")


_TEXTS = st.dictionaries(
    st.sampled_from(["volcano.sh/job-name", "ray.io/cluster", "pod-template-hash", "pod-group-name", "other"]),
    st.text(),
)


@given(_TEXTS, _TEXTS, st.lists(st.builds(Owner, st.text(), st.text(), controller=st.booleans()), max_size=3))
def test_hostile_text_is_never_an_error(labels, annotations, owners):
    found = workload(pod(*owners, labels=labels, annotations=annotations))
    assert isinstance(found, Workload)
