"""What a pod is a part of: the job, deployment or cluster that people think in. Pure.

In this order: the name that the pod's author gave (`podgpu.io/job`), the labels by which operators mark all pods of a
job, the controller in the owner references, the group that a gang scheduler formed, the pod itself.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from exporter.model import Owner, Pod

# Labels that hold the name of what all pods of one job belong to. Their operators make several controllers for one job
# (a set for each role), so these labels say more than the owner references.
_JOB_LABELS = (
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("ray.io/cluster", "RayCluster"),
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("training.kubeflow.org/job-name", "TrainingJob"),
    ("volcano.sh/job-name", "VolcanoJob"),
    ("spark-app-selector", "SparkApplication"),
)
_GROUP_LABELS = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.k8s.io/group-name",
)
_GROUP_ANNOTATIONS = ("pod-group-name", "scheduling.k8s.io/group-name")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", re.ASCII)


class Workload(NamedTuple):
    """Kind and name, as the labels of `pod_info` say them."""

    kind: str
    name: str


def workload(pod: Pod, *, job: str = "") -> Workload:
    """What the pod is a part of; the pod itself where nothing else is told. `job` is what its author named."""
    if job:
        return Workload("Job", job)
    controller = next((owner for owner in pod.owners if owner.controller), None)
    for label, kind in _JOB_LABELS:
        if (name := _name(pod.labels, label)) is not None:
            # The operator's own kind, such as PyTorchJob, where the pod's owner is the job itself.
            own = controller is not None and controller.name == name
            return Workload(controller.kind if own and controller is not None else kind, name)
    if controller is not None:
        return _controller(controller, pod)
    for labels, keys in ((pod.labels, _GROUP_LABELS), (pod.annotations, _GROUP_ANNOTATIONS)):
        for key in keys:
            if (name := _name(labels, key)) is not None:
                return Workload("PodGroup", name)
    return Workload("Pod", pod.name)


def _controller(owner: Owner, pod: Pod) -> Workload:
    """The controller, and for a ReplicaSet that a Deployment made, the Deployment: its name without the hash."""
    template = pod.labels.get("pod-template-hash", "")
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return Workload("Deployment", owner.name.removesuffix(f"-{template}"))
    return Workload(owner.kind, owner.name)


def _name(texts: Mapping[str, str], key: str) -> str | None:
    text = texts.get(key)
    return text if text is not None and _NAME.fullmatch(text) else None
