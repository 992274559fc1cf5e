"""The processes of a simulated node, each a real one: kubelet, API server, the scenario's clockwork, the exporter."""

import json
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

from simulator import certificates, mps_control
from simulator.claims import NODE
from simulator.errors import StartError
from simulator.mps import registration
from simulator.mps_daemons import Daemons
from simulator.nvml import counters, state
from simulator.paths import Paths
from simulator.scenario import Scenario

_START = 20.0  # seconds that a process may take to be ready
_STOP = 5.0  # seconds that it may take to end


class Processes:
    """Starts processes, and ends exactly those. A context manager: leaving it leaves nothing running."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []
        self._daemons: list[Daemons] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running):
            self.stop(process)
        for daemons in self._daemons:
            daemons.end()

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
        flags = ["--socket", str(paths.kubelet_socket), "--state", str(paths.kubelet_state)]
        if "pod_objects" in json.loads(paths.kubelet_state.read_text()):
            flags += ["--pods-socket", str(paths.pods_socket)]
        process = self.start("simulator.kubelet", *flags)
        _wait(lambda: _identity(paths.kubelet_socket) not in (None, before), process, "the simulated kubelet")
        return process

    def apiserver(self, paths: Paths) -> subprocess.Popen[bytes]:
        """The cluster's API server, at the same address each time; returns when it listens.

        It also mounts the exporter's service account. Only for a node that has an API server's state.
        """
        key = paths.root / "apiserver.key"
        if not paths.apiserver_address.exists():
            paths.service_account.mkdir()
            try:
                certificates.make(paths.service_account / "ca.crt", key=key)
            except certificates.CertificateError as error:
                raise StartError(str(error)) from None
            token = json.loads(paths.apiserver_state.read_text())["tokens"][0]
            (paths.service_account / "token").write_text(token)
            paths.apiserver_address.write_text(free_address(0))
        address = paths.apiserver_address.read_text()
        process = self.start(
            "simulator.apiserver",
            *("--listen", address),
            *("--state", str(paths.apiserver_state)),
            *("--calls", str(paths.root / "apiserver.calls")),
            *("--writes", str(paths.apiserver_writes)),
            *("--certificate", str(paths.service_account / "ca.crt")),
            *("--key", str(key)),
        )
        _wait(lambda: _listens(address), process, "the simulated API server")
        return process

    def mps(self, paths: Paths, scenario: Scenario) -> Daemons:
        """The node's MPS control daemons, configured; none where the scenario has none.

        To be called before the node has processes: programs connect as soon as they can, and keep what they got.
        """
        daemons = Daemons(paths, scenario)
        self._daemons.append(daemons)
        daemons.start()
        return daemons

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

    def enforcer(
        self, paths: Paths, *flags: str, address: str, errors: IO[bytes] | int | None = None
    ) -> subprocess.Popen[bytes]:
        """The enforcer on the node, unchanged."""
        for folder in (paths.enforcer_state, paths.receipts):
            folder.parent.mkdir(parents=True, exist_ok=True)
        return self.start(
            "exporter",
            "enforcer",
            *exporter_flags(paths, address=address),
            *enforcer_flags(paths),
            *flags,
            environment=exporter_environment(paths),
            errors=errors,
        )


def enforcer_flags(paths: Paths) -> Sequence[str]:
    """The flags that point an enforcer at a simulated node."""
    return (
        f"--path.state={paths.enforcer_state}",
        f"--path.receipts={paths.receipts}",
        f"--mps.managed-directory={paths.managed_mps}",
    )


def exporter_flags(paths: Paths, *, address: str) -> Sequence[str]:
    """The flags that point an exporter at a simulated node."""
    mps = [f"--mps.pipe-directory={lock.parent}" for lock in sorted(paths.run.rglob("control_lock"))]
    if paths.bin.exists():
        ours = (paths.managed_mps, paths.managed_mps / "[0-9]*")  # there once an enforcer has started them
        mps += [f"--mps.pipe-directory={path}" for path in ours]
        mps.append(f"--mps.control={paths.bin / mps_control.NAME}")
    return (
        *mps,
        f"--path.procfs={paths.procfs}",
        f"--path.sysfs={paths.sysfs}",
        f"--path.logs={paths.logs}",
        f"--path.serviceaccount={paths.service_account}",
        f"--node-name={NODE}",
        f"--kubelet.socket={paths.kubelet_socket}",
        f"--kubelet.pods-socket={paths.pods_socket}",
        f"--web.listen-address={address}",
    )


def exporter_environment(paths: Paths) -> Mapping[str, str]:
    """The environment in which an NVML client loads the node's driver library, and a pod finds the API server."""
    host, port = "", ""
    if paths.apiserver_address.exists():
        host, _, port = paths.apiserver_address.read_text().rpartition(":")
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "LD_LIBRARY_PATH": str(paths.library),
        registration.ENVIRONMENT: str(paths.procfs),
        **({"PATH": f"{paths.bin}:{os.environ.get('PATH', os.defpath)}"} if paths.bin.exists() else {}),
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


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


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
