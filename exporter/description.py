"""Adds to a snapshot what Kubernetes and the pods' authors say of the pods in it: caps, owners, labels. Pure.

Nothing here changes a byte that was measured. Without the pods' descriptions the snapshot stays as it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from exporter.caps.book import Domain, NodeCaps
from exporter.caps.policy import Policy
from exporter.model import (
    ContainerName,
    ContainerState,
    DeviceState,
    DomainKey,
    Pod,
    PodState,
    Reading,
    Snapshot,
    SourceState,
)
from exporter.workloads import workload


def described(
    snapshot: Snapshot, pods: Iterable[Pod], caps: NodeCaps, *, policy: Reading[Policy] | None = None
) -> Snapshot:
    """The snapshot with what the pods ask for and belong to, and with the policy file's state where there is one."""
    sources = snapshot.sources
    if policy is not None:
        state = SourceState(policy.source, policy.failure, policy.seconds)
        sources = tuple(sorted((*sources, state), key=lambda source: source.source))
    domains = domains_of(snapshot.devices)
    present = {(state.name.namespace, state.name.pod) for state in snapshot.containers}
    return replace(
        snapshot,
        sources=sources,
        containers=tuple(_capped(state, domains, caps) for state in snapshot.containers),
        pods=tuple(_pod(pod, caps) for key, pod in sorted(_by_name(pods).items()) if key in present),
        annotation_errors=_errors(caps),
    )


def domains_of(devices: Iterable[DeviceState]) -> dict[DomainKey, Domain]:
    """The memory domains, as far as they decide what a request is about."""
    found = {}
    for device in devices:
        for state in device.domains:
            names = {device.device.uuid, str(device.device.index)}
            if state.key.gpu_instance:
                names = {mig.uuid for mig in device.mig_devices if str(mig.gpu_instance) == state.key.gpu_instance}
            found[state.key] = Domain(frozenset(names), state.capacity)
    return found


def _capped(state: ContainerState, domains: Mapping[DomainKey, Domain], caps: NodeCaps) -> ContainerState:
    domain = domains.get(state.domain)
    found = caps.limits(state.name, domain) if domain is not None else None
    if found is None or (found.requested is None and found.limit is None):
        return state
    return replace(state, requested=found.requested, limit=found.limit)


def _pod(pod: Pod, caps: NodeCaps) -> PodState:
    read = caps.pods.get((pod.namespace, pod.name))
    part_of = workload(pod, job=read.job if read is not None else "")
    return PodState(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        workload_kind=part_of.kind,
        workload=part_of.name,
        priority_class=pod.priority_class,
        qos=pod.qos,
        labels=pod.labels,
    )


def _by_name(pods: Iterable[Pod]) -> dict[tuple[str, str], Pod]:
    """One pod for each name. Of two, one is about to be replaced by the other: the running one is meant."""
    found: dict[tuple[str, str], Pod] = {}
    for pod in sorted(pods, key=lambda pod: (pod.phase == "Running", pod.uid)):
        found[pod.namespace, pod.name] = pod
    return found


def _errors(caps: NodeCaps) -> Mapping[tuple[ContainerName, str], int]:
    """How many annotations of each container, or (container empty) of each pod, can't be used, by reason."""
    found = Counter(
        (ContainerName(namespace, pod, error.container), error.reason.value)
        for (namespace, pod), read in caps.pods.items()
        for error in read.errors
    )
    return MappingProxyType(dict(sorted(found.items())))
