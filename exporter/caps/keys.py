"""The annotation keys that podgpu reads, and how a key is taken apart.

Per-container keys are prefix, container name, suffix. Names may hold dots and text that looks like a suffix, so a key
is parsed by trimming a known prefix and a known suffix, never by splitting. The prefix of NVIDIA's keys is the
cluster's choice.
"""

from enum import StrEnum, unique
from typing import TypeAlias

NVIDIA_PREFIX = "nvidia.com/container."
KAI_PREFIX = "kai.scheduler/container."
OWN_PREFIX = "podgpu.io/container."


@unique
class ContainerKey(StrEnum):
    """The keys of one container, by suffix."""

    MEMORY_REQUEST = ".gpu-memory.request"
    MEMORY_LIMIT = ".gpu-memory.limit"
    DEVICES = ".gpus.devices"
    COMPUTE_MODE = ".gpu-compute.mode"
    COMPUTE_PORTION = ".gpu-compute.portion"
    COMPUTE_REQUEST = ".gpu-compute.request"
    PORTION_LIMIT = ".gpu-memory.portion.limit"
    ACTIVE_THREADS = ".active-thread-percentage"


@unique
class PodKey(StrEnum):
    """The keys of a whole pod."""

    FRACTION = "gpu-fraction"
    FRACTION_LIMIT = "gpu-fraction.limit"
    MEMORY = "gpu-memory"
    MEMORY_LIMIT = "gpu-memory.limit"
    DEVICE_COUNT = "gpu-fraction-num-devices"
    CONTAINER_NAME = "gpu-fraction-container-name"
    SHARING_MODE = "kai.scheduler/gpu-compute-sharing-mode"
    MPS = "mps"
    RECEIVED_TYPE = "received-resource-type"
    ON_OVERRUN = "podgpu.io/on-overrun"
    JOB = "podgpu.io/job"


Key: TypeAlias = ContainerKey | PodKey


def prefix_of(key: ContainerKey, nvidia: str) -> str:
    """The prefix that goes with a suffix; `nvidia` is the one that the cluster chose for NVIDIA's keys."""
    if key is ContainerKey.PORTION_LIMIT:
        return KAI_PREFIX
    return OWN_PREFIX if key is ContainerKey.ACTIVE_THREADS else nvidia


def in_full(key: ContainerKey, container: str, nvidia: str) -> str:
    """The whole annotation key."""
    return f"{prefix_of(key, nvidia)}{container}{key}"


def parsed(text: str, nvidia: str) -> tuple[ContainerKey, str] | PodKey | None:
    """What a key is: one of a container and that container's name, one of the pod, or None."""
    if text in _POD_KEYS:
        return _POD_KEYS[text]
    for key in ContainerKey:
        prefix = prefix_of(key, nvidia)
        if text.startswith(prefix) and text.endswith(key) and len(text) > len(prefix) + len(key):
            return key, text[len(prefix) : -len(key)]
    return None


_POD_KEYS = {str(key): key for key in PodKey}
