"""Reads a control daemon of protocol 3: servers, namespaces and clients, one command each, whatever the number of GPUs.

A server's own share and limit are those of its namespace `default`. A limit holds on every device of the server.
"""

from collections.abc import Callable, Collection
from types import MappingProxyType

from exporter.errors import Failure
from exporter.model import Device, MpsClient, MpsDaemon, MpsNamespace, MpsServer
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_commands import Command
from exporter.sources.mps_control import DaemonGoneError
from exporter.sources.mps_devices import ordinals
from exporter.sources.mps_process import DaemonEnvironment

_DEFAULT = "default"


def read_three(
    ask: Callable[[Command], str | Failure], gpus: Collection[Device], environment: DaemonEnvironment | None
) -> MpsDaemon:
    """The daemon now; `ask` gives it a command, and raises DaemonGoneError when it does not answer.

    Raises:
        DaemonGoneError: It does not answer.
    """
    text = ask(mps_commands.servers())
    rows = text if isinstance(text, Failure) else mps_text.servers(text)
    if isinstance(rows, Failure):
        raise DaemonGoneError(rows)
    text = ask(mps_commands.namespaces())
    namespaces = text if isinstance(text, Failure) else mps_text.namespaces(text)
    text = ask(mps_commands.clients())
    clients = text if isinstance(text, Failure) else mps_text.clients(text)
    return MpsDaemon(
        protocol=3,
        servers=tuple(_server(row, namespaces, clients, gpus, environment) for row in rows),
        errors=tuple(problem for problem in (namespaces, clients) if isinstance(problem, Failure)),
    )


def _server(
    row: mps_text.ServerRow,
    namespaces: tuple[mps_text.NamespaceRow, ...] | Failure,
    clients: tuple[mps_text.ClientRow, ...] | Failure,
    gpus: Collection[Device],
    environment: DaemonEnvironment | None,
) -> MpsServer:
    devices = _devices(row.devices, gpus, environment)
    ours = () if isinstance(namespaces, Failure) else [space for space in namespaces if space.server == row.name]
    own = next((space for space in ours if space.name == _DEFAULT), None)
    # Without a row for it nothing limits the default namespace, as far as the daemon tells.
    pinned = namespaces if isinstance(namespaces, Failure) else own.pinned if own is not None else None
    ratio = namespaces if isinstance(namespaces, Failure) else own.ratio if own is not None else None
    count = len(devices) if devices is not None else len(gpus)
    return MpsServer(
        name=row.name,
        pid=row.pid,
        uid=row.uid,
        status=row.status,
        clients=clients
        if isinstance(clients, Failure)
        else tuple(
            MpsClient(client.pid, device=client.device, namespace=client.namespace)
            for client in clients
            if client.server == row.name
        ),
        ratio=ratio,
        pinned=pinned if isinstance(pinned, Failure) else MappingProxyType(dict.fromkeys(range(count), pinned)),
        namespaces=tuple(
            MpsNamespace(space.name, ratio=space.ratio, pinned=space.pinned, pipe_directory=space.pipe_directory)
            for space in ours
        ),
        devices=devices,
    )


def _devices(allowed: str, gpus: Collection[Device], environment: DaemonEnvironment | None) -> tuple[str, ...] | None:
    """The UUIDs of a server's ordinals. Without the daemon's environment, only UUIDs in its own list tell."""
    if environment is not None:
        return ordinals(gpus, visible=environment.visible, order=environment.order, allowed=allowed)
    named = ordinals(gpus, visible="", order=None, allowed=allowed)
    return named or None
