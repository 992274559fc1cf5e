"""The MPS control daemons of a simulated node: started, configured and ended through their own front-end."""

import os
import signal
import subprocess
from pathlib import Path

from simulator import mps_control, mps_world
from simulator.driver import Running
from simulator.errors import StartError
from simulator.mps import registration, world
from simulator.node import pids
from simulator.paths import Paths
from simulator.scenario import Daemon, Process, Scenario

_CALL = 10.0  # seconds that a call may take


class Daemons:
    """The daemons of a scenario. Ends those that it started, gracefully where they answer."""

    def __init__(self, paths: Paths, scenario: Scenario) -> None:
        self._paths = paths
        self._scenario = scenario
        self._executable = paths.bin / mps_control.NAME
        self._started: list[Daemon] = []
        self._restarts: dict[str, int] = {}  # how many were due, by pipe directory

    def start(self) -> None:
        """Start and configure every daemon, in a world that has server processes but no clients yet."""
        if not self._scenario.mps:
            return
        mps_control.install(self._paths.bin, world=self._paths.mps_world)
        world.write(self._paths.mps_world, mps_world.world_of(self._scenario, self._paths, self._servers()))
        for daemon in self._scenario.mps:
            if daemon.managed:
                self._started.append(daemon)  # by somebody else; ended with the node all the same
            else:
                self.start_one(daemon)

    def start_one(self, daemon: Daemon) -> None:
        """Start and configure a daemon, the first time or again. Raises StartError."""
        mps_world.pipe_directory(self._paths, daemon).mkdir(parents=True, exist_ok=True)
        mps_world.log_directory(self._paths, daemon).mkdir(parents=True, exist_ok=True)
        self.call(daemon, *mps_world.options(daemon))
        if daemon not in self._started:
            self._started.append(daemon)
        for arguments, line in mps_world.settings(daemon):
            self.call(daemon, *arguments, line=line)

    def advance(self, seconds: float) -> None:
        """Restart each daemon for which that is due by now, in seconds from the node's start. Raises StartError.

        What was set in a daemon while it ran is lost; it gets back what the scenario says.
        """
        for daemon in self._scenario.mps:
            due = int(seconds // daemon.restart_every) if daemon.restart_every else 0
            if due > self._restarts.get(daemon.pipe, 0):
                self._restarts[daemon.pipe] = due
                self.call(daemon, line="quit -t 0")
                self.start_one(daemon)

    def call(self, daemon: Daemon, *arguments: str, line: str = "") -> str:
        """Call a daemon, and return what it prints. Raises StartError when it does not end well."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        environment |= {
            registration.ENVIRONMENT: str(self._paths.procfs),
            **mps_world.environment(self._scenario, self._paths, daemon),
        }
        what = " ".join(arguments) or line
        try:
            done = subprocess.run(
                [self._executable, *arguments],
                input=f"{line}\n" if line else "",
                env=environment,
                capture_output=True,
                text=True,
                timeout=_CALL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StartError(f"{mps_control.NAME} {what}: no answer after {_CALL:.0f} s") from None
        if done.returncode != 0:
            raise StartError(f"{mps_control.NAME} {what}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def end(self) -> None:
        """End the daemons that were started; one that does not answer is killed."""
        for daemon in reversed(self._started):
            if not self.pid(daemon):
                continue
            try:
                self.call(daemon, line="quit -t 0")
            except StartError:
                pid = self.pid(daemon)
                if pid:
                    os.kill(pid, signal.SIGKILL)
        self._started.clear()

    def pid(self, daemon: Daemon) -> int:
        """The real pid of a daemon; 0: it does not run."""
        pipe = f"CUDA_MPS_PIPE_DIRECTORY={mps_world.pipe_directory(self._paths, daemon)}".encode()
        for folder in self._paths.procfs.glob("[0-9]*"):
            if not registration.is_daemon(folder):
                continue
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
            except FileNotFoundError:
                continue
            pid = registration.real_pid(folder)
            if pipe in words and os.fsencode(self._executable) in _command(pid):
                return pid
        return 0

    def _servers(self) -> list[Running]:
        """The server processes that the scenario will ever have."""
        of = pids(self._scenario)
        hosts: list[tuple[tuple[str, str, int], Process]] = [
            (("", "", number), process) for number, process in enumerate(self._scenario.host)
        ]
        for pod in self._scenario.pods:
            for container in pod.containers:
                hosts += [
                    ((pod.uid, container.name, number), process) for number, process in enumerate(container.processes)
                ]
        return [Running(of[key], process, None, None) for key, process in hosts if mps_world.is_server(process)]


def _command(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
