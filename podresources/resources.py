"""What the kubelet says, as frozen plain values, and how they come out of its messages.

Guarantees: every tuple is sorted, and names and ids in it are unique, so that two lists of the same state are equal
although the kubelet's orders are not stable. One resource is one entry, although the kubelet splits it by NUMA node.
One claim is one entry with each device once, although the kubelet's list of a claim can grow over restarts.

Not here: CDI device names. The kubelet repeats the names of earlier devices in later ones, so they identify nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from podresources.v1 import podresources_pb2 as pb


@dataclass(frozen=True, slots=True, order=True)
class ContainerDevices:
    """The devices of one device plugin resource. `numa_nodes` are those of all its devices together."""

    resource: str
    device_ids: tuple[str, ...] = ()
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Memory:
    """One block of pinned memory or huge pages; `size` in bytes."""

    type: str
    size: int
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class ClaimResource:
    """One device of a claim. `share_id` is empty unless the device is handed out in shares."""

    driver: str
    pool: str
    device: str
    share_id: str = ""


@dataclass(frozen=True, slots=True, order=True)
class DynamicResource:
    """One claim of dynamic resource allocation, with the devices of it that the container may use."""

    claim_namespace: str
    claim_name: str
    resources: tuple[ClaimResource, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class ContainerResources:
    """One container; only its name within the pod is known."""

    name: str
    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[Memory, ...] = ()
    dynamic_resources: tuple[DynamicResource, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class PodResources:
    """One pod. Its own `cpu_ids` and `memory` overlap those of its containers: never add them up."""

    namespace: str
    name: str
    containers: tuple[ContainerResources, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Allocatable:
    """What the kubelet can hand out: healthy devices whether or not they are handed out already."""

    devices: tuple[ContainerDevices, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    memory: tuple[Memory, ...] = ()


def pod_from(message: pb.PodResources) -> PodResources:
    """One pod of List or Get."""
    return PodResources(
        namespace=message.namespace,
        name=message.name,
        containers=tuple(sorted(_container(container) for container in message.containers)),
        cpu_ids=_numbers(message.cpu_ids),
        memory=_memory(message.memory),
    )


def allocatable_from(message: pb.AllocatableResourcesResponse) -> Allocatable:
    """The answer of GetAllocatableResources."""
    return Allocatable(
        devices=_devices(message.devices),
        cpu_ids=_numbers(message.cpu_ids),
        memory=_memory(message.memory),
    )


def _container(message: pb.ContainerResources) -> ContainerResources:
    return ContainerResources(
        name=message.name,
        devices=_devices(message.devices),
        cpu_ids=_numbers(message.cpu_ids),
        memory=_memory(message.memory),
        dynamic_resources=_claims(message.dynamic_resources),
    )


def _devices(messages: Sequence[pb.ContainerDevices]) -> tuple[ContainerDevices, ...]:
    ids: dict[str, set[str]] = {}
    nodes: dict[str, set[int]] = {}
    for message in messages:
        ids.setdefault(message.resource_name, set()).update(message.device_ids)
        nodes.setdefault(message.resource_name, set()).update(node.ID for node in message.topology.nodes)
    return tuple(
        ContainerDevices(
            resource=resource, device_ids=tuple(sorted(ids[resource])), numa_nodes=tuple(sorted(nodes[resource]))
        )
        for resource in sorted(ids)
    )


def _memory(messages: Sequence[pb.ContainerMemory]) -> tuple[Memory, ...]:
    if not messages:
        return ()
    # Not de-duplicated: two equal blocks on one node would be two blocks.
    blocks = (Memory(type=m.memory_type, size=m.size, numa_nodes=_numa_nodes(m.topology)) for m in messages)
    return tuple(sorted(blocks))


def _claims(messages: Sequence[pb.DynamicResource]) -> tuple[DynamicResource, ...]:
    if not messages:
        return ()
    resources: dict[tuple[str, str], set[ClaimResource]] = {}
    for message in messages:
        resources.setdefault((message.claim_namespace, message.claim_name), set()).update(
            ClaimResource(driver=r.driver_name, pool=r.pool_name, device=r.device_name, share_id=r.share_id)
            for r in message.claim_resources
        )
    return tuple(
        DynamicResource(claim_namespace=namespace, claim_name=name, resources=tuple(sorted(resources[namespace, name])))
        for namespace, name in sorted(resources)
    )


def _numa_nodes(topology: pb.TopologyInfo) -> tuple[int, ...]:
    return _numbers([node.ID for node in topology.nodes])


def _numbers(values: Sequence[int]) -> tuple[int, ...]:
    # Most containers have none; a node asks this several times for each of them, every few seconds.
    return tuple(sorted(set(values))) if values else ()
