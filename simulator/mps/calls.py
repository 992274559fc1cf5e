"""The daemon's side of a call: packets to and from one connected front-end, and the sockets where it knocks."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from simulator.mps.servers import Reply

_MOST = 65536
_PIECE = 32768


class Call:
    """One connected front-end, and who called it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.uid = int.from_bytes(credentials[4:8], sys.byteorder)

    def answer(self, reply: Reply) -> None:
        """Send a whole answer."""
        for packet in _packets(reply):
            self.send(packet)

    def send(self, packet: bytes) -> None:
        """Send a packet, to whoever still waits for it."""
        try:
            self.connection.send(packet)
        except OSError:
            return

    def end(self) -> None:
        """Hang up."""
        self.connection.close()


def _packets(reply: Reply) -> Iterator[bytes]:
    for letter, text in ((b"O", reply.text), (b"E", reply.error)):
        content = text.encode()
        for begin in range(0, len(content), _PIECE):
            yield letter + content[begin : begin + _PIECE]
    yield b"R%d" % reply.code


def received(connection: socket.socket) -> bytes:
    """The next packet, waited for; empty when the other side has gone."""
    try:
        return connection.recv(_MOST)
    except OSError:
        return b""


def listener(path: Path, mode: int) -> socket.socket:
    """A socket that listens at a path, where a stale one may be. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path.unlink(missing_ok=True)
    made.bind(str(path))
    path.chmod(mode)
    made.listen(128)
    return made
