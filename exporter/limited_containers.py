"""Of which containers, on which GPUs, limits by control group are asked for. Pure."""

from collections.abc import Iterable, Mapping

from exporter.model import (
    ContainerRef,
    ContainerState,
    Device,
    DriverReading,
    PodNames,
    ProcessList,
    ProcessReading,
)
from exporter.naming import refs_of


def limited_containers(
    driver: DriverReading | None, processes: ProcessReading | None, *, idle: Iterable[ContainerState], names: PodNames
) -> Mapping[Device, frozenset[ContainerRef]]:
    """By GPU, the containers with a process on it and the idle ones that hold it; a GPU may have none.

    GPUs under MIG are left out: the driver has no such limits there. So are containers of which the kernel's view does
    not show the pod: their control group can't be found.
    """
    if driver is None or processes is None:
        return {}
    devices = {reading.device.uuid: reading for reading in driver.devices if not reading.device.mig_mode}
    found: dict[Device, set[ContainerRef]] = {reading.device: set() for reading in devices.values()}
    for reading in devices.values():
        for domain in reading.domains:
            for rows in domain.lists.values():
                for row in rows.rows if isinstance(rows, ProcessList) else ():
                    place = processes.places.get(row.pid)
                    if place is not None and place.container is not None and place.container.pod_uid:
                        found[reading.device].add(place.container)
    waiting = [state for state in idle if state.domain.gpu_uuid in devices]
    refs = refs_of({state.name for state in waiting}, (), names) if waiting else {}
    for state in waiting:
        found[devices[state.domain.gpu_uuid].device] |= refs.get(state.name, frozenset())
    return {device: frozenset(containers) for device, containers in found.items()}
