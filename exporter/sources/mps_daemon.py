"""One reading of the daemon of one pipe directory.

What was learned of a daemon (its protocol, its settings, its log) is forgotten when another one has started there: a
restart loses every limit and every share.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Device, MpsClient, MpsDaemon, MpsServer, PinnedLimit
from exporter.sources.mps_commands import Command
from exporter.sources.mps_control import DaemonGoneError, MpsControl
from exporter.sources.mps_devices import ordinals
from exporter.sources.mps_log import Logged, ServerLog
from exporter.sources.mps_process import (
    DEFAULT_LOG_DIRECTORY,
    DaemonProcess,
    ProcessFinder,
    server_uid,
    socket_identity,
)
from exporter.sources.mps_protocol import ProtocolThree, protocol
from exporter.sources.mps_text import MIB
from exporter.sources.mps_three import read_three
from exporter.sources.mps_two import SETTINGS_AGE, ProtocolTwo

_GONE = frozenset({Reason.DAEMON_NOT_RUNNING, Reason.DAEMON_WEDGED, Reason.TIMEOUT, Reason.MISSING})


class DaemonReader:
    """Reads one daemon. `deadline` is in seconds, for a whole reading. Not for use by several threads at once."""

    def __init__(
        self,
        pipe_directory: str,
        binary: str,
        three: ProtocolThree,
        *,
        procfs: Path,
        deadline: float,
        clock: Clock,
        settings_age: float = SETTINGS_AGE,
    ) -> None:
        self._settings_age = settings_age
        self._directory = pipe_directory
        self._three = three
        self._procfs = procfs
        self._deadline = deadline
        self._clock = clock
        self._control = MpsControl(binary, pipe_directory, deadline=deadline, clock=clock)
        self._finder = ProcessFinder(procfs, pipe_directory, clock=clock)
        self._until = 0.0
        self._identity: tuple[object, ...] = ()
        self._protocol: int | None = None
        self._two = self._new_two()
        self._log: ServerLog | None = None

    def read(self, gpus: Collection[Device]) -> MpsDaemon | Failure:
        """The daemon now, or why it is not known."""
        self._until = self._clock.monotonic() + self._deadline
        process = self._finder.find()
        identity = (socket_identity(self._directory), process and (process.pid, process.started))
        if identity != self._identity:
            self._forget()
            self._identity = identity
        try:
            daemon = self._read(gpus, process)
        except DaemonGoneError as error:
            if error.problem.reason in (Reason.DAEMON_NOT_RUNNING, Reason.UNKNOWN_COMMAND, Reason.MALFORMED):
                self._forget()
            return error.problem
        return daemon if process is None else replace(daemon, pid=process.pid, started=process.started)

    def _read(self, gpus: Collection[Device], process: DaemonProcess | None) -> MpsDaemon:
        if self._protocol is None:
            found = protocol(self._control, self._three, until=self._until)
            if isinstance(found, Failure):
                raise DaemonGoneError(found)
            self._protocol = found
        environment = process.environment if process is not None else None
        if self._protocol == 3:
            return read_three(self._ask, gpus, environment)
        devices = None
        if environment is not None:
            devices = ordinals(gpus, visible=environment.visible, order=environment.order)
        # The log first: what is set in between then shows as a difference, here or in the next cycle.
        logs: dict[int, Logged | Failure | None] = {}
        daemon = self._two.read(devices, count=len(gpus), logged=lambda pid: _limits(self._logged(pid, process, logs)))
        return replace(daemon, servers=tuple(with_log(server, logs.get(server.pid or 0)) for server in daemon.servers))

    def _ask(self, command: Command) -> str | Failure:
        answer = self._control.ask(command, until=self._until)
        if isinstance(answer, Failure) and answer.reason in _GONE:
            raise DaemonGoneError(answer)
        return answer

    def _forget(self) -> None:
        self._identity, self._protocol, self._two, self._log = (), None, self._new_two(), None

    def _new_two(self) -> ProtocolTwo:
        return ProtocolTwo(
            self._ask,
            uid_of=lambda pid: server_uid(self._procfs, pid),
            clock=self._clock,
            settings_age=self._settings_age,
        )

    def _logged(
        self, server: int, process: DaemonProcess | None, logs: dict[int, Logged | Failure | None]
    ) -> Logged | Failure | None:
        """What a server's log says, read once a cycle."""
        if server not in logs:
            log = self._log_of(process)
            logs[server] = log.read(server) if log is not None else None
        return logs[server]

    def _log_of(self, process: DaemonProcess | None) -> ServerLog | None:
        """The log of the daemon's servers. Its place is the daemon's own word, looked up as it sees it."""
        if process is None or process.environment is None:
            return None
        folder = process.environment.log_directory or DEFAULT_LOG_DIRECTORY
        if not folder.startswith("/"):
            return None
        path = f"{self._procfs}/{process.pid}/root{folder}/server.log"
        if self._log is None or self._log.path != path:
            self._log = ServerLog(path)
        return self._log


def _limits(logged: Logged | Failure | None) -> Mapping[int, int] | None:
    return logged.limits if isinstance(logged, Logged) else None


def with_log(server: MpsServer, logged: Logged | Failure | None) -> MpsServer:
    """A server with the exact limits of its log, where they are what the daemon shows. Pure.

    Where they are not, the log has missed a change; then what it says of clients is not believed either.
    """
    if not isinstance(logged, Logged) or isinstance(server.pinned, Failure):
        return server
    pinned = dict(server.pinned)
    for ordinal, amount in logged.limits.items():
        shown = pinned.get(ordinal)
        if shown is None or not shown.shown <= amount < shown.below:
            return server
        pinned[ordinal] = PinnedLimit(amount, below=amount + MIB)
    clients = server.clients
    if not isinstance(clients, Failure):
        clients = tuple(_with_limits(client, logged) for client in clients)
    return replace(server, pinned=MappingProxyType(pinned), clients=clients)


def _with_limits(client: MpsClient, logged: Logged) -> MpsClient:
    limits = logged.clients.get(client.pid)
    return client if limits is None else replace(client, pinned=limits)
