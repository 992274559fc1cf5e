"""The process of the simulated control daemon: its files, its sockets, one call after the other.

Like the real one it reads the greeting of a connection before it looks at anything else, so that a connection that says
nothing stalls it. Unlike the real one it lets a call wait while another one is connected, unless the world's faults say
`overlap`: real daemons then lose the newcomer.
"""

import fcntl
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType

from simulator.mps import configuration, frontend, registration
from simulator.mps.calls import Call, listener, received
from simulator.mps.configuration import ConfigurationError
from simulator.mps.grammar import CommandError
from simulator.mps.logs import Logs
from simulator.mps.named_servers import NamedServers
from simulator.mps.options import Start
from simulator.mps.protocol2 import Protocol2
from simulator.mps.protocol3 import Protocol3
from simulator.mps.servers import Place, Reply
from simulator.mps.world import ENVIRONMENT, Fault, World, read

PID_FILE = "nvidia-cuda-mps-control.pid"  # not written by 535
_LONGEST = 106  # bytes of the longest of the sockets' paths
_TICK = 0.05  # seconds from one look at the world to the next


def main(start: Start) -> int:
    """Start the daemon, in the background or not. Returns the exit code of the call."""
    os.umask(0)
    pipe = Path(frontend.pipe_directory())
    folder = _log_folder()
    if not _usable(pipe):
        print(f"Cannot access CUDA_MPS_PIPE_DIRECTORY={pipe}")
        return 1
    pipe = pipe.resolve()
    lock = os.open(pipe / "control_lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("An instance of this daemon is already running")
        return 1
    world = read(Path(os.environ[ENVIRONMENT]))
    logs = Logs(folder, pid=os.getpid(), foreground=not start.background)
    logs.control(f"Starting control daemon using socket {pipe}/control")
    logs.control(f"To connect CUDA applications to this daemon, set env CUDA_MPS_PIPE_DIRECTORY={pipe}")
    (pipe / "log").unlink(missing_ok=True)
    os.mkfifo(pipe / "log", 0o777)
    if len(os.fsencode(pipe / "control_privileged")) > _LONGEST:
        return 1  # silently, as the real one
    if start.protocol == 3:
        print(f"To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY={pipe}")
    sys.stdout.flush()
    ready, tell = os.pipe()
    if start.background and not _fork_twice():
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    daemon = _Daemon(start, pipe, world=world, logs=logs)
    try:
        daemon.open()
    except (ConfigurationError, CommandError, OSError) as error:
        print(f"{start.apply or pipe}: {error}", file=sys.stderr)
        return 1
    if start.background:
        _leave_terminal()
    os.write(tell, b"1")
    os.close(tell)
    os.close(ready)
    daemon.run()
    return 0


def _log_folder() -> Path | None:
    folder = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY") or "/var/log/nvidia-mps")
    try:
        folder.mkdir(exist_ok=True)
        for name in ("control.log", "server.log"):
            (folder / name).open("a").close()
    except OSError:
        print(f"Warning: Failed writing log files to directory [{folder}]. No logs will be available.", flush=True)
        return None
    return folder


def _usable(pipe: Path) -> bool:
    try:
        pipe.mkdir(exist_ok=True)
    except OSError:
        return False
    return pipe.is_dir() and os.access(pipe, os.W_OK | os.X_OK)


def _fork_twice() -> bool:
    """Become a daemon; False in the process that was called."""
    if os.fork():
        return False
    os.setsid()
    if os.fork():
        os._exit(0)
    return True


def _leave_terminal() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)


class _Daemon:
    def __init__(self, start: Start, pipe: Path, *, world: World, logs: Logs) -> None:
        self._start = start
        self._pipe = pipe
        procfs = os.environ.get(registration.ENVIRONMENT)
        self._procfs = Path(procfs) if procfs else None
        self._world_path = Path(os.environ[ENVIRONMENT])
        self._world = world
        self._seen: tuple[int, int] | None = None
        self._logs = logs
        self._place = Place(
            str(pipe),
            self._world_path,
            pid=registration.shown_pid(self._procfs),
            uid=os.getuid(),
            visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
            multiuser=start.multiuser,
        )
        logs.belong_to(self._place.pid)
        self._listeners: list[socket.socket] = []
        self._namespaces: dict[Path, socket.socket] = {}  # that clients would connect to, if there were any
        self._call: Call | None = None
        self._lost = 0  # commands, since the faults changed
        self._collisions = 0
        self._faults = Fault()
        self._quits = False
        self._protocol: Protocol2 | Protocol3
        if start.protocol == 3:
            named = NamedServers(
                self._place, world, logs=logs, open_socket=self._open_socket, close_socket=self._close_socket
            )
            self._protocol = Protocol3(named)
        else:
            self._protocol = Protocol2(
                self._place,
                world,
                logs=logs,
                clock=time.monotonic,
                percentage=os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", ""),
                priority=os.environ.get("CUDA_MPS_CLIENT_PRIORITY", ""),
            )

    def open(self) -> None:
        """Make what tells others that the daemon is there."""
        for name, mode in (("control", 0o666), ("control_privileged", 0o755)):
            self._listeners.append(listener(self._pipe / name, mode))
        if isinstance(self._protocol, Protocol3) and self._start.apply:
            for words in configuration.commands(Path(self._start.apply)):
                self._protocol.apply(words)
        if self._world.generation >= 550:
            (self._pipe / PID_FILE).write_text(str(self._place.pid))
        if self._procfs is not None:
            registration.sign_on(self._procfs, sys.argv[1:])
            signal.signal(signal.SIGTERM, self._die)
        self._follow()

    def run(self) -> None:
        """Answer calls until one says quit."""
        while not self._quits:
            self._follow()
            if self._faults.hang:
                time.sleep(_TICK)
                continue
            watched = self._listeners if self._call is None else [self._call.connection]
            if self._faults.overlap:
                watched = [*self._listeners, *watched]
            readable = set(select.select(watched, [], [], _TICK)[0])
            self._follow()
            if self._call is not None and self._call.connection in readable:
                self._answer(self._call)
            for knocked in readable.intersection(self._listeners):
                if not self._quits:
                    self._accept(knocked)

    def _follow(self) -> None:
        """See what the world has become."""
        status = self._world_path.stat()
        seen = (status.st_ino, status.st_mtime_ns)
        if seen != self._seen:
            self._seen = seen
            self._world = read(self._world_path)
            faults = self._world.fault(str(self._pipe))
            if faults != self._faults:
                self._faults, self._lost = faults, 0
            self._protocol.follow(self._world)
        self._protocol.tick()

    def _accept(self, knocked: socket.socket) -> None:
        connection, _ = knocked.accept()
        if self._faults.refuse:
            connection.close()
            return
        greeting = received(connection)
        if greeting[:1] != b"H":
            if not greeting:
                self._logs.control("User did not send valid credentials")
            else:
                self._logs.control("Unable to read new connection type information")
            self._logs.control("Unable to accept connection")
            connection.close()
            return
        if self._call is not None:
            self._lose(connection)
            return
        self._logs.control("Accepting connection...")
        self._logs.control("NEW UI")
        call = Call(connection)
        arguments = [word for word in greeting[1:].decode(errors="replace").split("\0") if word]
        if arguments and self._starts_losing():
            call.end()
            return
        reply = self._protocol.greet(arguments, call.uid)
        if reply is None:
            self._call = call
            call.send(b"S")
            return
        self._reply(call, reply)
        self._ended(call)

    def _answer(self, call: Call) -> None:
        """Answer the next line of a call, if there is one."""
        packet = received(call.connection)
        if packet[:1] != b"L" or self._starts_losing():
            self._ended(call)
            return
        self._reply(call, self._protocol.command(packet[1:].decode(errors="replace"), call.uid))

    def _reply(self, call: Call, reply: Reply) -> None:
        time.sleep(self._faults.delay)
        if reply.quit_after is not None:
            self._quit(reply.quit_after)
        call.answer(reply)

    def _starts_losing(self) -> bool:
        """Whether the next command is one of those that get lost."""
        self._lost += 1
        return self._lost <= self._faults.lose

    def _ended(self, call: Call) -> None:
        """A call is over. Who connected meanwhile is lost, if calls that overlap are."""
        self._logs.control("UI closed")
        call.end()
        while self._faults.overlap and not self._quits:
            waiting = select.select(self._listeners, [], [], 0)[0]
            if not waiting:
                break
            connection, _ = waiting[0].accept()
            if received(connection)[:1] == b"H":
                self._lose(connection)
        self._call = None

    def _lose(self, connection: socket.socket) -> None:
        """Lose a call: every second one thinks that all went well."""
        self._collisions += 1
        call = Call(connection)
        if self._collisions % 2 == 0:
            if isinstance(self._protocol, Protocol2):
                call.send(b"S")
            else:
                call.answer(Reply())
        call.end()

    def _quit(self, seconds: float) -> None:
        """Get ready to end, when the clients have gone or the time is over."""
        until = time.monotonic() + seconds
        self._protocol.close(wait=True)
        while not self._protocol.idle and time.monotonic() < until:
            time.sleep(min(_TICK, max(0.0, until - time.monotonic())))
            self._follow()
        self._protocol.close(wait=False)
        self._logs.control("Exit with status 0")
        for name in ("log", PID_FILE):
            (self._pipe / name).unlink(missing_ok=True)
        if self._procfs is not None:
            registration.sign_off(self._procfs)
        for socket_ in self._listeners:
            socket_.close()
        self._quits = True

    def _die(self, number: int, _frame: FrameType | None) -> None:
        """Die of a signal as the real one does, leaving every file but those in the simulated procfs."""
        if self._procfs is not None:
            registration.sign_off(self._procfs)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _open_socket(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._namespaces[folder] = listener(folder / "control", 0o666)

    def _close_socket(self, folder: Path) -> None:
        self._namespaces.pop(folder).close()
        (folder / "control").unlink(missing_ok=True)
        folder.rmdir()
