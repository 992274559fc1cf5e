"""Protocol 2: one server at a time, commands by the line, errors as text with exit code 0.

Replies are those of the daemons of 535 and 550, byte for byte where a daemon without a GPU gives one; a conformance
test compares them. A guess, because no daemon without a GPU shows it: what `get_device_client_list` prints of clients.
Not simulated: static SM partitions (`lspart`, `sm_partition`, `device_query`) of later drivers.
"""

import math
from collections.abc import Callable, Sequence

from simulator.mps import limits
from simulator.mps.logs import Logs
from simulator.mps.one_server import OneServer
from simulator.mps.servers import Place, Reply, Server
from simulator.mps.world import World

_START = 0.03  # seconds from start_server until there is a server, or none
_SETTINGS = "Control deamon settings can only be modified by the user started it or by the root user."  # their spelling
_INITIAL_PID_NAMESPACE = 4026531836


class Protocol2:
    """The commands of a daemon. `percentage` and `priority` are the texts of its environment."""

    def __init__(
        self,
        place: Place,
        world: World,
        *,
        logs: Logs,
        clock: Callable[[], float],
        percentage: str = "",
        priority: str = "",
    ) -> None:
        self._place = place
        self._generation = world.generation
        self._clock = clock
        self._one = OneServer(place, world, logs=logs, percentage=limits.percentage(percentage) or 100.0)
        self._priority = priority if priority in ("0", "1") else "0"
        self._wanted: tuple[float, int] | None = None  # a server to start: when, and as whom
        self._commands: dict[str, Callable[[list[str], int], str]] = {
            "get_server_list": self._server_list,
            "start_server": self._start_server,
            "shutdown_server": self._shutdown_server,
            "get_client_list": self._client_list,
            "get_device_client_list": self._device_client_list,
            "ps": self._ps,
            "get_default_active_thread_percentage": self._get_default_percentage,
            "set_default_active_thread_percentage": self._set_default_percentage,
            "get_active_thread_percentage": self._get_percentage,
            "set_active_thread_percentage": self._set_percentage,
            "get_default_device_pinned_mem_limit": self._get_default_limit,
            "set_default_device_pinned_mem_limit": self._set_default_limit,
            "get_device_pinned_mem_limit": self._get_limit,
            "set_device_pinned_mem_limit": self._set_limit,
            "get_default_client_priority": self._get_priority,
            "set_default_client_priority": self._set_priority,
            "terminate_client": self._terminate_client,
        }
        if self._generation >= 550:
            self._commands["get_server_status"] = self._server_status

    @property
    def idle(self) -> bool:
        """Whether nobody uses a server."""
        return self._one.server is None or not self._one.server.clients

    def greet(self, arguments: Sequence[str], uid: int) -> Reply | None:
        """Answer the arguments of a call, or (None) let it read commands from its standard input.

        Up to 550 arguments are ignored. A call of 615 hands what it would say to a protocol 3 daemon to this one.
        """
        if self._generation < 615 or not arguments:
            return None
        return self.command(" ".join(arguments), uid)

    def command(self, line: str, uid: int) -> Reply:
        """Answer one line."""
        self._one.logs.control(f"Cmd:{line.strip()}")
        words = line.split()
        name = words[0] if words else ""
        if name == "quit":
            return self._quit(words[1:], uid)
        answer = self._commands.get(name)
        text = answer(words[1:], uid) if answer else f'Unknown command "{name}"\n'
        if text:
            self._one.logs.control(text)
        return Reply(text)

    def follow(self, world: World) -> None:
        """Follow the world: drop who is gone, let in who wants to come."""
        self._one.follow(world)

    def tick(self) -> None:
        """Let come what takes its time."""
        if self._wanted is not None and self._clock() >= self._wanted[0]:
            uid = self._wanted[1]
            self._wanted = None
            if self._one.server is None:
                self._one.start(uid)

    def close(self, *, wait: bool) -> None:
        """Take no clients any more, and (without `wait`) end every server."""
        self._one.close(wait=wait)

    def _find(self, words: list[str]) -> tuple[Server | None, str]:
        """The server that a command names, or what to answer."""
        pid = limits.integer(words[0])[0] if words else 0
        if self._one.server is not None and self._one.server.pid == pid:
            return self._one.server, ""
        return None, f"Server {pid} not found\n"

    def _refused(self, uid: int, owner: int, why: str) -> str:
        """Why a user may not do what only root and the owner may; empty if the user may."""
        if uid in (0, owner):
            return ""
        modern = self._generation >= 550
        return f"Insufficient privileges for UID {uid}" + (f". {why}\n" if modern else "\n")

    def _settings_refused(self, uid: int) -> str:
        return self._refused(uid, self._place.uid, _SETTINGS) if self._generation >= 550 else ""

    def _server_refused(self, uid: int, server: Server) -> str:
        if self._generation < 550:
            return ""
        return self._refused(uid, server.uid, "Only the root user may change settings for another user's server.")

    def _server_list(self, _words: list[str], _uid: int) -> str:
        return "" if self._one.server is None else f"{self._one.server.pid}\n"

    def _server_status(self, words: list[str], _uid: int) -> str:
        if not words or not limits.integer(words[0])[0]:
            return "A server PID is required\n"
        server, missing = self._find(words)
        return missing if server is None else f"{self._one.state}\n"

    def _start_server(self, words: list[str], uid: int) -> str:
        if len(words) < 2 or words[0] != "-uid" or not words[1].isdigit():
            return "A user id (UID) is required to start a new server\n"
        wanted = int(words[1])
        refused = self._refused(uid, wanted, "Only the root user may start server for another user.")
        if not refused and self._wanted is None:
            self._wanted = (self._clock() + _START, 0 if self._place.multiuser else wanted)
        return refused

    def _shutdown_server(self, words: list[str], uid: int) -> str:
        server, missing = self._find(words)
        if server is None:
            return missing
        refused = self._refused(uid, server.uid, "Only the root user may shutdown another user's server.")
        if refused or (server.clients and "-f" not in words):
            return refused
        self._one.end(server, status=0)
        return ""

    def _client_list(self, words: list[str], _uid: int) -> str:
        server, missing = self._find(words)
        return missing if server is None else "".join(f"{client.pid}\n" for _, client in server.clients)

    def _device_client_list(self, words: list[str], _uid: int) -> str:
        if words:
            server, missing = self._find(words)
        else:
            server, missing = self._one.server, ""
        if server is None:
            return missing
        lines = []
        for gpu in server.devices:
            pids = [str(client.pid) for _, client in server.clients if gpu.index in client.devices]
            lines.append(f"{gpu.uuid} {' '.join(pids)}".rstrip() + "\n")
        return "".join(lines)

    def _ps(self, words: list[str], _uid: int) -> str:
        server = self._one.server
        if words[:1] == ["-p"]:
            server, missing = self._find(words[1:])
            if server is None:
                return f"{missing}{missing}\n"
        if server is None:
            return "Server not found\n"
        text = f"{'PID':<10}{'ID':<10}{'SERVER':<15}{'DEVICE':<26}{'NAMESPACE':<15}{'COMMAND':<15}\n"
        for _, client in server.clients:
            for gpu in (gpu for gpu in server.devices if gpu.index in client.devices):
                device = gpu.uuid[: len("GPU-12345678-1234-1234")]
                text += f"{client.pid:<10}{client.context:<10}{server.pid:<15}{device:<26}{_INITIAL_PID_NAMESPACE:<15}"
                text += f"{client.command.split()[0]:<15}\n"
        return text

    def _get_default_percentage(self, _words: list[str], _uid: int) -> str:
        return f"{self._one.percentage:.1f}\n"

    def _set_default_percentage(self, words: list[str], uid: int) -> str:
        refused = self._settings_refused(uid)
        if refused:
            return refused
        value = self._valid(words)
        self._one.percentage = self._one.percentage if value is None else value
        return f"{self._one.percentage:.1f}\n"

    def _valid(self, words: list[str]) -> float | None:
        value = limits.percentage(words[0] if words else "")
        if value is None:
            self._one.logs.control("Invalid percentage, expected between (0.0, 100.0]")
        return value

    def _get_percentage(self, words: list[str], _uid: int) -> str:
        server, missing = self._find(words)
        return missing if server is None else f"{server.default.percentage:.1f}\n"

    def _set_percentage(self, words: list[str], uid: int) -> str:
        server, missing = self._find(words)
        if server is None:
            return missing
        refused = self._server_refused(uid, server)
        if refused:
            return refused
        value = self._valid(words[1:])
        if value is not None:
            server.default.percentage = value
            self._one.log_percentage(server)
        return f"{server.default.percentage:.1f}\n"

    def _set_default_limit(self, words: list[str], uid: int) -> str:
        refused = self._settings_refused(uid)
        if not refused:
            self._put(self._one.limits, words)
        return refused

    def _put(self, into: dict[str, int], words: list[str]) -> str | None:
        """Set or remove a limit, and return its key. Up to 550 a UUID is a text without a number: device 0."""
        if words and words[0].startswith("GPU-") and self._generation >= 615:
            key, limit = words[0], limits.pinned(" ".join(["0", *words[1:]]))[1]
        else:
            device, limit = limits.pinned(" ".join(words))
            if device > limits.LAST_DEVICE:
                self._one.logs.control("Invalid device ordinal!")
                return None
            key = str(device)
        into.pop(key, None)
        if limit:
            into[key] = limit
        return key

    def _get_default_limit(self, words: list[str], _uid: int) -> str:
        limit = self._one.limits.get(self._key(words))
        if limit is None:
            self._one.logs.control("No default pinned memory limit set for the device!")
        return "" if limit is None else f"{limits.shown(limit)}\n"

    def _key(self, words: list[str]) -> str:
        if words and words[0].startswith("GPU-") and self._generation >= 615:
            return words[0]
        return str(limits.ordinal(" ".join(words)))

    def _get_limit(self, words: list[str], _uid: int) -> str:
        server, missing = self._find(words)
        if server is None:
            return missing
        limit = server.default.limits.get(self._key(words[1:]))
        return "" if limit is None else f"{limits.shown(limit)}\n"

    def _set_limit(self, words: list[str], uid: int) -> str:
        server, missing = self._find(words)
        if server is None:
            return missing
        refused = self._server_refused(uid, server)
        if refused:
            return refused
        key = self._put(server.default.limits, words[1:])
        if key in server.default.limits:
            self._one.log_limit(server, key)
        return ""

    def _get_priority(self, _words: list[str], _uid: int) -> str:
        return f"{self._priority}\n"

    def _set_priority(self, words: list[str], uid: int) -> str:
        refused = self._settings_refused(uid)
        if refused:
            return refused
        if words and words[0] not in ("0", "1"):
            return "Invalid priority value - must be 0 or 1!\n"
        self._priority = words[0] if words else "0"
        return ""

    def _terminate_client(self, words: list[str], uid: int) -> str:
        server, missing = self._find(words)
        if server is None:
            return f"{missing}{missing.rstrip()}!\n1\n"
        refused = self._refused(uid, server.uid, "Only the root user may terminate clients on another user's server.")
        if refused:
            return refused
        pid = limits.integer(words[1])[0] if len(words) > 1 else 0
        client = server.default.clients.get(pid)
        if client is None:
            return f"Invalid process {pid}!\n1\n"
        self._one.terminate(client)
        return "0\n"

    def _quit(self, words: list[str], uid: int) -> Reply:
        if uid not in (0, self._place.uid):
            text = "Not enough privilege to execute quit command\n"
            self._one.logs.control(text)
            return Reply(text)
        if words[:1] == ["-t"] and len(words) > 1:
            seconds = limits.integer(words[1])[0]
            self._one.logs.control(f"quit command issued with timeout of {seconds}")
            return Reply(quit_after=float(seconds))
        return Reply(quit_after=math.inf)
