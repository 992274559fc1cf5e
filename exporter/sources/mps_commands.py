"""Every command that podgpu may give to an MPS control daemon, built from numbers and checked names.

The daemon's own parser is dangerous: `1.5G` is 1 MiB, an amount in bytes or below zero is no limit at all, `0M`, `0=2G`
and a UUID remove the limit of device 0, and every one of these is taken without a word. So an amount is always a whole
number of MiB above 0, a device a bare ordinal, a name lower case letters, digits and underscores.

Guarantees: whatever is passed in, a command is one line without anything that a shell or the daemon could take apart;
what can't be formatted safely is a ValueError. It never ends a daemon.
"""

import math
import re
from dataclasses import dataclass

LARGEST_MEBIBYTES = 16 * 1024 * 1024  # 16 TiB: more than any GPU has is a mistake
ORDINALS = 32  # a daemon ignores those from here on, silently

_WORD = re.compile(r"[A-Za-z0-9_.=-]{1,160}", re.ASCII)
_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_LARGEST_PID = 1 << 22
_LARGEST_UID = (1 << 32) - 2


@dataclass(frozen=True, slots=True)
class Command:
    """One command of protocol 2 (a line of standard input) or 3 (arguments).

    `speaks`: where it is understood it prints something. `changes`: it is no mere question. `server`: the pid of the
    server (protocol 2) to which the daemon passes it on.
    """

    words: tuple[str, ...]
    protocol: int = 2
    speaks: bool = True
    changes: bool = False
    server: int | None = None

    def __post_init__(self) -> None:
        if not self.words or not all(_WORD.fullmatch(word) for word in self.words):
            raise ValueError(f"not a command for an MPS daemon: {self.words!r}")

    def __str__(self) -> str:
        return " ".join(self.words)


# Questions of protocol 2.


def server_list() -> Command:
    """The pids of the servers, one per line, or nothing."""
    return Command(("get_server_list",), speaks=False)


def server_status(server: int) -> Command:
    """INITIALIZING, ACTIVE or FAULT. Drivers of the 535 generation do not know it."""
    return Command(("get_server_status", _pid(server)))


def client_list(server: int) -> Command:
    """The pids of a server's clients, one per line, or nothing."""
    return Command(("get_client_list", _pid(server)), speaks=False, server=server)


def default_percentage() -> Command:
    """The share that the next server starts with, such as 100.0."""
    return Command(("get_default_active_thread_percentage",))


def percentage(server: int) -> Command:
    """The share of a server's next clients."""
    return Command(("get_active_thread_percentage", _pid(server)), server=server)


def default_limit(ordinal: int) -> Command:
    """The memory limit of a device that the next server starts with; nothing where none is set."""
    return Command(("get_default_device_pinned_mem_limit", _ordinal(ordinal)), speaks=False)


def limit(server: int, ordinal: int) -> Command:
    """The memory limit of a device for a server's next clients; nothing where none is set."""
    return Command(("get_device_pinned_mem_limit", _pid(server), _ordinal(ordinal)), speaks=False, server=server)


# Changes of protocol 2. Most are silent whether they worked or not: each is to be read back.


def set_default_percentage(share: float) -> Command:
    """Set the share, in percent, of servers that start later. Prints the share now in force."""
    return Command(("set_default_active_thread_percentage", _share(share)), changes=True)


def set_percentage(server: int, share: float) -> Command:
    """Set the share, in percent, of a server's later clients."""
    return Command(("set_active_thread_percentage", _pid(server), _share(share)), changes=True, server=server)


def set_default_limit(ordinal: int, mebibytes: int) -> Command:
    """Set the memory limit of a device for servers that start later."""
    words = ("set_default_device_pinned_mem_limit", _ordinal(ordinal), _amount(mebibytes))
    return Command(words, speaks=False, changes=True)


def set_limit(server: int, ordinal: int, mebibytes: int) -> Command:
    """Set the memory limit of a device for a server's later clients."""
    words = ("set_device_pinned_mem_limit", _pid(server), _ordinal(ordinal), _amount(mebibytes))
    return Command(words, speaks=False, changes=True, server=server)


def start_server(uid: int) -> Command:
    """Start a server for a user. Silent, and over before the server is up, or has failed."""
    return Command(("start_server", "-uid", _whole(uid, 0, _LARGEST_UID)), speaks=False, changes=True)


def terminate_client(server: int, client: int) -> Command:
    """End a client's contexts. The last line is a CUDA result, 0 for success."""
    return Command(("terminate_client", _pid(server), _pid(client)), changes=True, server=server)


# Questions of protocol 3. With their header line, because columns are found by their names.


def servers() -> Command:
    """All servers, as comma-separated rows."""
    return Command(("server", "list", "--format=csv"), protocol=3)


def namespaces() -> Command:
    """The namespaces of all servers."""
    return Command(("namespace", "list", "--format=csv"), protocol=3)


def clients() -> Command:
    """The clients of all servers."""
    return Command(("client", "list", "--format=csv"), protocol=3)


# Changes of protocol 3.


def create_namespace(name: str, server: str) -> Command:
    """Make a namespace. Until it is given limits it has none at all."""
    words = ("namespace", "create", _name(name), f"--server={_name(server)}")
    return Command(words, protocol=3, speaks=False, changes=True)


def set_namespace(name: str, server: str, *, mebibytes: int, share: int | None) -> Command:
    """Set a namespace's memory limit for each client and device, and its share in whole percent.

    A share can't be set while the namespace has clients, not even to what it is; None leaves it.
    """
    words: tuple[str, ...] = (
        "namespace",
        "set",
        _name(name),
        f"--server={_name(server)}",
        f"--pinned-memory-limit={_amount(mebibytes)}",
    )
    if share is not None:
        words = (*words, f"--active-thread-percentage={_whole(share, 1, 100)}")
    return Command(words, protocol=3, speaks=False, changes=True)


def delete_namespace(name: str, server: str) -> Command:
    """Remove a namespace; the daemon refuses while it has clients."""
    words = ("namespace", "delete", _name(name), f"--server={_name(server)}")
    return Command(words, protocol=3, speaks=False, changes=True)


def terminate(client: int) -> Command:
    """End a client."""
    return Command(("client", "terminate", _pid(client)), protocol=3, speaks=False, changes=True)


def _whole(number: int, lowest: int, highest: int) -> str:
    if type(number) is not int or not lowest <= number <= highest:
        raise ValueError(f"takes a whole number of {lowest} to {highest}, not {number!r}")
    return str(number)


def _pid(number: int) -> str:
    return _whole(number, 1, _LARGEST_PID)


def _ordinal(number: int) -> str:
    return _whole(number, 0, ORDINALS - 1)


def _amount(mebibytes: int) -> str:
    return f"{_whole(mebibytes, 1, LARGEST_MEBIBYTES)}M"


def _share(percent: float) -> str:
    """One decimal, as the daemon keeps it."""
    if type(percent) not in (int, float) or not math.isfinite(percent) or not 0.05 < percent <= 100:
        raise ValueError(f"takes a percentage above 0.05 and up to 100, not {percent!r}")
    return f"{percent:.1f}"


def _name(text: str) -> str:
    if type(text) is not str or not _NAME.fullmatch(text):
        raise ValueError(f"takes lower case letters, digits and underscores, 64 at most, not {text!r}")
    return text
