"""Whose a process is: its place, the names of pods, and what the kubelet handed out, put together. Pure."""

from typing import NamedTuple

from exporter.allocation import Holdings
from exporter.errors import Reason
from exporter.model import ContainerName, ListKind, MemoryClass, Place, PodNames, ProcessReading
from exporter.naming import name_of
from exporter.processes import Process

_NOWHERE = Place(reason=Reason.EXITED)


class Owner(NamedTuple):
    """The class of memory that a process's belongs to; for containers the name, for the unresolved the reason."""

    memory_class: MemoryClass
    name: ContainerName | None = None
    reason: Reason | None = None


class Owners:
    """Tells the owners of processes in one cycle."""

    def __init__(self, processes: ProcessReading, names: PodNames, held: Holdings | None) -> None:
        self._places = processes.places
        self._names = names
        self._held = held

    def of(self, pid: int, process: Process) -> Owner:
        """The owner of a process that a list of the driver names."""
        place = self._places.get(pid, _NOWHERE)
        if place.reason is not None:
            return Owner(MemoryClass.UNRESOLVED, reason=place.reason)
        if self._is_mps_server(place, process):
            return Owner(MemoryClass.MPS_SERVER)
        if place.container is None:
            return Owner(MemoryClass.HOST)
        if not place.container.pod_uid and place.container.container_id not in self._names.containers:
            return Owner(MemoryClass.UNRESOLVED, reason=Reason.CGROUP_RELATIVE)
        return Owner(MemoryClass.CONTAINERS, name=self._name(place))

    def _is_mps_server(self, place: Place, process: Process) -> bool:
        """Believe a process that calls itself the MPS server, unless it is a client or its container holds a GPU.

        A name is free to choose, and the server's memory is billed to nobody: so a container that was given a
        device is a tenant whatever its processes are called. The server's own pod asks for none.
        """
        if not place.names_mps_server or process.kind is ListKind.MPS:
            return False
        return place.container is None or self._held is None or not self._held.is_tenant(self._name(place))

    def _name(self, place: Place) -> ContainerName:
        """The name of the container that the place is in."""
        return name_of(place.container, self._names) if place.container is not None else ContainerName("", "", "")
