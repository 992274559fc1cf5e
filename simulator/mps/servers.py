"""What both protocols keep: servers, namespaces, clients, and which server processes are whose."""

import fcntl
import json
import os
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from simulator.mps.world import Gpu, World, WouldBe


@dataclass(frozen=True, slots=True)
class Place:
    """Where a daemon is, and for whom it runs. `pid` is the one that it is known by."""

    pipe: str
    world: Path
    pid: int
    uid: int
    visible: str | None  # CUDA_VISIBLE_DEVICES
    multiuser: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What a command prints, and its exit code. `quit_after`: the daemon is to end, by force after so many seconds."""

    text: str = ""
    _: KW_ONLY
    error: str = ""
    code: int = 0
    quit_after: float | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A connected client, and what it is held to, fixed when it connected."""

    pid: int
    _: KW_ONLY
    uid: int
    command: str
    devices: tuple[int, ...]
    context: int
    percentage: float
    limits: dict[int, int | None]  # bytes by GPU index


@dataclass(slots=True)
class Namespace:
    """What clients connect to: protocol 2 has one a server. Limits in bytes are by GPU key; None: as not set."""

    name: str
    percentage: float | None = None
    limits: dict[str, int] = field(default_factory=dict)
    pinned: int | None = None
    priority: int | None = None
    clients: dict[int, Client] = field(default_factory=dict)


@dataclass(slots=True)
class Server:
    """A server process. `devices` are the GPUs that it has, in the order of its ordinals."""

    name: str
    pid: int
    uid: int
    devices: tuple[Gpu, ...]
    allowed: str = ""
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    contexts: int = 0

    @property
    def default(self) -> Namespace:
        """The namespace of whoever names none."""
        return self.namespaces["default"]

    @property
    def clients(self) -> list[tuple[Namespace, Client]]:
        """Every client, with its namespace."""
        return [(space, client) for space in self.namespaces.values() for client in space.clients.values()]

    def next_context(self) -> int:
        """The id of a new client's context."""
        self.contexts += 1
        return self.contexts - 1


class Processes:
    """Takes server processes of the world, so that two daemons never have the same one. A dead daemon has none."""

    def __init__(self, world: Path) -> None:
        self._world = world
        self._locks: dict[int, int] = {}

    def take(self, world: World) -> int | None:
        """A server process that nobody has; None: there is none left."""
        for pid in world.server_pids:
            if pid in self._locks:
                continue
            lock = os.open(
                self._world.with_name(f"{self._world.name}.server.{pid}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
            )
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            self._locks[pid] = lock
            return pid
        return None

    def give_back(self, pid: int) -> None:
        """The server has ended."""
        os.close(self._locks.pop(pid))


def visible(world: World, devices: str | None) -> tuple[tuple[Gpu, ...], bool]:
    """The GPUs that a list of ordinals or UUIDs names, in its order (None: all), and whether each exists."""
    if devices is None or not devices.strip():
        return world.gpus, True
    found, complete = [], True
    for word in (word.strip() for word in devices.split(",")):
        gpu = next((gpu for gpu in world.gpus if word in (str(gpu.index), gpu.uuid)), None)
        if gpu is None:
            complete = False
        else:
            found.append(gpu)
    return tuple(found), complete


def seen_by(would_be: WouldBe, server: Server) -> tuple[Gpu, ...]:
    """The GPUs of a server that a would-be client uses, in its own order."""
    return tuple(gpu for index in would_be.devices for gpu in server.devices if gpu.index == index)


def terminate(place: Place, pid: int) -> None:
    """Tell whoever simulates the node to end a client's process."""
    with place.world.with_name(f"{place.world.name}.terminated").open("a") as file:
        file.write(f"{pid}\n")


def publish(place: Place, servers: Sequence[Server]) -> None:
    """Say what clients are held to, which no command of the real daemon tells."""
    content = {
        client.pid: {
            "server": server.pid,
            "namespace": space.name,
            "percentage": client.percentage,
            "limits": client.limits,
        }
        for server in servers
        for space, client in server.clients
    }
    path = place.world.with_name(f"{place.world.name}.clients.{place.pid}")
    fresh = path.with_name(f".{path.name}")
    fresh.write_text(json.dumps(content))
    fresh.replace(path)
