"""Pod labels as labels of one info metric, for an allow-list of keys. Pure.

Label keys of Kubernetes have characters that Prometheus does not allow, so each gets a name of its own: the same key
always the same name, and two keys never one name.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256

from exporter.metrics.catalog import Family

_FAMILY = "podgpu_pod_labels"
_POD = ("namespace", "pod")


def label_names(keys: Sequence[str]) -> dict[str, str]:
    """The Prometheus label name of each key. Where two keys come to the same name, all of them carry a hash."""
    plain = {key: "label_" + re.sub(r"[^a-zA-Z0-9_]", "_", key) for key in sorted(set(keys))}
    shared = Counter(plain.values())
    hashed = {key: f"{name}_{sha256(key.encode()).hexdigest()[:8]}" for key, name in plain.items()}
    return {key: name if shared[name] == 1 else hashed[key] for key, name in plain.items()}


class PodLabels:
    """The family for one allow-list."""

    def __init__(self, keys: Sequence[str]) -> None:
        names = label_names(keys)
        self._keys = tuple(names)
        self.family = Family(
            _FAMILY,
            "gauge",
            "",
            (*_POD, *names.values()),
            "Always 1; the labels are those of the pod that --pods.label names, empty where the pod has none.",
            "kubelet Pods API or API server, metadata.labels",
        )

    def values(self, namespace: str, pod: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """The label values of one pod's series."""
        return (namespace, pod, *(labels.get(key, "") for key in self._keys))
