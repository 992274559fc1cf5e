"""How a control daemon of ours is started, and by what it is known again.

A daemon is ours if its process works in our pipe directory, logs into our log directory, was given our options and, in
protocol 2, our one GPU: all by its own environment and arguments, at one start time. It outlives the enforcer, since
its clients would not outlive it.

Guarantees: no other daemon's directory is touched; nothing of our own environment that MPS or CUDA reads is passed on.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from enforcer.mechanisms.folders import ForeignError, changing, make, opened
from exporter.errors import Failure, Reason
from exporter.sources.mps_control import unusable
from exporter.sources.mps_process import DaemonProcess
from exporter.sources.procfs import read_whole

SERVER = "shared"  # protocol 3's one server
DEFAULT_MEBIBYTES = 256  # of protocol 3's default namespace, which nobody is meant to use
DEFAULT_SHARE = 1  # percent
CONFIGURATION = "mps.toml"

_STARTING = 10.0  # seconds
_MOST_SAID = 4096  # bytes
_ORDER = "PCI_BUS_ID"


@dataclass(frozen=True, slots=True)
class ManagedGpu:
    """A GPU that a daemon can have: new enough, and not in MIG mode. `capacity` is in bytes."""

    index: int
    uuid: str
    capacity: int


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon as it is to be."""

    protocol: int
    pipe_directory: str
    log_directory: str
    gpus: tuple[ManagedGpu, ...]
    options: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def daemons_two(pipes: str, logs: str, gpus: Sequence[ManagedGpu]) -> tuple[Daemon, ...]:
    """Protocol 2: one for each GPU, which is ordinal 0 of it."""
    return tuple(
        Daemon(
            2,
            f"{pipes}/{gpu.index}",
            f"{logs}/{gpu.index}",
            (gpu,),
            ("-d",),
            MappingProxyType({"CUDA_VISIBLE_DEVICES": gpu.uuid}),
        )
        for gpu in gpus
    )


def daemon_three(pipes: str, logs: str, gpus: Sequence[ManagedGpu], *, configuration: str) -> Daemon:
    """Protocol 3: one for all GPUs and all users. `configuration` is the path of its file."""
    options = ("-d", "-p", "3", "-m", "-a", configuration)
    return Daemon(3, pipes, logs, tuple(gpus), options)


def configuration_three(gpus: Sequence[ManagedGpu]) -> bytes:
    """The file of a daemon of protocol 3: one server, whose default namespace is too small to be of use."""
    devices = ",".join(gpu.uuid for gpu in gpus)
    return (
        'schema_version = "1.0"\n\n'
        f"[servers.{SERVER}]\n"
        f'allowed_devices = "{devices}"\n'
        f'pinned_memory_limit = "{DEFAULT_MEBIBYTES}M"\n'
        f'active_thread_percentage = "{DEFAULT_SHARE}"\n\n'
        "[features.memacct]\n"
        "enabled = true\n"
    ).encode()


def prepare_folders(daemon: Daemon) -> Failure | None:
    """Make both folders. The pipe directory is root's alone until the daemon is ready for others."""
    try:
        make(daemon.log_directory, 0o755)
        make(daemon.pipe_directory, 0o700)
        with opened(daemon.log_directory):
            pass
    except ForeignError as error:
        return error.problem
    except OSError as error:
        return changing(error.filename or daemon.pipe_directory, error)
    return show(daemon, to_others=False)


def show(daemon: Daemon, *, to_others: bool) -> Failure | None:
    """Let others reach the daemon's sockets, or not. Root in a container reaches them in any case."""
    try:
        with opened(daemon.pipe_directory) as folder:
            os.fchmod(folder, 0o755 if to_others else 0o700)
    except ForeignError as error:
        return error.problem
    except OSError as error:
        return changing(daemon.pipe_directory, error)
    return None


def start(binary: str, daemon: Daemon) -> Failure | None:
    """Start a daemon in the background. Whether it then runs is for the caller to see."""
    path = shutil.which(binary)
    if path is None:
        return Failure(Reason.MISSING, f"there is no {binary} here")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_")}
    environment = {
        **ours,
        **daemon.environment,
        "CUDA_DEVICE_ORDER": _ORDER,
        "CUDA_MPS_PIPE_DIRECTORY": daemon.pipe_directory,
        "CUDA_MPS_LOG_DIRECTORY": daemon.log_directory,
    }
    with tempfile.TemporaryFile() as said:
        try:
            done = subprocess.run(
                [path, *daemon.options],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                cwd="/",
                start_new_session=True,
                timeout=_STARTING,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Failure(Reason.TIMEOUT, f"{path} has not gone to the background within {_STARTING:.0f} s")
        except OSError as error:
            return unusable(path, error)
        said.seek(0)
        text = said.read(_MOST_SAID).decode("utf-8", "replace").strip()
    if done.returncode != 0:
        last = text.rpartition("\n")[2] or f"exit code {done.returncode}"
        return Failure(Reason.DAEMON_NOT_RUNNING, f"{path} in {daemon.pipe_directory}: {last}")
    return None


def is_ours(process: DaemonProcess, daemon: Daemon, procfs: Path) -> bool:
    """Whether a process is the daemon that was started so, by what it was started with."""
    environment = process.environment
    if environment is None:
        return False
    try:
        arguments = read_whole(os.fsencode(procfs / str(process.pid) / "cmdline")).split(b"\0")
    except OSError:
        return False
    return (
        environment.pipe_directory == daemon.pipe_directory
        and environment.log_directory == daemon.log_directory
        and environment.visible == daemon.environment.get("CUDA_VISIBLE_DEVICES")
        and environment.order == _ORDER
        and tuple(os.fsdecode(word) for word in arguments[1:] if word) == daemon.options
    )
