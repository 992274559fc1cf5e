"""The annotation contract: what a pod's annotations ask for, container by container.

Reads the keys of NVIDIA's gpu-fractioning, of KAI Scheduler, and podgpu's own, in every form in which users and
schedulers write them. Guarantees that no text raises, that every cap that comes out is written in the annotations, and
that whatever can't be used is an error with a sentence. Does not know devices, clusters or what is allowed: amounts may
stay shares of a device, and policy comes after.

A request is per device. Only a limit means a request of the same size and the other way round. Compute shares of
NVIDIA's keys hold only with the mode sm-sharing, as they do there; podgpu's own holds in both.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

from exporter.caps.annotations import Annotations, Entry, Faults, sort, unknown_container
from exporter.caps.keys import NVIDIA_PREFIX, ContainerKey, Key, PodKey
from exporter.caps.memory import MEMORY_KEYS, SHORTHANDS, memory
from exporter.caps.quantities import Fault, count, ratio, shown
from exporter.caps.requests import CapRequest, ComputeMode, ErrorReason, PodCaps, Reaction
from exporter.model import ContainerKind, PodContainer

_MOST_DEVICES = 64
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9:._-]{0,126}[A-Za-z0-9])?", re.ASCII)
_JOB = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)  # as a Kubernetes label's value
_COMPUTE_KEYS = frozenset({ContainerKey.COMPUTE_PORTION, ContainerKey.COMPUTE_REQUEST, ContainerKey.ACTIVE_THREADS})


def read(annotations: Mapping[str, str], containers: Sequence[PodContainer], *, prefix: str = NVIDIA_PREFIX) -> PodCaps:
    """What a pod asks for. `containers` are those that it declares, `prefix` begins NVIDIA's per-container keys."""
    faults = Faults()
    names = [container.name for container in containers if container.kind is not ContainerKind.EPHEMERAL]
    said = sort(annotations, names, prefix, faults)
    target = _target(said, containers, names, faults)
    count_of = _device_count(said, target, faults)
    on_overrun = _reaction(said.pod, faults)
    job = _job(said.pod, faults)
    requests: dict[str, CapRequest] = {}
    for name in sorted(set(names)):
        request = _request(name, said, said.view(name, shorthands=name == target), count_of.get(name), faults)
        if request is not None:
            requests[name] = replace(request, on_overrun=on_overrun, job=job)
    _without_effect(said, target, requests, faults)
    return PodCaps(MappingProxyType(requests), faults.sorted(), on_overrun, job)


def _request(
    name: str, said: Annotations, view: Mapping[Key, Entry], number: int | None, faults: Faults
) -> CapRequest | None:
    """What one container asks for, short of what holds for the whole pod. `number` of devices goes with memory."""
    found = memory(name, view, faults)
    mode, mode_source = _mode(name, said, faults)
    threads, thread_source = _threads(name, view, mode, faults)
    devices = _devices(name, view, faults)
    if found is None and threads is None:
        return None
    if found is None:
        number = None
    if devices and "all" not in devices:
        if number is not None and number != len(devices):
            problem = f"lists {len(devices)} devices, but {PodKey.DEVICE_COUNT} is {number}; the list holds"
            faults.add(name, view[ContainerKey.DEVICES], Fault(ErrorReason.CONFLICT, problem))
        number = len(devices)
    return CapRequest(
        name,
        requested=found.requested if found is not None else None,
        limit=found.limit if found is not None else None,
        active_thread_percentage=threads,
        compute_mode=mode,
        devices=devices,
        device_count=number,
        sources=tuple(sorted({*(found.sources if found is not None else ()), *thread_source, *mode_source})),
    )


def _target(
    said: Annotations, containers: Sequence[PodContainer], names: Collection[str], faults: Faults
) -> str | None:
    """The container that the pod's shorthands are about: the named one, else the first that is no init container."""
    first = next((container.name for container in containers if container.kind is ContainerKind.MAIN), None)
    named = said.pod.get(PodKey.CONTAINER_NAME)
    if named is None:
        if first is None:
            for key in sorted(SHORTHANDS & said.pod.keys()):
                problem = "is about the pod's first container, but the pod declares none"
                faults.add("", said.pod[key], Fault(ErrorReason.UNKNOWN_CONTAINER, problem))
        return first
    if named.text not in names:
        faults.add("", named, unknown_container("names", named.text, names))
        return None
    return named.text


def _device_count(said: Annotations, target: str | None, faults: Faults) -> dict[str, int]:
    """How many devices the pod's one key for that asks for, by container: the one that has memory keys."""
    entry = said.pod.get(PodKey.DEVICE_COUNT)
    if entry is None:
        return {}
    number = count(entry.text, most=_MOST_DEVICES)
    if isinstance(number, Fault):
        faults.add("", entry, number)
        return {}
    asking = _asking(said, target)
    if not asking and (target is not None or SHORTHANDS.isdisjoint(said.pod)):
        faults.add("", entry, Fault(ErrorReason.INCOMPLETE, "has no effect without a memory request; add one"))
    elif len(asking) > 1:
        problem = "does not say which of several containers it is about; remove it, a request is for each device anyway"
        faults.add("", entry, Fault(ErrorReason.CONFLICT, problem))
        return {}
    return dict.fromkeys(asking, number)


def _asking(said: Annotations, target: str | None) -> list[str]:
    """The containers that memory keys are about."""
    asking = {name for name, keys in said.containers.items() if not MEMORY_KEYS.isdisjoint(keys)}
    if target is not None and not SHORTHANDS.isdisjoint(said.pod):
        asking.add(target)
    return sorted(asking)


def _mode(container: str, said: Annotations, faults: Faults) -> tuple[ComputeMode, tuple[str, ...]]:
    """The container's own mode, else the pod's; time-slicing where neither can be used."""
    modes: list[tuple[Entry, ComputeMode]] = []
    own = said.containers.get(container, {}).get(ContainerKey.COMPUTE_MODE)
    for about, entry in ((container, own), ("", said.pod.get(PodKey.SHARING_MODE))):
        if entry is None:
            continue
        if entry.text in list(ComputeMode):
            modes.append((entry, ComputeMode(entry.text)))
        else:
            problem = f"is {shown(entry.text)}; write {' or '.join(ComputeMode)}"
            faults.add(about, entry, Fault(ErrorReason.UNKNOWN_VALUE, problem))
            if entry is own:
                return ComputeMode.TIME_SLICING, ()
    if not modes:
        return ComputeMode.TIME_SLICING, ()
    if len({mode for _, mode in modes}) > 1:
        faults.add(
            container, modes[0][0], Fault(ErrorReason.CONFLICT, f"differs from {modes[1][0].key}; this one holds")
        )
    return modes[0][1], (modes[0][0].key,)


def _threads(
    container: str, said: Mapping[Key, Entry], mode: ComputeMode, faults: Faults
) -> tuple[int | None, tuple[str, ...]]:
    """The percentage of threads and the key that says it: the smaller of our own and the scheduler's."""
    values: dict[Key, int] = {}
    for key in (ContainerKey.ACTIVE_THREADS, ContainerKey.COMPUTE_PORTION, ContainerKey.COMPUTE_REQUEST):
        if key not in said:
            continue
        value = count(said[key].text, most=100) if key is ContainerKey.ACTIVE_THREADS else _portion(said[key].text)
        if isinstance(value, Fault):
            faults.add(container, said[key], value)
        elif key is ContainerKey.ACTIVE_THREADS or mode is ComputeMode.SM_SHARING:
            values[key] = value
    if ContainerKey.COMPUTE_PORTION in said:
        values.pop(ContainerKey.COMPUTE_REQUEST, None)  # the scheduler has decided; what was asked for no longer counts
    if not values:
        return None, ()
    least = min(values, key=lambda key: values[key])
    if values.get(ContainerKey.ACTIVE_THREADS, 0) > values[least]:
        problem = f"is more than {said[least].key} gives; the smaller of the two holds, {values[least]} %"
        faults.add(container, said[ContainerKey.ACTIVE_THREADS], Fault(ErrorReason.CONFLICT, problem))
    return values[least], (said[least].key,)


def _portion(text: str) -> int | Fault:
    """Whole percent of a portion above 0 and at most 1, rounded down, at least 1: MPS takes 0 for no limit."""
    value = ratio(text.strip(), one=True)
    return max(1, int(value * 100)) if isinstance(value, Fraction) else value


def _devices(container: str, said: Mapping[Key, Entry], faults: Faults) -> tuple[str, ...]:
    """The devices that the scheduler assigned, without the CDI kind before "="; blank means none."""
    entry = said.get(ContainerKey.DEVICES)
    if entry is None or not entry.text.strip():
        return ()
    listed = entry.text.split(",", _MOST_DEVICES)
    devices = tuple(item.strip().rpartition("=")[2] for item in listed)
    if len(devices) > _MOST_DEVICES:
        fault = Fault(ErrorReason.OUT_OF_RANGE, f"lists more than {_MOST_DEVICES} devices")
    elif wrong := [item for item in devices if not _DEVICE.fullmatch(item)]:
        fault = Fault(
            ErrorReason.MALFORMED, f"lists {shown(wrong[0])}, which is no device; it is the scheduler's to write"
        )
    elif len(set(devices)) < len(devices):
        fault = Fault(ErrorReason.MALFORMED, "lists a device twice; it is the scheduler's to write")
    else:
        return devices
    faults.add(container, entry, fault)
    return ()


def _reaction(pod: Mapping[Key, Entry], faults: Faults) -> Reaction | None:
    entry = pod.get(PodKey.ON_OVERRUN)
    if entry is None or entry.text in list(Reaction):
        return None if entry is None else Reaction(entry.text)
    faults.add(
        "", entry, Fault(ErrorReason.UNKNOWN_VALUE, f"is {shown(entry.text)}; write one of {', '.join(Reaction)}")
    )
    return None


def _job(pod: Mapping[Key, Entry], faults: Faults) -> str:
    entry = pod.get(PodKey.JOB)
    if entry is None or _JOB.fullmatch(entry.text):
        return "" if entry is None else entry.text
    problem = f"is {shown(entry.text)}; write at most 63 letters, digits, '-', '_' and '.'"
    faults.add("", entry, Fault(ErrorReason.MALFORMED, problem))
    return ""


def _without_effect(said: Annotations, target: str | None, requests: Mapping[str, CapRequest], faults: Faults) -> None:
    """Note the keys that mean something only beside others that are missing."""
    named = said.pod.get(PodKey.CONTAINER_NAME)
    asking = _asking(said, target)
    fault = Fault(ErrorReason.INCOMPLETE, "has no effect without a memory request; add one or remove this")
    for name, keys in said.containers.items():
        if ContainerKey.COMPUTE_MODE in keys and name not in asking and _COMPUTE_KEYS.isdisjoint(keys):
            faults.add(name, keys[ContainerKey.COMPUTE_MODE], fault)
    if PodKey.SHARING_MODE in said.pod and not asking and not requests:
        faults.add("", said.pod[PodKey.SHARING_MODE], fault)
    if named is not None and target is not None and not asking:
        faults.add("", named, fault)
    if named is not None and target is not None and asking and target not in asking:
        problem = f"is {shown(named.text)}, but the memory keys are about {', '.join(asking[:5])}"
        faults.add("", named, Fault(ErrorReason.CONFLICT, problem))
    mps = said.pod.get(PodKey.MPS)
    if mps is not None and mps.text not in ("true", "false"):
        faults.add("", mps, Fault(ErrorReason.UNKNOWN_VALUE, f'is {shown(mps.text)}; write "true" or "false"'))
    elif mps is not None and mps.text == "true" and not asking:
        faults.add("", mps, fault)
    received = said.pod.get(PodKey.RECEIVED_TYPE)
    if received is not None and received.text == "Regular" and PodKey.FRACTION in said.pod:
        problem = (
            f'is "Regular" although {PodKey.FRACTION} is given: scheduler and node agent are of versions that don\'t '
            "match, and the pod was bound as if it took a whole GPU"
        )
        faults.add("", received, Fault(ErrorReason.SCHEDULER_MISMATCH, problem))
