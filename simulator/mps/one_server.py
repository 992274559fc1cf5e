"""The one server of a protocol 2 daemon: when it starts, whom it lets in, when it ends.

It starts for the first would-be client (or on command), belongs to that client's user, stays when idle, and goes when
another user waits. Clients are held to what was in force when they connected.
"""

from simulator.mps import limits, servers
from simulator.mps.logs import Logs
from simulator.mps.servers import Client, Namespace, Place, Server
from simulator.mps.world import World, WouldBe

_BINARY_VERSIONS = {535: 12020, 550: 12040}
_NEWEST = 13000


class OneServer:
    """The server, if there is one, and the defaults of servers to come."""

    def __init__(self, place: Place, world: World, *, logs: Logs, percentage: float) -> None:
        self.place = place
        self.world = world
        self.logs = logs
        self.server: Server | None = None
        self.percentage = percentage
        self.limits: dict[str, int] = {}  # bytes by ordinal or (from 615 on) UUID
        self._processes = servers.Processes(place.world)
        self._ended: set[int] = set()  # clients that lost their server
        self._pending: set[int] = set()
        self._closing = False

    @property
    def state(self) -> str:
        """INITIALIZING, ACTIVE or FAULT; only an active server lets clients in."""
        return self.world.fault(self.place.pipe).server_state

    def follow(self, world: World) -> None:
        """Follow the world: drop who is gone, let in who wants to come."""
        self.world = world
        here = {would_be.pid: would_be for would_be in world.clients if would_be.pipe_directory == self.place.pipe}
        self._ended &= here.keys()
        self._pending &= here.keys()
        server = self.server
        if server is not None and server.pid not in world.server_pids:
            self.logs.control("Server encountered a fatal exception. Shutting down")
            self.end(server, status=1)
        elif server is not None:
            for client in [client for _, client in server.clients if client.pid not in here]:
                self.drop(client)
        for would_be in here.values():
            if not self._closing and would_be.pid not in self._ended:
                self._connect(would_be)
        self.publish()

    def close(self, *, wait: bool) -> None:
        """Take no clients any more, and (without `wait`) end every server."""
        self._closing = True
        if not wait and self.server is not None:
            self.end(self.server, status=0)
            self.publish()

    def start(self, uid: int) -> Server | None:
        """Start a server. Without a server process to be had it ends as it starts, which only the log tells."""
        pid = None if self.world.fault(self.place.pipe).server_exits else self._processes.take(self.world)
        shown = self.place.pid + 1 if pid is None else pid
        self.logs.control(f"Starting new server {shown} for user {uid}")
        if pid is None:
            self.logs.control(f"Server {shown} exited with status 1")
            return None
        devices, _ = servers.visible(self.world, self.place.visible)
        space = Namespace("default", self.percentage)
        for key, limit in self.limits.items():  # of two entries for one GPU the last one counts
            ordinal = next((str(number) for number, gpu in enumerate(devices) if key == gpu.uuid), key)
            if ordinal.isdigit() and int(ordinal) < len(devices):
                space.limits[ordinal] = limit
        self.server = Server("", pid, uid, devices, namespaces={"default": space})
        version = _BINARY_VERSIONS.get(self.world.generation, _NEWEST)
        self.logs.server(pid, f"CUDA MPS Server for Linux/Unix. Binary version: {version}")
        for number, gpu in enumerate(devices):
            self.logs.server(pid, f"Creating server context on device {number} ({gpu.name})")
        self.log_percentage(self.server)
        for key in space.limits:
            self.log_limit(self.server, key)
        self.logs.control(f"NEW SERVER {pid}: Ready")
        return self.server

    def end(self, server: Server, *, status: int) -> None:
        """Let the server end, and its clients with it."""
        self._ended |= {client.pid for _, client in server.clients}
        self._processes.give_back(server.pid)
        self.logs.control(f"Server {server.pid} exited with status {status}")
        self.server = None
        self.publish()

    def terminate(self, client: Client) -> None:
        """Disconnect a client for good: only as another process it may come again."""
        self._ended.add(client.pid)
        servers.terminate(self.place, client.pid)
        self.drop(client)
        self.publish()

    def drop(self, client: Client) -> None:
        """A client has gone."""
        if self.server is None or self.server.default.clients.pop(client.pid, None) is None:
            return
        if self.world.generation < 615:
            text = "Receive command failed, assuming client exit"
        else:
            who = f"{{PID: {client.pid}, Context ID: {client.context}}}"
            text = f"Server failed to recevie command with status 806, assuming client {who} exit"  # their spelling
        self.logs.server(self.server.pid, text)

    def publish(self) -> None:
        """Say what the clients are held to."""
        servers.publish(self.place, [] if self.server is None else [self.server])

    def log_percentage(self, server: Server) -> None:
        """Log a server's share, as the server does when it is set."""
        self.logs.server(server.pid, f"Active Threads Percentage set to {server.default.percentage:.1f}")

    def log_limit(self, server: Server, key: str) -> None:
        """Log a server's limit for a device."""
        limit = server.default.limits[key]
        self.logs.server(server.pid, f"Device pinned memory limit for device {key} set to 0x{limit:x} bytes")

    def _connect(self, would_be: WouldBe) -> None:
        if self.server is not None and would_be.pid in self.server.default.clients:
            return
        uid = 0 if self.place.multiuser else would_be.uid
        ready = self.server is not None and self.server.uid == uid and self.state == "ACTIVE"
        if ready or would_be.pid not in self._pending:
            does = "Server already exists" if ready else "Server is not ready, push client to pending list"
            self.logs.control(f"NEW CLIENT {would_be.pid} from user {would_be.uid}: {does}")
        if not ready:
            self._pending.add(would_be.pid)
            if not self._make_room(uid):
                return
        server = self.server
        gpus = () if server is None else servers.seen_by(would_be, server)
        if server is None or not gpus:
            return
        self._pending.discard(would_be.pid)
        space = server.default
        client = Client(
            would_be.pid,
            uid=would_be.uid,
            command=would_be.command,
            devices=tuple(gpu.index for gpu in gpus),
            context=server.next_context(),
            percentage=limits.latched_percentage(space.percentage or 100.0, would_be.environ),
            limits={
                gpu.index: limits.latched_limit(
                    space.limits.get(str(server.devices.index(gpu))),
                    would_be.environ,
                    place,
                    [gpu.uuid for gpu in gpus],
                    drops_all=False,
                )
                for place, gpu in enumerate(gpus)
            },
        )
        space.clients[client.pid] = client
        self.logs.server(server.pid, f"Client {{PID: {client.pid}, Context ID: {client.context}}} connected")

    def _make_room(self, uid: int) -> bool:
        """Get a server that takes a user's clients now: a new one, in the place of an idle one of somebody else."""
        if self.server is not None:
            if self.server.clients or self.state != "ACTIVE":
                return False
            if self.server.uid != uid:
                self.end(self.server, status=0)
        if self.server is None and self.start(uid) is None:
            return False
        return self.state == "ACTIVE"
