"""Which device ids a node's kubelet has, and which container got which: by the scenario's order, the same each time.

Ids and resource names have the forms of the allocator that the scenario names for a GPU: NVIDIA's device plugin (UUIDs
of GPUs and MIG devices, `::n` where replicated; under MIG strategy "mixed" a resource per profile) or GKE's (minor
numbers, GPU instances, `/vgpuN` where shared).
"""

from collections.abc import Iterator, Mapping

from simulator.scenario import Gpu, Held, MigDevice, Scenario, ScenarioError


def advertised(scenario: Scenario) -> dict[str, list[str]]:
    """The ids of all devices, by resource."""
    found: dict[str, list[str]] = {}
    for gpu in scenario.gpus:
        for mig in _parts(gpu):
            found.setdefault(_resource(gpu, mig), []).extend(_ids(gpu, mig))
    return found


def handed_out(scenario: Scenario) -> Mapping[tuple[str, str], dict[str, list[str]]]:
    """The ids that each container got, by (pod uid, container) and resource. Raises ScenarioError."""
    free = {(gpu.index, mig): _ids(gpu, mig) for gpu in scenario.gpus for mig in _parts(gpu)}
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for pod in scenario.pods:
        for container in pod.containers:
            by_resource = found.setdefault((pod.uid, container.name), {})
            for held in container.holds:
                gpu = scenario.gpus[held.gpu]
                who = f"{pod.namespace}/{pod.name}/{container.name}"
                mig = _part(gpu, held, who)
                by_resource.setdefault(_resource(gpu, mig), []).extend(_take(free[gpu.index, mig], held, who))
    return found


def _take(free: list[str], held: Held, who: str) -> list[str]:
    if len(free) < held.slots:
        raise ScenarioError(f"{who} holds {held.slots} slots of GPU {held.gpu}, and {len(free)} are free")
    taken, free[: held.slots] = free[: held.slots], []
    return taken


def _parts(gpu: Gpu) -> Iterator[MigDevice | None]:
    """What of a GPU a device plugin hands out: its MIG devices, or (None) the whole; nothing if claims give it out."""
    if gpu.sharing != "claims":
        yield from gpu.mig or (None,)


def _part(gpu: Gpu, held: Held, who: str) -> MigDevice | None:
    for mig in _parts(gpu):
        if mig is None or (mig.gpu_instance, mig.compute_instance) == (held.gpu_instance, held.compute_instance):
            return mig
    raise ScenarioError(f"{who} holds a MIG device that GPU {gpu.index} does not have")


def _resource(gpu: Gpu, mig: MigDevice | None) -> str:
    if mig is None or gpu.resource != "mixed":
        return gpu.resource
    return f"nvidia.com/mig-{gpu.profile(mig)}{'.shared' if gpu.replicas > 1 else ''}"


def _ids(gpu: Gpu, mig: MigDevice | None) -> list[str]:
    if gpu.ids == "gke":
        base = f"nvidia{gpu.minor}" if mig is None else f"nvidia{gpu.minor}/gi{mig.gpu_instance}"
        return [base] if gpu.replicas == 1 else [f"{base}/vgpu{number}" for number in range(gpu.replicas)]
    base = gpu.uuid if mig is None else gpu.mig_uuid(mig.gpu_instance, mig.compute_instance)
    return [base] if gpu.replicas == 1 else [f"{base}::{number}" for number in range(gpu.replicas)]
