"""The processes of a simulated node, each a real one: the kubelet, the clockwork of the scenario, and the exporter."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.error import URLError
from urllib.request import urlopen

from simulator.node import Paths
from simulator.nvml import counters, state

_START = 20.0  # seconds that a process may take to be ready
_STOP = 5.0  # seconds that it may take to end


class StartError(Exception):
    """A process did not come up, in one line."""


class Processes:
    """Starts processes, and ends exactly those. A context manager: leaving it leaves nothing running."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running):
            self.stop(process)

    def start(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        errors: IO[bytes] | int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a Python module. It gets a process group of its own, so that Ctrl-C reaches only us, who end it."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stderr=errors,
            process_group=0,
        )
        self._running.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """End a process gracefully, or by force when it takes too long. Returns its exit code."""
        process.terminate()
        try:
            code = process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if process in self._running:
            self._running.remove(process)
        return code

    def kubelet(self, paths: Paths) -> subprocess.Popen[bytes]:
        """The node's kubelet; returns when its socket answers."""
        before = _identity(paths.kubelet_socket)
        process = self.start(
            "simulator.kubelet", "--socket", str(paths.kubelet_socket), "--state", str(paths.kubelet_state)
        )
        _wait(lambda: _identity(paths.kubelet_socket) not in (None, before), process, "the simulated kubelet")
        return process

    def clockwork(self, paths: Paths, scenario: str) -> subprocess.Popen[bytes]:
        """What lets the scenario go on with time; returns when the node is what it is at the start."""
        process = self.start("simulator.node", "--root", str(paths.root), "--scenario", scenario)
        _wait(paths.kubelet_state.exists, process, "the simulated node")
        return process

    def exporter(
        self, paths: Paths, *flags: str, address: str, errors: IO[bytes] | int | None = None
    ) -> subprocess.Popen[bytes]:
        """The exporter on the node, unchanged: only paths and the library path tell it apart from a real one."""
        return self.start(
            "exporter",
            "exporter",
            *exporter_flags(paths, address=address),
            *flags,
            environment=exporter_environment(paths),
            errors=errors,
        )


def exporter_flags(paths: Paths, *, address: str) -> Sequence[str]:
    """The flags that point an exporter at a simulated node."""
    return (
        f"--path.procfs={paths.procfs}",
        f"--path.sysfs={paths.sysfs}",
        f"--path.logs={paths.logs}",
        f"--kubelet.socket={paths.kubelet_socket}",
        f"--web.listen-address={address}",
    )


def exporter_environment(paths: Paths) -> Mapping[str, str]:
    """The environment in which an NVML client loads the node's driver library."""
    return {
        "LD_LIBRARY_PATH": str(paths.library),
        state.ENVIRONMENT: str(paths.driver_state),
        counters.ENVIRONMENT: str(paths.driver_calls),
    }


def free_address(preferred: int) -> str:
    """An address on the loopback interface, with the preferred port if nobody has it."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return f"127.0.0.1:{probe.getsockname()[1]}"
    raise StartError("no free port on 127.0.0.1")


def wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    """Return when the exporter has its first snapshot. Raises StartError."""

    def ready() -> bool:
        try:
            return fetch(f"http://{address}/-/ready") is not None
        except (URLError, OSError):
            return False

    _wait(ready, process, "the exporter")


def fetch(url: str) -> bytes:
    """The body behind a URL of ours. Raises URLError or OSError."""
    with urlopen(url, timeout=5) as response:  # noqa: S310 - our own exporter's address
        body: bytes = response.read()
    return body


def _identity(path: Path) -> tuple[int, int] | None:
    """What changes when the file is replaced. An inode alone is given out again."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_ctime_ns


def _wait(done: Callable[[], bool], process: subprocess.Popen[bytes], what: str) -> None:
    until = time.monotonic() + _START
    while not done():
        if process.poll() is not None:
            raise StartError(f"{what} ended with exit code {process.returncode}")
        if time.monotonic() > until:
            raise StartError(f"{what} was not ready after {_START:.0f} s")
        time.sleep(0.02)
