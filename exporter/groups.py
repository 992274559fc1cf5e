"""Which pods share a GPU that a scheduler reserved: KAI's and Run:ai's groups. Pure.

The scheduler makes a reservation pod, to which the kubelet gives the GPU, and labels that pod and the pods that get
parts of the GPU with one group. Labels are anybody's to write, so they say only who belongs to a reservation, never
that a pod is one: reservation pods are those in the scheduler's own namespace.
"""

from collections.abc import Iterable, Mapping

from exporter.model import DomainKey, Pod

PodKey = tuple[str, str]  # namespace and name

_GROUP = "runai-gpu-group"  # the group of a pod on one GPU; on several there is a label `runai-gpu-group/<group>` each


def members(
    pods: Iterable[Pod], reservations: Mapping[PodKey, Iterable[DomainKey]]
) -> dict[DomainKey, frozenset[PodKey]]:
    """The pods that a scheduler gave parts of each reserved domain.

    A domain whose reservation pod is not described, or carries no group, is left out: then nobody can tell.
    """
    described = {(pod.namespace, pod.name): pod for pod in pods}
    found: dict[DomainKey, frozenset[PodKey]] = {}
    for key, domains in reservations.items():
        reservation = described.get(key)
        mine = _groups(reservation) if reservation is not None else frozenset()
        if not mine:
            continue
        sharing = frozenset(other for other, pod in described.items() if other != key and mine & _groups(pod))
        for domain in domains:
            found[domain] = found.get(domain, frozenset()) | sharing
    return found


def _groups(pod: Pod) -> frozenset[str]:
    several = (label.removeprefix(f"{_GROUP}/") for label in pod.labels if label.startswith(f"{_GROUP}/"))
    return frozenset(group for group in (pod.labels.get(_GROUP, ""), *several) if group)
