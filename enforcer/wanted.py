"""The caps of a node: what its pods ask for, within policy, on each GPU that they hold, use or name. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from enforcer.model import MIB, Cap, CapKey, PodId
from exporter.caps.book import Decided, Domain, NodeCaps
from exporter.description import domains_of
from exporter.model import ContainerKind, ContainerName, DomainKey, Pod, Snapshot

GATE = "podgpu-gate"  # the name of an init container that waits for the receipt
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The caps of the node's pods, what policy decided about each, and the pods that have a gate."""

    caps: tuple[Cap, ...]
    decided: Mapping[CapKey, Decided]
    gated: frozenset[PodId]
    pods: Mapping[str, PodId]  # by the uid of the cgroup


def wanted(pods: Iterable[Pod], caps: NodeCaps, snapshot: Snapshot) -> Wanted:
    """The caps of all pods that are not over. A limit is rounded down to whole MiB, and is one at least."""
    domains = domains_of(snapshot.devices)
    held: dict[ContainerName, set[DomainKey]] = {}
    for state in snapshot.containers:
        held.setdefault(state.name, set()).add(state.domain)
    found: list[Cap] = []
    decided: dict[CapKey, Decided] = {}
    gated: set[PodId] = set()
    ids: dict[str, PodId] = {}
    for pod in pods:
        if pod.phase in _OVER:
            continue
        whose = ids[pod.cgroup_uid] = PodId(pod.namespace, pod.name, pod.cgroup_uid, pod.uid)
        has_gate = any(container.name == GATE and container.kind is ContainerKind.INIT for container in pod.containers)
        if has_gate:
            gated.add(whose)
        for container in pod.containers:
            if container.kind is ContainerKind.EPHEMERAL or container.name == GATE:
                continue
            name = ContainerName(pod.namespace, pod.name, container.name)
            for key in sorted(_on(name, held.get(name, set()), domains, caps)):
                decision = caps.decided(name, domains[key])
                if decision is not None and (cap := _cap(whose, name, key, decision, gated=has_gate)) is not None:
                    found.append(cap)
                    decided[cap.key] = decision
    return Wanted(tuple(sorted(found, key=lambda cap: cap.key)), decided, frozenset(gated), ids)


def gpu_of(key: DomainKey) -> str:
    """What a memory domain is called here: a GPU by its UUID, a GPU instance of one by its number too."""
    return f"{key.gpu_uuid}/{key.gpu_instance}" if key.gpu_instance else key.gpu_uuid


def _on(
    name: ContainerName, held: set[DomainKey], domains: Mapping[DomainKey, Domain], caps: NodeCaps
) -> set[DomainKey]:
    """The domains that a container's caps are about: those that it holds or uses, and those that a scheduler named."""
    read = caps.pods.get((name.namespace, name.pod))
    named = set(read.of(name.container).devices) if read is not None else set()
    return {key for key, domain in domains.items() if key in held or not domain.names.isdisjoint(named)}


def _cap(pod: PodId, name: ContainerName, key: DomainKey, decided: Decided, *, gated: bool) -> Cap | None:
    request, limit = decided.decision.request, decided.limits.limit
    if limit is None and request.active_thread_percentage is None:
        return None
    whole = None if limit is None else max(1, limit // MIB) * MIB
    where = CapKey(pod, name.container, gpu_of(key))
    reaction = request.on_overrun
    cap = Cap(where, whole, request.active_thread_percentage, gated=gated)
    return cap if reaction is None else Cap(where, whole, request.active_thread_percentage, reaction, gated)
