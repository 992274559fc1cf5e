"""The pods of a scenario as Kubernetes writes them: v1.Pod in JSON, as far as anybody here reads it, and a bit more.

What is more (an environment variable, managed fields) is there to be left out by those who read.
"""

import uuid
from typing import Any

from simulator.scenario import Pod

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
_QOS = {"guaranteed": "Guaranteed", "burstable": "Burstable", "besteffort": "BestEffort"}
_SCHEMES = {"containerd": "containerd", "crio": "cri-o"}


def pod_object(pod: Pod, *, node: str, waiting: bool = False) -> dict[str, Any]:
    """A pod that runs on a node. `waiting`: its gate has not opened, so its containers have not been made."""
    scheme = _SCHEMES.get(pod.runtime, pod.runtime)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "labels": dict(pod.labels),
            "annotations": dict(pod.annotations),
            "ownerReferences": _owners(pod),
            "managedFields": [{"manager": "kubelet", "operation": "Update"}],
        },
        "spec": {
            "nodeName": node,
            "priorityClassName": pod.priority_class,
            "initContainers": [{"name": "podgpu-gate"}] if pod.gated else [],
            "containers": [{"name": c.name, "env": [{"name": "TOKEN", "value": "secret"}]} for c in pod.containers],
        },
        "status": {
            "phase": "Pending" if waiting else "Running",
            "qosClass": _QOS.get(pod.qos, "Burstable"),
            "containerStatuses": [
                {
                    "name": container.name,
                    "containerID": f"{scheme}://{pod.container_id(container.name)}",
                    "state": {"running": {}},
                }
                for container in (() if waiting else pod.containers)
            ],
        },
    }


def _owners(pod: Pod) -> list[dict[str, Any]]:
    if pod.owner is None:
        return []
    return [
        {
            "apiVersion": pod.owner.api_version,
            "kind": pod.owner.kind,
            "name": pod.owner.name,
            "uid": str(uuid.uuid5(_NAMESPACE, f"{pod.namespace}/{pod.owner.kind}/{pod.owner.name}")),
            "controller": True,
        }
    ]
