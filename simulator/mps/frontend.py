"""A call of nvidia-cuda-mps-control: hands its commands to the daemon and prints what comes back.

A scraper calls it some twenty times a cycle, so it imports nothing that costs: `_socket` in place of `socket` alone
saves ten milliseconds. Whatever needs to know the driver's version, such as starting a daemon, is left to `options`.

Packets, each with a letter in front: the front-end greets with H and its arguments; the daemon answers S (send lines of
standard input, each as L) or at once with O (output), E (errors) and R (exit code, end of one answer).
"""

import _socket
import os

_MOST = 65536


def main(arguments: list[str]) -> int:
    """Run a call, and return its exit code."""
    rest = arguments[2:] if arguments[:1] == ["-p"] else arguments
    if rest and rest[0].startswith("-"):
        from simulator.mps import options

        return options.main(arguments)
    return converse(arguments)


def pipe_directory() -> str:
    """Where the daemon's sockets are."""
    return os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"  # noqa: S108 - the real one's default


def converse(arguments: list[str]) -> int:
    """Let the daemon answer the arguments, or the lines of standard input."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"{pipe_directory()}/control{'' if os.getuid() else '_privileged'}")
    except OSError:
        os.write(2, b"Cannot find MPS control daemon process\n")
        return 1
    if not _send(connection, b"H" + "\0".join(arguments).encode()):
        return _broken()
    first = _receive(connection)
    if not first:
        return _broken()
    if first != b"S":
        return _print_answer(connection, first)[0]
    rest = b""
    while True:
        read = os.read(0, _MOST)
        *lines, rest = (rest + read).split(b"\n") if read else [rest, b""]
        for line in lines:
            if (read or line) and not _send(connection, b"L" + line):
                return 0
            code, goes_on = _print_answer(connection, _receive(connection)) if read or line else (0, True)
            if not goes_on:
                return code
        if not read:
            return 0


def _print_answer(connection: _socket.socket, packet: bytes) -> tuple[int, bool]:
    """Print an answer. Returns the exit code, and whether it was a whole one: the daemon goes on with the next."""
    while packet and packet[:1] in (b"O", b"E"):
        _write(1 if packet[:1] == b"O" else 2, packet[1:])
        packet = _receive(connection)
    return (int(packet[1:]), True) if packet else (0, False)


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


def _send(connection: _socket.socket, packet: bytes) -> bool:
    try:
        connection.send(packet)
    except OSError:
        return False
    return True


def _receive(connection: _socket.socket) -> bytes:
    try:
        return connection.recv(_MOST)
    except OSError:
        return b""


def _broken() -> int:
    os.write(2, b"Cannot send command to MPS control daemon process\n")
    return 1
