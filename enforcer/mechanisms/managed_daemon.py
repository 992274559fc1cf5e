"""`--mps=managed`: control daemons of our own, started, kept and, when idle, ended.

With driver 615 and a control command that knows protocol 3 there is one for the node, else one for each GPU. Nobody but
root reaches a daemon's sockets before its limits are what they are to be and its server is there. One that is gone is
started anew, after a pause that grows with each failure; what it had for jobs is the plan's to bring back.

Guarantees: a daemon that runs is never killed or replaced, ours or not; one of somebody else's in our directory is left
alone and told of; one that the enforcer started before it was itself started anew is taken over as it is; a daemon is
ended only when its servers have no clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from enforcer.mechanisms import mps_ready
from enforcer.mechanisms.compute_modes import ComputeModes
from enforcer.mechanisms.daemon_start import (
    CONFIGURATION,
    SERVER,
    Daemon,
    ManagedGpu,
    configuration_three,
    daemon_three,
    daemons_two,
    is_ours,
    prepare_folders,
    show,
    start,
)
from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.mps_telling import Telling, is_silent
from enforcer.outcomes import Done, Outcome, Pending
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import MpsDaemon
from exporter.sources import mps_commands
from exporter.sources.backoff import Backoff
from exporter.sources.mps_control import MpsControl
from exporter.sources.mps_process import DaemonProcess, ProcessFinder
from exporter.sources.mps_protocol import ProtocolThree

PIPES = "/run/podgpu/mps"
LOGS = "/run/podgpu/mps-logs"
FIRST_WITH_THREE = 615  # the driver's major version

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds
_NOBODY = frozenset({Reason.DAEMON_NOT_RUNNING, Reason.MISSING})


@dataclass(slots=True)
class _Kept:
    """A daemon, and what is known of its present process. `ready` is that process's pid and start time."""

    daemon: Daemon
    finder: ProcessFinder
    backoff: Backoff = field(
        default_factory=lambda: Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE, chance=lambda: 1.0)
    )
    ready: tuple[int, int] | None = None
    ready_at: float = 0.0  # monotonic
    not_before: float = 0.0  # monotonic


class ManagedDaemons:
    """The daemons below `pipes`, for one thread at a time.

    `exclusive`: nothing else may use their GPUs. `patience` is in seconds, for each of: a start to show, a daemon to be
    made ready, one to end.
    """

    def __init__(
        self,
        *,
        binary: str,
        state: Folder,
        modes: ComputeModes,
        procfs: Path,
        clock: Clock,
        exclusive: bool = False,
        patience: float = 10.0,
        pipes: str = PIPES,
        logs: str = LOGS,
    ) -> None:
        self._binary = binary
        self._state = state
        self._procfs = procfs
        self._clock = clock
        self._pipes = pipes
        self._logs = logs
        self._modes = modes
        self._exclusive = exclusive
        self._patience = patience
        self._three = ProtocolThree(binary, clock=clock)
        self._kept: dict[str, _Kept] = {}

    def keep(
        self,
        gpus: Sequence[ManagedGpu],
        *,
        driver_major: int,
        seen: Mapping[str, MpsDaemon | Failure],
    ) -> Mapping[str, Outcome]:
        """See to it that every daemon runs and is ready; how each stands, by pipe directory.

        `seen` is what the last reading told of the daemons. May take some seconds for each that is started; none when
        all is well.
        """
        daemons = self._wanted(gpus, driver_major)
        if isinstance(daemons, Failure):
            return {self._pipes: daemons}
        return {daemon.pipe_directory: self._keep(daemon, seen.get(daemon.pipe_directory)) for daemon in daemons}

    def stop(self) -> Mapping[str, Outcome]:
        """End those that have no clients, and give their GPUs back the compute mode that they had."""
        return {path: self._stop(kept) for path, kept in self._kept.items()}

    def _wanted(self, gpus: Sequence[ManagedGpu], driver_major: int) -> tuple[Daemon, ...] | Failure:
        """The daemons that there are to be. One that is kept stays as it is while it runs."""
        three: bool | Failure = False
        if driver_major >= FIRST_WITH_THREE:
            three = self._three.known(until=self._clock.monotonic() + self._patience)
        if isinstance(three, Failure):
            return three
        if not three or not gpus:
            return daemons_two(self._pipes, self._logs, gpus)
        path = f"{self._state.path}/{CONFIGURATION}"
        return (daemon_three(self._pipes, self._logs, gpus, configuration=path),)

    def _keep(self, daemon: Daemon, seen: MpsDaemon | Failure | None) -> Outcome:
        kept = self._kept.get(daemon.pipe_directory)
        if kept is None:
            finder = ProcessFinder(self._procfs, daemon.pipe_directory, clock=self._clock)
            kept = self._kept[daemon.pipe_directory] = _Kept(daemon, finder)
        kept.daemon = daemon
        claimed = self._claim(daemon)
        outcome = self._kept_running(kept, seen)
        return claimed if claimed is not None and isinstance(outcome, Done) else outcome

    def _claim(self, daemon: Daemon) -> Failure | None:
        """See to the compute modes; why one is not as it is to be."""
        change = self._modes.claim if self._exclusive else self._modes.restore
        outcomes = [change(gpu.uuid) for gpu in daemon.gpus]
        return next((outcome for outcome in outcomes if isinstance(outcome, Failure)), None)

    def _kept_running(self, kept: _Kept, seen: MpsDaemon | Failure | None) -> Outcome:
        process = kept.finder.find()
        if process is not None and not is_ours(process, kept.daemon, self._procfs):
            return Failure(
                Reason.FOREIGN,
                f"process {process.pid} is a control daemon in {kept.daemon.pipe_directory} that podgpu did not start "
                "so; end it when it has no clients, or use --mps=found",
            )
        if process is not None and kept.ready == (process.pid, process.started) and not _lacks_a_server(seen):
            return Done(f"process {process.pid}")
        now = self._clock.monotonic()
        if kept.ready is not None and process is None:  # it was there, and is not any more
            kept.not_before = now + kept.backoff.pause(worked_for=now - kept.ready_at)
            kept.ready = None
        if now < kept.not_before:
            return Pending(f"is tried again in {kept.not_before - now:.0f} s")
        started = self._started(kept) if process is None else process
        outcome = started if isinstance(started, Failure) else self._made_ready(kept, started)
        if not isinstance(outcome, Done):
            kept.not_before = self._clock.monotonic() + kept.backoff.pause()
        return outcome

    def _started(self, kept: _Kept) -> DaemonProcess | Failure:
        """Start the daemon, unless somebody answers in its directory."""
        daemon = kept.daemon
        answer = self._telling(daemon).ask(mps_commands.default_percentage())
        if not isinstance(answer, Failure) or answer.reason not in _NOBODY:
            return Failure(
                answer.reason if isinstance(answer, Failure) and is_silent(answer) else Reason.FOREIGN,
                f"somebody answers in {daemon.pipe_directory} whose process is not seen ({answer}): "
                "podgpu needs the host's pid namespace, and the directory for itself",
            )
        problem = prepare_folders(daemon)
        if problem is None and daemon.protocol == 3:
            problem = self._state.write(CONFIGURATION, configuration_three(daemon.gpus))
        problem = problem or start(self._binary, daemon)
        if problem is not None:
            return problem
        waiting = self._telling(daemon)
        while (process := kept.finder.find()) is None:
            if not waiting.again():
                return Failure(
                    Reason.DAEMON_NOT_RUNNING, f"no daemon is seen in {daemon.pipe_directory} after its start"
                )
        return process

    def _made_ready(self, kept: _Kept, process: DaemonProcess) -> Outcome:
        """Set and read back what the daemon gives to whoever comes, have a server, and only then let others in."""
        daemon = kept.daemon
        telling = self._telling(daemon)
        ready: Callable[[Daemon, Telling], Outcome] = mps_ready.three if daemon.protocol == 3 else mps_ready.two
        outcome = ready(daemon, telling)
        if isinstance(outcome, Failure) and outcome.reason is Reason.NOT_FOUND:
            self._end(kept)  # if nobody is in; to be started anew, with its server
        if not isinstance(outcome, Done):
            return outcome
        problem = show(daemon, to_others=True)
        if problem is not None:
            return problem
        if kept.ready != (process.pid, process.started):
            kept.ready, kept.ready_at = (process.pid, process.started), self._clock.monotonic()
        return outcome

    def _stop(self, kept: _Kept) -> Outcome:
        daemon = kept.daemon
        process = kept.finder.find()
        if process is not None:
            if not is_ours(process, daemon, self._procfs):
                return Failure(Reason.FOREIGN, f"process {process.pid} in {daemon.pipe_directory} is left alone")
            outcome = self._end(kept)
            if not isinstance(outcome, Done):
                return outcome
        given_back = [self._modes.restore(gpu.uuid) for gpu in daemon.gpus]
        failed = next((outcome for outcome in given_back if not isinstance(outcome, Done)), None)
        return failed or Done("has ended" if process is not None else "does not run")

    def _end(self, kept: _Kept) -> Outcome:
        """Shut others out, and end the daemon if nobody is in; else let them in again, if they were."""
        daemon = kept.daemon
        telling = self._telling(daemon)
        problem = show(daemon, to_others=False)
        clients = mps_ready.clients(daemon, telling)
        if problem is not None or isinstance(clients, Failure) or clients:
            reopened = show(daemon, to_others=kept.ready is not None)
            if isinstance(clients, Failure):
                return clients
            return problem or reopened or Pending(f"has {clients} clients, and is left running")
        telling.ask(mps_ready.END)  # the process shows whether it does
        while kept.finder.find() is not None:
            if not telling.again():
                return Pending("was asked to end, and waits for clients that came meanwhile")
        kept.ready = None
        return Done()

    def _telling(self, daemon: Daemon) -> Telling:
        control = MpsControl(self._binary, daemon.pipe_directory, deadline=self._patience, clock=self._clock)
        return Telling(control, seconds=self._patience, clock=self._clock)


def _lacks_a_server(seen: MpsDaemon | Failure | None) -> bool:
    """Whether a daemon was read and its server has gone: when idle and another user came, or after a fault."""
    if not isinstance(seen, MpsDaemon):
        return False
    return all(server.name != SERVER for server in seen.servers) if seen.protocol >= 3 else not seen.servers
