"""The named servers of a protocol 3 daemon, their namespaces, and who is connected to which.

A namespace that nobody limited has the whole GPU, whatever its server's values are: those are the default namespace's.
A server is accepted even for a GPU that is not there, and its entry disappears a moment later. Clients are held to what
was in force when they connected.
"""

from collections.abc import Callable
from pathlib import Path

from simulator.mps import limits, servers
from simulator.mps.logs import Logs
from simulator.mps.servers import Client, Namespace, Place, Server
from simulator.mps.world import World, WouldBe

DEFAULT = "default"


class NamedServers:
    """Every server of a daemon. `open_socket` and `close_socket` make and remove the socket of a pipe directory."""

    def __init__(
        self,
        place: Place,
        world: World,
        *,
        logs: Logs,
        open_socket: Callable[[Path], None],
        close_socket: Callable[[Path], None],
    ) -> None:
        self.place = place
        self.world = world
        self.logs = logs
        self.servers: dict[str, Server] = {}
        self.dying: set[str] = set()  # servers that found no GPU or no process
        self._open_socket = open_socket
        self._close_socket = close_socket
        self._processes = servers.Processes(place.world)
        self._ended: set[int] = set()  # clients that lost their server
        self._closing = False

    @property
    def status(self) -> str:
        """What a server's status reads."""
        state = self.world.fault(self.place.pipe).server_state
        return {"ACTIVE": "Ready", "INITIALIZING": "Initializing", "FAULT": "Fault"}[state]

    def pipe(self, server: str, space: str = "") -> Path:
        """The pipe directory of a server's namespace; of the default one without a name."""
        return Path(self.place.pipe, server, space)

    def create(self, name: str, *, uid: int, allowed: str | None) -> None:
        """Start a server. Raises OSError when its socket can't be made."""
        devices, complete = servers.visible(self.world, self.place.visible)
        if allowed is not None:
            words = [word.strip() for word in allowed.split(",")]
            every = {key: gpu for number, gpu in enumerate(devices) for key in (str(number), gpu.uuid)}
            complete = complete and all(word in every for word in words)
            devices = tuple(every[word] for word in words if word in every)
        self._open_socket(self.pipe(name))
        self._open_socket(self.pipe(name, DEFAULT))
        pid = None
        if complete and not self.world.fault(self.place.pipe).server_exits:
            pid = self._processes.take(self.world)
        shown = self.place.pid + 1 if pid is None else pid
        text = ",".join(gpu.uuid for gpu in devices) if allowed is None else allowed
        self.servers[name] = Server(name, shown, uid, devices, allowed=text, namespaces={DEFAULT: Namespace(DEFAULT)})
        self.logs.control(f"Starting new server {shown} for user {uid}")
        if pid is None:
            self.dying.add(name)
            self.logs.server(shown, "no CUDA-capable device is detected", name=name)
            return
        for number, gpu in enumerate(devices):
            self.logs.server(pid, f"Creating server context on device {number} ({gpu.name})", name=name)
        self.logs.control(f"NEW SERVER {pid}: Ready")

    def end(self, server: Server, *, status: int) -> None:
        """Let a server end, and its clients with it."""
        self._ended |= {client.pid for _, client in server.clients}
        for space in server.namespaces:
            self._close_socket(self.pipe(server.name, space))
        self._close_socket(self.pipe(server.name))
        if server.name in self.dying:
            self.dying.remove(server.name)
        else:
            self._processes.give_back(server.pid)
        self.logs.control(f"Server {server.pid} exited with status {status}")
        del self.servers[server.name]

    def add_namespace(self, server: Server, name: str) -> None:
        """Make a namespace without any limit. Raises OSError when its socket can't be made."""
        self._open_socket(self.pipe(server.name, name))
        server.namespaces[name] = Namespace(name)

    def remove_namespace(self, server: Server, space: Namespace) -> None:
        """Remove a namespace without clients."""
        self._close_socket(self.pipe(server.name, space.name))
        del server.namespaces[space.name]

    def log_limits(self, server: Server, space: Namespace) -> None:
        """Log what a namespace's values became."""
        if space.percentage is not None:
            text = f"Active Threads Percentage set to {space.percentage:.1f}"
            self.logs.server(server.pid, text, name=server.name)
        for number in range(len(server.devices) if space.pinned is not None else 0):
            text = f"Device pinned memory limit for device {number} set to 0x{space.pinned:x} bytes"
            self.logs.server(server.pid, text, name=server.name)

    def find_client(self, pid: int) -> tuple[Server, Namespace, Client] | None:
        """A client, and where it is."""
        for server in self.servers.values():
            for space, client in server.clients:
                if client.pid == pid:
                    return server, space, client
        return None

    def terminate(self, server: Server, space: Namespace, client: Client) -> None:
        """Disconnect a client for good: only as another process it may come again."""
        self._ended.add(client.pid)
        servers.terminate(self.place, client.pid)
        self._drop(server, space, client)
        self.publish()

    def follow(self, world: World) -> None:
        """Follow the world: drop who is gone, let in who wants to come."""
        self.world = world
        for name in sorted(self.dying):
            self.end(self.servers[name], status=1)
        for server in list(self.servers.values()):
            if server.pid not in world.server_pids:
                self.logs.control("Server encountered a fatal exception. Shutting down")
                self.end(server, status=1)
        pipes = {would_be.pid: would_be.pipe_directory for would_be in world.clients}
        self._ended &= pipes.keys()
        for server in self.servers.values():
            for space, client in server.clients:
                if client.pid not in pipes:
                    self._drop(server, space, client)
        if not self._closing and self.status == "Ready":
            for would_be in world.clients:
                if would_be.pid not in self._ended and self.find_client(would_be.pid) is None:
                    self._connect(would_be)
        self.publish()

    def close(self, *, wait: bool) -> None:
        """Take no clients any more, and (without `wait`) end every server."""
        self._closing = True
        if not wait:
            for server in list(self.servers.values()):
                self.end(server, status=0)
            self.publish()

    def publish(self) -> None:
        """Say what the clients are held to."""
        servers.publish(self.place, list(self.servers.values()))

    def _route(self, would_be: WouldBe) -> tuple[Server, Namespace] | None:
        """Where a pipe directory leads: the main one to a server of the user's own, made when it is needed."""
        pipe, path = Path(self.place.pipe), Path(would_be.pipe_directory)
        if not path.is_relative_to(pipe):
            return None
        parts = path.relative_to(pipe).parts
        uid = 0 if self.place.multiuser else would_be.uid
        name = parts[0] if parts else f"uid_{uid}"
        if not parts and name not in self.servers:
            self.create(name, uid=uid, allowed=None)
        server = self.servers.get(name)
        if server is None or name in self.dying or len(parts) > 2 or server.uid != uid:
            return None  # with another user's server a program fails, and is no client
        space = server.namespaces.get(parts[1] if len(parts) == 2 else DEFAULT)
        return None if space is None else (server, space)

    def _connect(self, would_be: WouldBe) -> None:
        route = self._route(would_be)
        if route is None:
            return
        server, space = route
        gpus = servers.seen_by(would_be, server)
        if not gpus:
            return
        uuids = [gpu.uuid for gpu in gpus]
        client = Client(
            would_be.pid,
            uid=would_be.uid,
            command=would_be.command,
            devices=tuple(gpu.index for gpu in gpus),
            context=server.next_context(),
            percentage=limits.latched_percentage(space.percentage or 100.0, would_be.environ),
            limits={
                gpu.index: limits.latched_limit(space.pinned, would_be.environ, place, uuids, drops_all=True)
                for place, gpu in enumerate(gpus)
            },
        )
        space.clients[client.pid] = client
        text = f"Client {{PID: {client.pid}, Context ID: {client.context}}} connected"
        self.logs.server(server.pid, text, name=server.name)

    def _drop(self, server: Server, space: Namespace, client: Client) -> None:
        del space.clients[client.pid]
        who = f"{{PID: {client.pid}, Context ID: {client.context}}}"
        text = f"Server failed to recevie command with status 806, assuming client {who} exit"  # their spelling
        self.logs.server(server.pid, text, name=server.name)
