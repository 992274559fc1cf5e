"""Protocol 3 as of driver 615: named servers and namespaces, commands as arguments.

Written after NVIDIA's documentation and reports of its use, as no such daemon runs without a GPU. Guesses, where these
are silent: a refused command prints one line on standard error and ends with exit code 1; values that nobody set are
shown as `-`; a client on several GPUs has a row for each. Not simulated: SM partitions, locality domains, and what the
two features do.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from simulator.mps import limits, servers, tables
from simulator.mps.grammar import MODULES, CommandError, Words, help_text, parse, usage
from simulator.mps.named_servers import DEFAULT, NamedServers
from simulator.mps.servers import Namespace, Reply, Server
from simulator.mps.world import World

_NAME = re.compile(r"[a-z0-9_]{1,64}")
_SERVERS = ("name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids")
_SPACES = (
    *("name", "server", "server-status", "pinned-memory-limit", "active-thread-percentage"),
    *("client-priority", "pipe-directory"),
)
_CLIENTS = ("pid", "server", "device", "namespace", "cmd")
_DEVICES = ("ordinal", "server", "pci-id", "device-uuid", "name", "total-sms", "total-chunks", "attributes")
_INITIAL_PID_NAMESPACE = "4026531836"


class Protocol3:
    """The commands of a daemon."""

    def __init__(self, named: NamedServers) -> None:
        self._named = named
        self._features = {"memacct": "enabled (default)", "context-share": "enabled (default)"}
        self._audit_log = "false"
        self._verbs: Mapping[tuple[str, str], Callable[[Words], str]] = {
            ("server", "create"): self._server_create,
            ("server", "delete"): self._server_delete,
            ("server", "list"): self._server_list,
            ("server", "set"): self._server_set,
            ("server", "get"): self._server_get,
            ("namespace", "create"): self._namespace_create,
            ("namespace", "delete"): self._namespace_delete,
            ("namespace", "list"): self._namespace_list,
            ("namespace", "set"): self._namespace_set,
            ("namespace", "get"): self._namespace_get,
            ("client", "list"): self._client_list,
            ("client", "get"): self._client_get,
            ("client", "terminate"): self._client_terminate,
            ("device", "list"): self._device_list,
            ("feature", "describe"): self._feature_describe,
            ("feature", "enable"): lambda words: self._feature(words, "enabled"),
            ("feature", "disable"): lambda words: self._feature(words, "disabled"),
            ("memacct", "set"): self._memacct_set,
            ("memacct", "describe"): lambda _words: f"audit_log = {self._audit_log}\n",
        }

    @property
    def idle(self) -> bool:
        """Whether nobody uses a server."""
        return not any(server.clients for server in self._named.servers.values())

    def greet(self, arguments: Sequence[str], uid: int) -> Reply | None:
        """Answer the arguments of a call; without any (None) it reads commands from its standard input."""
        words = list(arguments)
        if words[:1] in (["-p"], ["--protocol"]):
            words = words[2:]
        return self._answer(words, uid) if words else None

    def command(self, line: str, uid: int) -> Reply:
        """Answer one line of standard input."""
        return self._answer(line.split(), uid)

    def follow(self, world: World) -> None:
        """Follow the world: drop who is gone, let in who wants to come."""
        self._named.follow(world)

    def tick(self) -> None:
        """Let servers that could not start disappear."""
        if self._named.dying:
            self._named.follow(self._named.world)

    def close(self, *, wait: bool) -> None:
        """Take no clients any more, and (without `wait`) end every server."""
        self._named.close(wait=wait)

    def apply(self, words: Sequence[str]) -> None:
        """Do one command of the configuration file. Raises CommandError."""
        given = parse(words)
        self._verbs[given.module, given.verb](given)

    def _answer(self, words: list[str], uid: int) -> Reply:
        self._named.logs.control(f"Cmd:{' '.join(words)}")
        if words[:1] == ["quit"]:
            if uid not in (0, self._named.place.uid):
                return Reply("Not enough privilege to execute quit command\n")
            seconds = limits.integer(words[2])[0] if words[1:2] == ["-t"] and len(words) > 2 else math.inf
            return Reply(quit_after=float(seconds))
        if words and words[-1] == "help" and words[0] in MODULES:
            return Reply(f"  {usage(words[0], words[1])}\n" if len(words) > 2 else help_text(words[0]))
        if not words or words[0] not in MODULES:
            return self._refusal(f'Unknown command "{words[0] if words else ""}"')
        try:
            given = parse(words)
            if given.verb not in ("list", "get", "describe") and uid not in (0, self._named.place.uid):
                return self._refusal(f"Insufficient privileges for UID {uid}")
            text = self._verbs[given.module, given.verb](given)
        except CommandError as error:
            return self._refusal(str(error))
        except OSError as error:
            return self._refusal(f"Cannot create the socket: {error.strerror or error}")
        self._named.publish()
        if text:
            self._named.logs.control(text)
        return Reply(text)

    def _refusal(self, text: str) -> Reply:
        self._named.logs.control(text)
        return Reply(error=f"{text}\n", code=1)

    # What the words of a command name

    def _server(self, name: str | None) -> Server:
        if name is None:
            raise CommandError("A server is required")
        server = self._named.servers.get(name)
        if server is None:
            raise CommandError(f"Server {name} not found")
        return server

    def _space(self, server: Server, name: str) -> Namespace:
        space = server.namespaces.get(name)
        if space is None:
            raise CommandError(f"Namespace {name} of server {server.name} not found")
        return space

    def _some(self, name: str | None) -> list[Server]:
        return list(self._named.servers.values()) if name is None else [self._server(name)]

    def _list(self, words: Words, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        form = words.options.get("format", "table")
        if not tables.is_format(form):
            raise CommandError(f'Unknown format "{form}"')
        return tables.printed(columns, rows, form)

    def _field(self, columns: Sequence[str], row: Sequence[object], name: str) -> str:
        name = name.replace("_", "-")
        if name not in columns:
            raise CommandError(f'Unknown field "{name}"')
        return f"{row[columns.index(name)]}\n"

    # Servers

    def _server_create(self, words: Words) -> str:
        place = self._named.place
        uid = words.options.get("uid", "0" if place.multiuser else str(place.uid))
        if not uid.isdigit() or (place.multiuser and uid != "0"):
            raise CommandError(f"Invalid uid {uid}")
        if not words.positionals and "uid" not in words.options:
            raise CommandError("A name or a uid is required")
        name = words.positionals[0] if words.positionals else f"uid_{uid}"
        if not _NAME.fullmatch(name):
            raise CommandError(f'Invalid name "{name}"')
        if name in self._named.servers:
            raise CommandError(f"Server {name} already exists")
        self._named.create(name, uid=int(uid), allowed=words.options.get("allowed-devices"))
        return ""

    def _server_delete(self, words: Words) -> str:
        server = self._server(words.positionals[0])
        self._clear(words, [(server, space) for space in server.namespaces.values()], f"Server {server.name}")
        self._named.end(server, status=0)
        return ""

    def _clear(self, words: Words, spaces: Sequence[tuple[Server, Namespace]], what: str) -> None:
        """Terminate the clients of what is to go, if `--force` says so."""
        clients = [(server, space, client) for server, space in spaces for client in space.clients.values()]
        if clients and "force" not in words.options:
            raise CommandError(f"{what} has active clients")
        for server, space, client in clients:
            self._named.terminate(server, space, client)

    def _server_row(self, server: Server) -> list[object]:
        pipe = self._named.pipe(server.name)
        return [server.name, server.uid, server.pid, self._named.status, pipe, server.allowed, "-"]

    def _server_list(self, words: Words) -> str:
        name = words.positionals[0] if words.positionals else None
        return self._list(words, _SERVERS, [self._server_row(server) for server in self._some(name)])

    def _server_get(self, words: Words) -> str:
        return self._field(_SERVERS, self._server_row(self._server(words.positionals[0])), words.positionals[1])

    def _server_set(self, words: Words) -> str:
        server = self._server(words.positionals[0])
        self._set(words, server, server.default)
        return ""

    # Namespaces

    def _namespace_create(self, words: Words) -> str:
        server, name = self._server(words.options.get("server")), words.positionals[0]
        if not _NAME.fullmatch(name):
            raise CommandError(f'Invalid name "{name}"')
        if name in server.namespaces:
            raise CommandError(f"Namespace {name} of server {server.name} already exists")
        self._named.add_namespace(server, name)
        return ""

    def _namespace_delete(self, words: Words) -> str:
        server = self._server(words.options.get("server"))
        space = self._space(server, words.positionals[0])
        if space.name == DEFAULT:
            raise CommandError("The default namespace cannot be deleted")
        self._clear(words, [(server, space)], f"Namespace {space.name}")
        self._named.remove_namespace(server, space)
        return ""

    def _namespace_row(self, server: Server, space: Namespace) -> list[object]:
        percentage = "-" if space.percentage is None else f"{space.percentage:.2f}"
        pinned = limits.amount_shown(space.pinned)
        priority = "-" if space.priority is None else space.priority
        pipe = self._named.pipe(server.name, space.name)
        return [space.name, server.name, self._named.status, pinned, percentage, priority, pipe]

    def _namespace_list(self, words: Words) -> str:
        rows = [
            self._namespace_row(server, space)
            for server in self._some(words.options.get("server"))
            for space in server.namespaces.values()
            if words.positionals in ((), (space.name,))
        ]
        if words.options.get("format", "table").startswith("table"):  # 615.71.09 prints five of the columns there
            return self._list(words, _SPACES[:5], [row[:5] for row in rows])
        return self._list(words, _SPACES, rows)

    def _namespace_get(self, words: Words) -> str:
        name, of, field = words.positionals
        server = self._server(of)
        return self._field(_SPACES, self._namespace_row(server, self._space(server, name)), field)

    def _namespace_set(self, words: Words) -> str:
        server = self._server(words.options.get("server"))
        self._set(words, server, self._space(server, words.positionals[0]))
        return ""

    def _set(self, words: Words, server: Server, space: Namespace) -> None:
        """Set what is given, all of it or nothing."""
        percentage, pinned, priority = space.percentage, space.pinned, space.priority
        given = {key: value for key, value in words.options.items() if key != "server"}
        if not given:
            raise CommandError("At least one value is required")
        for key, value in given.items():
            if key == "pinned-memory-limit":
                pinned = limits.amount(value)
                valid = pinned is not None
            elif key == "active-thread-percentage":
                if space.clients:
                    raise CommandError(f"Namespace {space.name} has active clients")
                percentage = limits.percentage(value) if re.fullmatch(r"\d+(\.\d+)?", value) else None
                valid = percentage is not None and percentage >= 1
            else:
                valid = value in ("0", "1")
                priority = int(value) if valid else None
            if not valid:
                raise CommandError(f'Invalid value "{value}" of {key}')
        space.percentage, space.pinned, space.priority = percentage, pinned, priority
        self._named.log_limits(server, space)

    # Clients and devices

    def _client_list(self, words: Words) -> str:
        rows = [
            [client.pid, server.name, [gpu.index for gpu in server.devices].index(index), space.name, client.command]
            for server in self._some(words.options.get("server"))
            for space, client in server.clients
            for index in client.devices
        ]
        return self._list(words, _CLIENTS, rows)

    def _client_get(self, words: Words) -> str:
        server, space, client = self._client(words.positionals[0])
        first = next(gpu for gpu in server.devices if gpu.index == client.devices[0])
        columns = ("pid", "server", "device", "pci-id", "linux-ns", "maws-ns", "cmd")
        row = [client.pid, server.name, server.devices.index(first), first.pci]
        return self._field(columns, [*row, _INITIAL_PID_NAMESPACE, space.name, client.command], words.positionals[1])

    def _client(self, pid: str) -> tuple[Server, Namespace, servers.Client]:
        found = self._named.find_client(int(pid)) if pid.isdigit() else None
        if found is None:
            raise CommandError(f"Client {pid} not found")
        return found

    def _client_terminate(self, words: Words) -> str:
        self._named.terminate(*self._client(words.positionals[0]))
        return ""

    def _device_list(self, words: Words) -> str:
        rows = [
            [number, server.name, gpu.pci, gpu.uuid, gpu.name, gpu.multiprocessors, "-", "-"]
            for server in self._some(words.options.get("server"))
            for number, gpu in enumerate(server.devices)
        ]
        return self._list(words, _DEVICES, rows)

    # Features

    def _feature_describe(self, words: Words) -> str:
        rows = [
            [name, state, name, "-"] for name, state in self._features.items() if words.positionals in ((), (name,))
        ]
        return self._list(words, ("feature", "state", "module", "covers"), rows)

    def _feature(self, words: Words, state: str) -> str:
        if words.positionals[0] not in self._features:
            raise CommandError(f'Unknown feature "{words.positionals[0]}"')
        self._features[words.positionals[0]] = state
        return ""

    def _memacct_set(self, words: Words) -> str:
        value = words.options.get("audit_log", "")
        if value not in ("true", "false"):
            raise CommandError(f'Invalid value "{value}" of audit_log')
        self._audit_log = value
        return ""
