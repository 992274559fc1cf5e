"""What can be measured on a node, and what can hold a cap there: from one cycle's readings. Pure.

Guarantees: an ability is said to be there only where this cycle's readings show it; what is missing comes with why. It
says what the node has, not what the enforcer was told to do.
"""

from dataclasses import dataclass

from exporter.errors import Failure
from exporter.model import (
    LOG_LINKS,
    AllocationReading,
    Backend,
    Device,
    LimitReading,
    MpsDaemon,
    MpsReading,
    PodNames,
    Reading,
    Surroundings,
    UtilizationWindow,
)
from exporter.readings import Readings

_VOLTA = (7, 0)
_BY_CGROUP = {
    Backend.DMEM: "control group, counted by the kernel (dmem): all processes together, at once, also of pods",
    Backend.MISC: "control group, counted by the driver: all processes together, from the time of the limit on",
}
_BY_MPS = {
    2: "MPS server limits (protocol 2): each client for itself, from its connection on",
    3: "MPS namespaces (protocol 3): each client for itself, from its connection on",
}


@dataclass(frozen=True, slots=True)
class Ability:
    """Something that can be measured, or a GPU on which caps can be held. `missing`: why it can't; empty: it can.

    A failure is named by its reason alone; the finding about the same subject has the whole of it.
    """

    what: str
    by: str = ""
    missing: str = ""


def measured(readings: Readings, around: Surroundings) -> tuple[Ability, ...]:
    """What the exporter measures on this node."""
    devices = _device_memory(readings)
    return (
        devices,
        _by_container(readings, devices),
        _given(readings.allocations),
        _names(readings, around),
        _utilization(readings),
        _charged(readings.limits.memory),
        _mps(readings.limits.mps),
    )


def holding(readings: Readings) -> tuple[Ability, ...]:
    """By GPU, the strongest mechanism that can hold a container to its memory cap."""
    driver = readings.driver.value
    return tuple(_holder(reading.device, readings) for reading in driver.devices) if driver is not None else ()


def daemons_of(device: Device, readings: Readings) -> tuple[MpsDaemon, ...]:
    """The answering MPS control daemons that may serve a GPU: those whose servers do not show others only."""
    reading = readings.limits.mps
    found = reading.value.daemons.values() if reading is not None and reading.value is not None else ()
    return tuple(daemon for daemon in found if isinstance(daemon, MpsDaemon) and _may_serve(daemon, device.uuid))


def _may_serve(daemon: MpsDaemon, uuid: str) -> bool:
    return not daemon.servers or any(server.devices is None or uuid in server.devices for server in daemon.servers)


def _holder(device: Device, readings: Readings) -> Ability:
    what = f"GPU {device.index}"
    if device.mig_mode:
        return Ability(what, missing="MIG is on: the instances are limits in hardware, and there are no others")
    if device.compute_capability is not None and device.compute_capability < _VOLTA:
        return Ability(what, missing="older than Volta: neither MPS nor the driver limits its memory")
    memory = readings.limits.memory
    if memory is not None and memory.value is not None and device.uuid in memory.value.backends:
        return Ability(what, by=_BY_CGROUP[memory.value.backends[device.uuid]])
    protocols = {daemon.protocol for daemon in daemons_of(device, readings)}
    known = [_BY_MPS[protocol] for protocol in sorted(protocols & _BY_MPS.keys(), reverse=True)]
    if known:
        return Ability(what, by=known[0])
    return Ability(what, missing="no limits by control group in this driver, and no MPS control daemon that answers")


def _given(allocations: Reading[AllocationReading]) -> Ability:
    what = "allocations, slots and shares"
    if allocations.failure is not None:
        return Ability(what, missing=_why("kubelet", allocations.failure))
    return Ability(what, by="the kubelet's PodResources API")


def _device_memory(readings: Readings) -> Ability:
    what, driver = "memory of each GPU", readings.driver
    if driver.value is None:
        return Ability(what, missing=_why("driver", driver.failure))
    domains = [domain for device in driver.value.devices for domain in device.domains]
    unread = [domain.memory for domain in domains if isinstance(domain.memory, Failure)]
    if len(unread) == len(domains):
        return Ability(what, missing=_why("driver", unread[0]) if unread else "no GPU could be asked")
    return Ability(what, by=f"driver {driver.value.driver_version}")


def _by_container(readings: Readings, devices: Ability) -> Ability:
    what = "GPU memory of each container"
    if devices.missing:
        return Ability(what, missing=devices.missing)
    if readings.processes.failure is not None:
        return Ability(what, missing=_why("process ids", readings.processes.failure))
    return Ability(what, by="the driver's process lists and the processes' control groups")


def _names(readings: Readings, around: Surroundings) -> Ability:
    what, names = "names, labels, workloads and annotated caps of pods", readings.names
    if names.value is None:
        return Ability(what, missing=_why("pods", names.failure))
    if not knows_pods(names.value, around):
        only = f"{around.pods_from} tell names only" if around.pods_from else "pods come from nowhere"
        return Ability(what, missing=only)
    return Ability(what, by=around.pods_from or "what was told before")


def knows_pods(names: PodNames, around: Surroundings) -> bool:
    """Whether pods are known whole, not by name only. A node without any pod tells by its source alone."""
    return bool(names.by_uid) or around.pods_from not in ("", LOG_LINKS)


def _utilization(readings: Readings) -> Ability:
    what, driver = "SM utilization of each container", readings.driver.value
    answers = [device.process_utilization for device in driver.devices] if driver is not None else []
    if any(isinstance(answer, UtilizationWindow) for answer in answers):
        return Ability(what, by="the driver's samples, an estimate")
    failed = [answer for answer in answers if isinstance(answer, Failure)]
    if failed:
        return Ability(what, missing=_why("driver", failed[0]))
    return Ability(
        what, missing="the driver has no such samples under MIG" if answers else str(readings.driver.failure)
    )


def _charged(memory: Reading[LimitReading] | None) -> Ability:
    what = "GPU memory charged to each control group"
    if memory is None:
        return Ability(what, missing="nobody asks")
    if memory.value is None:
        return Ability(what, missing=_why("control groups", memory.failure))
    if not memory.value.backends:
        return Ability(what, missing="no GPU of this node has such limits")
    return Ability(what, by=" and ".join(sorted({backend.value for backend in memory.value.backends.values()})))


def _mps(reading: Reading[MpsReading] | None) -> Ability:
    what = "MPS shares, clients and limits"
    daemons = reading.value.daemons if reading is not None and reading.value is not None else {}
    answering = [path for path, daemon in daemons.items() if isinstance(daemon, MpsDaemon)]
    if answering:
        return Ability(what, by=", ".join(sorted(answering)))
    if reading is not None and reading.failure is not None:
        return Ability(what, missing=_why("MPS", reading.failure))
    return Ability(what, missing="no MPS control daemon answers" if daemons else "no MPS control daemon is found")


def _why(subject: str, failure: Failure | None) -> str:
    return f"{subject}: {failure.reason}" if failure is not None else ""
