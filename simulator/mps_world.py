"""The MPS part of a simulated node: which world its control daemons live in, and with which settings they start."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simulator.driver import Running
from simulator.mps.world import Gpu, World, WouldBe
from simulator.paths import Paths
from simulator.scenario import Daemon, Process, Scenario

_SERVER = "nvidia-cuda-mps-server"
_OUTSIDE = "none"
_DOOR = "door"


def world_of(scenario: Scenario, paths: Paths, running: Sequence[Running]) -> World:
    """The world while these processes run."""
    clients = []
    for entry in running:
        pipe = _pipe(scenario, paths, entry)
        if pipe is not None:
            process = entry.process
            clients.append(
                WouldBe(entry.pid, process.uid, " ".join(process.command), pipe, (process.gpu,), process.environ)
            )
    return World(
        scenario.driver,
        gpus=tuple(Gpu(gpu.index, gpu.uuid, gpu.pci_bus_id, gpu.name, gpu.memory) for gpu in scenario.gpus),
        clients=tuple(clients),
        server_pids=tuple(entry.pid for entry in running if is_server(entry.process)),
    )


def is_server(process: Process) -> bool:
    """Whether a process is what the driver shows of an MPS server."""
    return process.command[0].endswith(_SERVER)


def _pipe(scenario: Scenario, paths: Paths, entry: Running) -> str | None:
    """The pipe directory of a process, on the host: by default that of the only daemon, for a GPU shared by MPS.

    `door` is what the enforcer opens to its container.
    """
    process = entry.process
    if process.pipe == _OUTSIDE or is_server(process):
        return None
    if process.pipe == _DOOR and entry.pod is not None and entry.container is not None:
        doors = pipe_directory(paths, scenario.mps[0]) / ".doors"
        return str((doors / entry.pod.uid / entry.container.name).resolve())
    if process.pipe:
        return str((paths.run / process.pipe).resolve())
    if scenario.gpus[process.gpu].sharing == "mps" and len(scenario.mps) == 1:
        return str(pipe_directory(paths, scenario.mps[0]).resolve())
    return None


def pipe_directory(paths: Paths, daemon: Daemon) -> Path:
    """Where a daemon's sockets are."""
    return paths.run / daemon.pipe


def log_directory(paths: Paths, daemon: Daemon) -> Path:
    """Where a daemon's logs are."""
    return paths.logs / "mps" / daemon.pipe.replace("/", "_")


def environment(scenario: Scenario, paths: Paths, daemon: Daemon) -> Mapping[str, str]:
    """The variables that a daemon, and every call to it, has."""
    found = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory(paths, daemon)),
        "CUDA_MPS_LOG_DIRECTORY": str(log_directory(paths, daemon)),
    }
    if daemon.devices is not None:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(scenario.gpus[index].uuid for index in daemon.devices)
    return found


def options(daemon: Daemon) -> list[str]:
    """The arguments that start a daemon."""
    return ["-d", *(["-p", "3"] if daemon.protocol == 3 else []), *(["-m"] if daemon.multiuser else [])]


def settings(daemon: Daemon) -> Iterator[tuple[list[str], str]]:
    """The calls that configure a daemon: arguments, and a line of standard input."""
    if daemon.percentage is not None:
        yield [], f"set_default_active_thread_percentage {daemon.percentage}"
    for ordinal, limit in daemon.limits.items():
        yield [], f"set_default_device_pinned_mem_limit {ordinal} {limit >> 20}M"
    for server in daemon.servers:
        yield ["server", "create", server.name], ""
        for space in server.namespaces:
            if space.name != "default":
                yield ["namespace", "create", space.name, f"--server={server.name}"], ""
            values = []
            if space.limit is not None:
                values.append(f"--pinned-memory-limit={space.limit >> 20}M")
            if space.percentage is not None:
                values.append(f"--active-thread-percentage={space.percentage}")
            if values:
                yield ["namespace", "set", space.name, f"--server={server.name}", *values], ""
