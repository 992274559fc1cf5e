"""What an MPS server's log tells and its daemon does not: limits to the byte, and those under which clients connected.

The daemon shows whole GiB, and a limit holds for a client as it was when the client connected. The server writes both
down. Only servers of protocol 2 are read: protocol 3 limits namespaces, and the lines do not say which.

Guarantees: at most 256 KiB are read at a time, from where the last reading ended; of a log that was skipped over or
rotated nothing is known until a line says it anew; what is told belongs to the server process that was asked for.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from exporter.errors import Failure
from exporter.sources.regular_files import read_part

_MOST = 256 << 10  # bytes
_MOST_CLIENTS = 4096
_LINE = re.compile(rb"\[[^\]\n]{1,64} (\d{1,10})\] (.*)", re.ASCII)
_LIMIT = re.compile(rb"Device pinned memory limit for device (\d{1,2}) set to 0x([0-9a-fA-F]{1,16}) bytes", re.ASCII)
_CLIENT = re.compile(rb"Client \{PID: (\d{1,10}), Context ID: \d+\} connected", re.ASCII)


@dataclass(frozen=True, slots=True)
class Logged:
    """Of one server, in bytes: the limits by ordinal, and those under which each client connected, by pid."""

    limits: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    clients: Mapping[int, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))


class ServerLog:
    """One server.log, read on from one cycle to the next."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None  # device and inode
        self._offset = 0
        self._rest = b""
        self._servers: dict[int, tuple[dict[int, int], dict[int, Mapping[int, int]]]] = {}

    def read(self, server: int) -> Logged | Failure:
        """What the log says of the server with this pid."""
        content = read_part(self.path, start=self._start, most=_MOST)
        if isinstance(content, Failure):
            self._forget()
            return content
        self._offset = content.start + len(content.data)
        lines = (self._rest + content.data).split(b"\n")
        self._rest = lines.pop()[-1024:]  # no line that counts is longer
        for line in lines:
            self._take(line)
        self._servers = {pid: told for pid, told in self._servers.items() if pid == server}
        limits, clients = self._servers.get(server, ({}, {}))
        return Logged(MappingProxyType(dict(limits)), MappingProxyType(dict(clients)))

    def _forget(self) -> None:
        self._file, self._offset, self._rest = None, 0, b""
        self._servers.clear()

    def _start(self, status: os.stat_result) -> int:
        """Where to read on: at the beginning of another file, and near the end of one that has run ahead."""
        if self._file != (status.st_dev, status.st_ino) or status.st_size < self._offset:
            self._forget()
            self._file = (status.st_dev, status.st_ino)
        if status.st_size - self._offset > _MOST:
            self._forget()
            self._file = (status.st_dev, status.st_ino)
            return status.st_size - _MOST
        return self._offset

    def _take(self, line: bytes) -> None:
        match = _LINE.match(line)
        if match is None:
            return
        limit, client = _LIMIT.fullmatch(match[2].rstrip()), _CLIENT.fullmatch(match[2].rstrip())
        if limit is None and client is None:
            return
        limits, clients = self._servers.setdefault(int(match[1]), ({}, {}))
        if limit is not None:
            limits[int(limit[1])] = int(limit[2], 16)
        elif client is not None:
            clients.pop(int(client[1]), None)
            if limits:  # otherwise the lines that set them are not among those that were read
                clients[int(client[1])] = MappingProxyType(dict(limits))
            while len(clients) > _MOST_CLIENTS:
                del clients[next(iter(clients))]
