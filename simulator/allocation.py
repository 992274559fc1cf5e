"""Which device ids a node's kubelet has, and which container got which: by the scenario's order, the same each time.

Ids have the forms of NVIDIA's device plugin: the UUID of a GPU or a MIG device, with `::n` where it is replicated.
"""

from collections.abc import Mapping

from simulator.scenario import Gpu, Held, Scenario, ScenarioError


def advertised(scenario: Scenario) -> dict[str, list[str]]:
    """The ids of all devices, by resource."""
    found: dict[str, list[str]] = {}
    for gpu in scenario.gpus:
        ids = found.setdefault(gpu.resource, [])
        for uuid in _uuids(gpu):
            ids += _replicas(uuid, gpu.replicas)
    return found


def handed_out(scenario: Scenario) -> Mapping[tuple[str, str], dict[str, list[str]]]:
    """The ids that each container got, by (pod uid, container) and resource. Raises ScenarioError."""
    free = {uuid: _replicas(uuid, gpu.replicas) for gpu in scenario.gpus for uuid in _uuids(gpu)}
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for pod in scenario.pods:
        for container in pod.containers:
            by_resource = found.setdefault((pod.uid, container.name), {})
            for held in container.holds:
                gpu = scenario.gpus[held.gpu]
                ids = _take(free.get(_uuid(gpu, held), []), held, f"{pod.namespace}/{pod.name}/{container.name}")
                by_resource.setdefault(gpu.resource, []).extend(ids)
    return found


def _take(free: list[str], held: Held, who: str) -> list[str]:
    if len(free) < held.slots:
        raise ScenarioError(f"{who} holds {held.slots} slots of GPU {held.gpu}, and {len(free)} are free")
    taken, free[: held.slots] = free[: held.slots], []
    return taken


def _uuids(gpu: Gpu) -> list[str]:
    return [gpu.mig_uuid(m.gpu_instance, m.compute_instance) for m in gpu.mig] or [gpu.uuid]


def _uuid(gpu: Gpu, held: Held) -> str:
    return gpu.uuid if held.gpu_instance is None else gpu.mig_uuid(held.gpu_instance, held.compute_instance)


def _replicas(uuid: str, count: int) -> list[str]:
    return [uuid] if count == 1 else [f"{uuid}::{number}" for number in range(count)]
