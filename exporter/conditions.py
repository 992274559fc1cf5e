"""What makes a cycle's numbers incomplete: conditions of the node, and failures inside the driver's answer. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from exporter.allocation import Holdings
from exporter.errors import Failure, Reason
from exporter.model import (
    Condition,
    DeviceState,
    DriverReading,
    PodNames,
    ProcessList,
    ProcessReading,
    Reading,
    UtilizationWindow,
)


def partial_failures(reading: Reading[Any]) -> tuple[Failure, ...]:
    """The failures inside an answer: why names are stale; the driver's GPUs, memory, lists and samples.

    A call that the driver does not have is no error.
    """
    value = reading.value
    if isinstance(value, PodNames):
        return () if value.stale is None else (value.stale,)
    if not isinstance(value, DriverReading):
        return ()
    found = list(value.failures)
    for device in value.devices:
        if device.failure is not None:
            found.append(device.failure)
        parts: list[object] = [device.process_utilization]
        for domain in device.domains:
            parts += [domain.memory, *domain.lists.values()]
        name = f"GPU {device.device.index}"
        found += [replace(part, detail=f"{name}: {part.detail}") for part in parts if isinstance(part, Failure)]
    return tuple(sorted((f for f in found if f.reason is not Reason.NOT_SUPPORTED), key=str))


def conditions_of(
    driver: DriverReading | None,
    processes: Reading[ProcessReading],
    held: Holdings | None,
    states: Iterable[DeviceState],
) -> dict[Condition, bool]:
    """The conditions that this cycle can tell about."""
    conditions: dict[Condition, bool] = {}
    if processes.failure is None or processes.failure.reason is Reason.BLIND_PID_NAMESPACE:
        conditions[Condition.BLIND_PID_NAMESPACE] = processes.failure is not None
    if held is not None and driver is not None:
        conditions[Condition.UNKNOWN_DEVICE_ALLOCATED] = held.unknown > 0
    if driver is not None:
        domains = [domain for device in driver.devices for domain in device.domains]
        lists = [answer for domain in domains for answer in domain.lists.values()]
        conditions[Condition.PROCESS_LIST_TRUNCATED] = any(
            isinstance(answer, ProcessList) and answer.truncated for answer in lists
        )
        conditions[Condition.ROWS_REJECTED] = any(
            answer.rejected > 0 if isinstance(answer, ProcessList) else answer.reason is Reason.ROWS_REJECTED
            for answer in lists
        )
        conditions[Condition.MPS_DEVICE_ENUMERATION] = driver.mps_enumeration
        conditions[Condition.UTILIZATION_SAMPLES_REJECTED] = any(
            isinstance(device.process_utilization, UtilizationWindow) and device.process_utilization.rejected > 0
            for device in driver.devices
        )
        conditions[Condition.MEMORY_VIEW_LIMITED] = any(domain.memory_view_limited for domain in domains)
        conditions[Condition.OVER_ATTRIBUTED] = any(
            domain.over_attributed for state in states for domain in state.domains
        )
    return conditions
