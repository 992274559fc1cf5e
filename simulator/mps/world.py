"""What the simulated control daemon can't have itself: GPUs, programs that would be its clients, server processes.

The world is a JSON file, named to the daemon by `PODGPU_SIM_MPS_WORLD`, that whoever simulates the node replaces as a
whole. The daemon follows it: it starts a server when a would-be client's pipe directory leads to it, and drops clients
that are gone. Beside the file it keeps

    <world>.terminated      pids of clients that it was told to terminate, one a line; who simulates the node ends them
    <world>.clients.<pid>   what the daemon with that pid holds its clients to, fixed when each connected (JSON)
    <world>.server.<pid>    a lock: that server process belongs to a daemon
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENVIRONMENT = "PODGPU_SIM_MPS_WORLD"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `index` is the driver's; a daemon's ordinals follow from its CUDA_VISIBLE_DEVICES."""

    index: int
    uuid: str
    pci: str
    name: str
    memory: int
    multiprocessors: int = 108


@dataclass(frozen=True, slots=True)
class WouldBe:
    """A program that connects to the daemon behind its pipe directory (a path of the host), if there is one.

    `devices` are the GPUs that it uses, by index, in the order in which it sees them.
    """

    pid: int
    uid: int
    command: str
    pipe_directory: str
    devices: tuple[int, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong: with the daemon of a pipe directory, or (empty) with every one.

    `hang`: commands are not answered. `refuse`: connections are closed at once. `overlap`: a call that comes while
    another one is connected is lost, every second one with exit code 0. `lose`: so many commands, from when the fault
    changed on, do nothing and answer nothing, with exit code 0. `delay`: seconds before each answer. `server_state`:
    FAULT or INITIALIZING. `server_exits`: a server ends as it starts.
    """

    pipe_directory: str = ""
    hang: bool = False
    refuse: bool = False
    overlap: bool = False
    lose: int = 0
    delay: float = 0.0
    server_state: str = "ACTIVE"
    server_exits: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Everything around the daemons. `server_pids`: processes that the driver shows as MPS servers, free to take."""

    driver: str
    gpus: tuple[Gpu, ...] = ()
    clients: tuple[WouldBe, ...] = ()
    server_pids: tuple[int, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def generation(self) -> int:
        """The driver's major version: which dialect the daemon speaks."""
        return int(self.driver.split(".")[0])

    def fault(self, pipe_directory: str) -> Fault:
        """What is wrong with the daemon of a pipe directory."""
        for fault in self.faults:
            if fault.pipe_directory in ("", pipe_directory):
                return fault
        return Fault()


def read(path: Path) -> World:
    """Read a world. Raises OSError, ValueError, KeyError or TypeError when it is none."""
    content: dict[str, Any] = json.loads(path.read_text())
    return World(
        driver=content["driver"],
        gpus=tuple(Gpu(**gpu) for gpu in content.get("gpus", [])),
        clients=tuple(
            WouldBe(**{**client, "devices": tuple(client["devices"])}) for client in content.get("clients", [])
        ),
        server_pids=tuple(content.get("server_pids", [])),
        faults=tuple(Fault(**fault) for fault in content.get("faults", [])),
    )


def write(path: Path, world: World) -> None:
    """Replace the world as a whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(asdict(world)))
    fresh.replace(path)


def terminated(path: Path) -> frozenset[int]:
    """The pids of the clients that daemons were told to terminate."""
    try:
        text = path.with_name(f"{path.name}.terminated").read_text()
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(line) for line in text.split())


def held(path: Path, daemon: int) -> Mapping[int, Mapping[str, Any]]:
    """What a daemon holds its clients to: by pid, the server, namespace, percentage, and limit in bytes by GPU."""
    try:
        content = json.loads(path.with_name(f"{path.name}.clients.{daemon}").read_text())
    except FileNotFoundError:
        return {}
    return {int(pid): value for pid, value in content.items()}
