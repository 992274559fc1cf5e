"""What a container is called: from the kernel's name for it to Kubernetes' name, and back. Pure."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from exporter.model import ContainerName, ContainerRef, PodNames


def name_of(container: ContainerRef, names: PodNames) -> ContainerName:
    """The container's name; where nothing names it, the pod's uid and the start of the container's id."""
    if (name := names.containers.get(container.container_id)) is not None:
        return name
    if (pod := names.pods.get(container.pod_uid)) is not None:
        # Known pod, unknown container: a sandbox (gVisor, Kata), or too young to have a log. The pod is certain.
        return ContainerName(*pod, "")
    return ContainerName("", container.pod_uid, container.container_id[:12])


def refs_of(
    wanted: Collection[ContainerName], seen: Iterable[ContainerRef], names: PodNames
) -> Mapping[ContainerName, frozenset[ContainerRef]]:
    """The kernel's names of the wanted containers.

    `seen` are those of containers with processes, and the only ones of a container that has any: a container that runs
    may still be known under the id that it had before it was started anew.
    """
    found: dict[ContainerName, set[ContainerRef]] = defaultdict(set)
    for ref in seen:
        found[name_of(ref, names)].add(ref)
    idle = {name for name in wanted if name not in found}
    if idle:
        uids: dict[tuple[str, str], list[str]] = defaultdict(list)
        for uid, pod in names.pods.items():
            uids[pod].append(uid)
        for container_id, name in names.containers.items():
            if name in idle:
                for uid in uids.get((name.namespace, name.pod), ()):
                    found[name].add(ContainerRef(uid, container_id))
    return {name: frozenset(refs) for name, refs in found.items()}


def job_namespaces(pod_uid: str, container: str) -> tuple[str, str]:
    """The MPS namespaces that podgpu makes: for a pod whose caps are one and the same, and for one container of a pod.

    Names of namespaces are of lower-case letters, digits and underscores, at most 64 of them, so a container's name
    goes in as the start of its hash.
    """
    pod = "j_" + pod_uid.replace("-", "_").lower()
    return pod, f"{pod}_{hashlib.sha256(container.encode('utf-8', 'replace')).hexdigest()[:12]}"
