"""Of which containers, on which GPUs, limits by control group are asked for. Pure."""

from collections.abc import Iterable

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

Pair = tuple[ContainerRef, Device]


def limit_pairs(
    driver: DriverReading | None, processes: ProcessReading | None, *, idle: Iterable[ContainerState], names: PodNames
) -> frozenset[Pair]:
    """The containers with a process on a GPU, and the idle ones on the GPUs that they hold.

    GPUs under MIG are left out: the driver has no such limits there. So are containers of which the kernel's view does
    not show the pod: their control group can't be found.
    """
    if driver is None or processes is None:
        return frozenset()
    devices = {reading.device.uuid: reading for reading in driver.devices if not reading.device.mig_mode}
    found: set[Pair] = set()
    for reading in devices.values():
        for domain in reading.domains:
            for rows in domain.lists.values():
                for row in rows.rows if isinstance(rows, ProcessList) else ():
                    place = processes.places.get(row.pid)
                    if place is not None and place.container is not None and place.container.pod_uid:
                        found.add((place.container, reading.device))
    waiting = [state for state in idle if state.domain.gpu_uuid in devices]
    refs = refs_of({state.name for state in waiting}, (), names) if waiting else {}
    for state in waiting:
        device = devices[state.domain.gpu_uuid].device
        found.update((ref, device) for ref in refs.get(state.name, ()))
    return frozenset(found)
