"""A pod's caps written down as annotations again: what podgpu understood, for a person to compare.

Guarantees that reading them gives the same caps and no error. Amounts are in their shortest exact form.
"""

from exporter.caps.keys import NVIDIA_PREFIX, ContainerKey, PodKey, in_full
from exporter.caps.quantities import quantity_text, ratio_text
from exporter.caps.requests import CapRequest, ComputeMode, PodCaps, Share


def understood(caps: PodCaps, *, prefix: str = NVIDIA_PREFIX) -> dict[str, str]:
    """The annotations that say what `caps` holds, by key."""
    found: dict[str, str] = {}
    for request in caps.requests.values():
        found |= _container(request, prefix)
    if caps.on_overrun is not None:
        found[PodKey.ON_OVERRUN] = str(caps.on_overrun)
    if caps.job:
        found[PodKey.JOB] = caps.job
    return dict(sorted(found.items()))


def _container(request: CapRequest, prefix: str) -> dict[str, str]:
    own: dict[ContainerKey, str] = {}
    pod: dict[str, str] = {}
    if isinstance(request.requested, int):
        own[ContainerKey.MEMORY_REQUEST] = quantity_text(request.requested)
    if isinstance(request.limit, int):
        own[ContainerKey.MEMORY_LIMIT] = quantity_text(request.limit)
    if isinstance(request.limit, Share):
        # Beside bytes that are requested the fraction is only what the limit needs to stand; the bytes go before it.
        fraction = request.requested.ratio if isinstance(request.requested, Share) else request.limit.ratio
        pod = {str(PodKey.FRACTION): ratio_text(fraction), str(PodKey.CONTAINER_NAME): request.container}
        if request.limit != request.requested:
            pod[PodKey.FRACTION_LIMIT] = ratio_text(request.limit.ratio)
    if request.active_thread_percentage is not None:
        own[ContainerKey.ACTIVE_THREADS] = str(request.active_thread_percentage)
    if request.compute_mode is not ComputeMode.TIME_SLICING:
        own[ContainerKey.COMPUTE_MODE] = str(request.compute_mode)
    if request.devices:
        own[ContainerKey.DEVICES] = ",".join(request.devices)
    if request.device_count is not None and (not request.devices or "all" in request.devices):
        pod[PodKey.DEVICE_COUNT] = str(request.device_count)
    return {in_full(key, request.container, prefix): text for key, text in own.items()} | pod
