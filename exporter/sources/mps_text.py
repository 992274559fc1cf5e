"""What the texts of an MPS control daemon mean. Pure: text in, values or failures out.

The exit code of the control command says whether it talked to a daemon, not whether the daemon did what it was told, so
only the text counts. It is taken at its word where it has a known form, and is MALFORMED otherwise: a limit that podgpu
cannot read is not a limit.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from exporter.errors import Failure, Reason
from exporter.model import PinnedLimit, ServerStatus

T = TypeVar("T")

MIB = 1024**2
_UNITS = {"K": 1024, "M": MIB, "G": 1024**3}
_MOST = 16 * 1024**4  # bytes; see below

_REFUSALS: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (re.compile(r"Cannot find MPS control daemon process"), Reason.DAEMON_NOT_RUNNING),
    (re.compile(r"Cannot send command to MPS control daemon process"), Reason.COMMAND_LOST),
    (re.compile(r"Cannot authenticate or connect to MPS control daemon process"), Reason.COMMAND_LOST),
    (re.compile(r"Insufficient privileges|Not enough privilege"), Reason.NO_PERMISSION),
    (re.compile(r'Unknown command "'), Reason.UNKNOWN_COMMAND),
    (re.compile(r"Server (?:\d+ )?not found"), Reason.NOT_FOUND),
    (re.compile(r"Server \d+ is <?busy>?"), Reason.BUSY),
)
_LIMIT = re.compile(r"(\d{1,20})([KMG])", re.ASCII)
_PERCENTAGE = re.compile(r"\d{1,3}(?:\.\d{1,6})?", re.ASCII)
_PID = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII)
_STATUSES = {
    "initializing": ServerStatus.INITIALIZING,
    "active": ServerStatus.ACTIVE,
    "ready": ServerStatus.ACTIVE,
    "fault": ServerStatus.FAULT,
}
_UNSET = ("", "-")
_LINES_BEFORE_HEADER = 2  # a notice may stand above an answer


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A row of protocol 3's list of servers. `devices` is the text of its allowed devices."""

    name: str
    uid: int | None
    pid: int | None
    status: ServerStatus
    devices: str


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A row of protocol 3's list of namespaces."""

    name: str
    server: str
    pinned: PinnedLimit | Failure | None
    ratio: float | Failure | None
    pipe_directory: str


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A row of protocol 3's list of clients."""

    pid: int
    server: str
    device: str
    namespace: str


def refusal(text: str) -> Failure | None:
    """The failure that a text is, or None. Only its first line counts: further ones may quote what a client chose."""
    line = _first_line(text)
    for pattern, reason in _REFUSALS:
        if pattern.match(line):
            return Failure(reason, shown(line))
    return None


def pids(text: str) -> tuple[int, ...] | Failure:
    """Pids, one per line, each once."""
    words = text.split()
    if not all(_PID.fullmatch(word) for word in words):
        return _malformed("a list of pids", text)
    return tuple(dict.fromkeys(int(word) for word in words))


def status(text: str) -> ServerStatus:
    """A server's state; what later drivers may call one is UNKNOWN."""
    return _STATUSES.get(text.strip().lower(), ServerStatus.UNKNOWN)


def is_share(line: str) -> bool:
    """Whether a line is a share as protocol 2 prints it, with a decimal, and so not a pid."""
    return "." in line and not isinstance(ratio(line), Failure)


def ratio(text: str) -> float | Failure:
    """A share from its percentage, such as 33.3 or 30.00."""
    word = text.strip()
    if not _PERCENTAGE.fullmatch(word) or not 0 < Decimal(word) <= 100:
        return _malformed("a percentage", text)
    return float(Decimal(word) / 100)


def pinned(text: str) -> PinnedLimit | Failure | None:
    """A memory limit for each client; None where none is set.

    From 1 GiB on the daemon shows whole GiB, rounded down. An amount that no GPU has is what a limit becomes that was
    set in bytes or below zero: the daemon holds it, and it limits nothing.
    """
    word = text.strip()
    if word in _UNSET:
        return None
    match = _LIMIT.fullmatch(word)
    if match is None or int(match[1]) == 0:
        return _malformed("a memory limit", text)
    unit = _UNITS[match[2]]
    shown = int(match[1]) * unit
    if shown > _MOST:
        return Failure(
            Reason.MALFORMED,
            f"the daemon holds a limit of {word}, which limits nothing; set it again, as a whole number of MiB (4096M)",
        )
    return PinnedLimit(shown, below=shown + max(unit, MIB))


def is_server_list(text: str) -> bool:
    """Whether a text is protocol 3's list of servers: older daemons know no such command."""
    return _table(text, ("name", "pid", "status"), wide="allowed-devices") is not None


def servers(text: str) -> tuple[ServerRow, ...] | Failure:
    """Protocol 3's list of servers. The allowed devices are themselves separated by commas."""
    found: list[ServerRow] = []
    rows = _table(text, ("name", "pid", "status"), wide="allowed-devices")
    for row in rows if rows is not None else ({},):
        pid, uid = row.get("pid", ""), row.get("uid", "")
        if not _NAME.fullmatch(row.get("name", "")) or not (_PID.fullmatch(pid) or pid in (*_UNSET, "0")):
            return _malformed("a list of servers", text)
        found.append(
            ServerRow(
                row["name"],
                uid=int(uid) if re.fullmatch(r"\d{1,10}", uid, re.ASCII) else None,
                pid=int(pid) if _PID.fullmatch(pid) else None,
                status=status(row["status"]),
                devices=row.get("allowed-devices", ""),
            )
        )
    return tuple(found)


def namespaces(text: str) -> tuple[NamespaceRow, ...] | Failure:
    """Protocol 3's list of namespaces."""
    found: list[NamespaceRow] = []
    rows = _table(text, ("name", "server"), wide="pipe-directory")
    for row in rows if rows is not None else ({},):
        if not _NAME.fullmatch(row.get("name", "")) or not _NAME.fullmatch(row.get("server", "")):
            return _malformed("a list of namespaces", text)
        found.append(
            NamespaceRow(
                row["name"],
                server=row["server"],
                pinned=_cell(row, "pinned-memory-limit", pinned),
                ratio=_cell(row, "active-thread-percentage", ratio),
                pipe_directory="" if row.get("pipe-directory", "") in _UNSET else row["pipe-directory"],
            )
        )
    return tuple(found)


def clients(text: str) -> tuple[ClientRow, ...] | Failure:
    """Protocol 3's list of clients. The last column is a command line, which the client chooses.

    A line end in it could pass for a row of somebody else. A process is a client by one pipe only, so one that is in
    two namespaces makes the whole list worthless.
    """
    found: list[ClientRow] = []
    places: dict[int, tuple[str, str]] = {}
    rows = _table(text, ("pid", "server", "namespace"), wide="")
    for row in rows if rows is not None else ({},):
        pid, server, namespace = row.get("pid", ""), row.get("server", ""), row.get("namespace", "")
        if not _PID.fullmatch(pid) or not _NAME.fullmatch(server) or not _NAME.fullmatch(namespace):
            return _malformed("a list of clients", text)
        if places.setdefault(int(pid), (server, namespace)) != (server, namespace):
            return Failure(Reason.MALFORMED, f"the daemon lists client {pid} in two namespaces")
        device = row.get("device", "")
        found.append(ClientRow(int(pid), server=server, device="" if device in _UNSET else device, namespace=namespace))
    return tuple(found)


def shown(text: str) -> str:
    """The first line of a text for people: printable, and not longer than one looks at."""
    return "".join(character if character.isprintable() else "?" for character in _first_line(text)[:160])


def _cell(row: Mapping[str, str], column: str, read: Callable[[str], T | Failure | None]) -> T | Failure | None:
    """A cell that may be unset. A column that is missing altogether says nothing about it."""
    if column not in row:
        return Failure(Reason.MALFORMED, f"the daemon's list has no column {column}")
    return None if row[column] in _UNSET else read(row[column])


def _table(text: str, columns: Sequence[str], *, wide: str) -> Iterator[dict[str, str]] | None:
    """The rows below a header line that has these columns, by column; None without one.

    The column `wide` (the last one if there is none of that name) may itself hold commas: it takes what is over when
    the other columns have one cell each. A row that is too short has no cells.
    """
    lines = [line for line in text.split("\n") if line.strip()]
    for number, line in enumerate(lines[:_LINES_BEFORE_HEADER]):
        header = [re.sub(r"[ _]", "-", cell.strip().lower()) for cell in line.split(",")]
        if set(columns) <= set(header) and len(set(header)) == len(header):
            at = header.index(wide) if wide in header else len(header) - 1
            return (_row(header, below.split(","), at) for below in lines[number + 1 :])
    return None


def _row(header: Sequence[str], cells: Sequence[str], at: int) -> dict[str, str]:
    more = len(cells) - len(header)
    if more < 0:
        return {}
    joined = [*cells[:at], ",".join(cells[at : at + more + 1]), *cells[at + more + 1 :]]
    return {name: cell.strip() for name, cell in zip(header, joined, strict=True)}


def _malformed(what: str, text: str) -> Failure:
    return Failure(Reason.MALFORMED, f"not {what}: {shown(text)!r}")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
