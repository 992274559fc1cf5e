"""The GPUs of a node that are given out by claims (dynamic resource allocation), as NVIDIA's DRA driver names them.

The kubelet tells of a claim's device by driver, pool and name; the ResourceSlices tell what that device is.
"""

from collections.abc import Iterator
from typing import Any

from simulator.scenario import Claim, Gpu, MigDevice, Scenario, ScenarioError

NODE = "node-0"  # the node's name, and that of its pool of devices
DRIVER = "gpu.nvidia.com"
_PROFILE_IDS = {1: 19, 2: 14, 3: 9, 4: 5, 7: 0}  # of GPU instances, by their slices


def claimable(scenario: Scenario) -> list[Gpu]:
    """The GPUs that are given out by claims. Without one the node has no DRA driver."""
    return [gpu for gpu in scenario.gpus if gpu.sharing == "claims"]


def device_name(scenario: Scenario, claim: Claim) -> str:
    """The name of a claim's device. Raises ScenarioError."""
    if claim.device:
        return claim.device
    gpu = scenario.gpus[claim.gpu]
    for name, mig in _devices(gpu):
        instances = (None, 0) if mig is None else (mig.gpu_instance, mig.compute_instance)
        if instances == (claim.gpu_instance, claim.compute_instance):
            return name
    raise ScenarioError(f"claim {claim.name}: GPU {gpu.index} has no such device")


def slices(scenario: Scenario) -> list[dict[str, Any]]:
    """The node's ResourceSlices, one for each GPU, as version v1 has them."""
    gpus = claimable(scenario)
    return [
        {
            "metadata": {"name": f"{NODE}-{DRIVER}-{gpu.index}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": NODE, "generation": 1, "resourceSliceCount": len(gpus)},
                "devices": [{"name": name, "attributes": _attributes(gpu, mig)} for name, mig in _devices(gpu)],
            },
        }
        for gpu in gpus
    ]


def _devices(gpu: Gpu) -> Iterator[tuple[str, MigDevice | None]]:
    """The names of a GPU's devices: of its MIG devices, or of the GPU itself (None)."""
    if not gpu.mig:
        yield f"gpu-{gpu.minor}", None
    start = 0
    for mig in gpu.mig:
        profile = gpu.profile(mig).replace(".", "")
        yield f"gpu-{gpu.minor}-mig-{profile}-{_PROFILE_IDS.get(mig.slices, 0)}-{start}", mig
        start += mig.slices


def _attributes(gpu: Gpu, mig: MigDevice | None) -> dict[str, dict[str, str]]:
    texts = {"type": "gpu", "uuid": gpu.uuid, "productName": gpu.name}
    if mig is not None:
        uuid = gpu.mig_uuid(mig.gpu_instance, mig.compute_instance)
        texts |= {"type": "mig", "uuid": uuid, "parentUUID": gpu.uuid, "profile": gpu.profile(mig)}
    return {key: {"string": text} for key, text in texts.items()}
