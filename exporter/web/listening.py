"""Listen addresses as people write them, turned into bound sockets.

Guarantees that every reason why an address cannot be had is one line that names the address and says what to change,
raised before any thread exists, and that a failure leaves no socket behind.
"""

import contextlib
import errno
import socket
from collections.abc import Sequence

_BACKLOG = 128
_REASONS = {
    errno.EADDRINUSE: "the port is taken; stop the program that has it or choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; use one of its own, or ':PORT' for all",
    errno.EACCES: "not permitted; choose a port above 1023",
}


class ListenError(Exception):
    """An address cannot be listened on. The message is one line for a person."""


def listen(addresses: Sequence[str]) -> list[socket.socket]:
    """Bind and listen on every address ('HOST:PORT', '[IPV6]:PORT', ':PORT'), or on none.

    Raises:
        ListenError: with the address and the reason.
    """
    if not addresses:
        raise ListenError("no listen address given; use for example ':9836'")
    sockets: list[socket.socket] = []
    try:
        for address in addresses:
            sockets.append(_listen(address))  # noqa: PERF401 - what was bound must be closable when a later one fails
    except ListenError:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def _listen(address: str) -> socket.socket:
    host, port = _parse(address)
    if host == "":
        with contextlib.suppress(_NoIpv6Error):
            return _bind(address, socket.AF_INET6, ("::", port))
        return _bind(address, socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - ':PORT' asks for all interfaces
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: unknown host {host!r}; use an IP address") from error
    return _bind(address, family, target)


class _NoIpv6Error(ListenError):
    """The kernel has no IPv6 for us."""


def _bind(address: str, family: int, target: tuple[object, ...]) -> socket.socket:
    bound: socket.socket | None = None
    try:
        # With the protocol named, asyncio turns Nagle's delay off; without it a kept connection waits 40 ms a scrape.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if target[0] == "::":
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(target)
        bound.listen(_BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        no_ipv6 = family == socket.AF_INET6 and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise (_NoIpv6Error if no_ipv6 else ListenError)(f"cannot listen on {address}: {reason}") from error
    return bound


def _parse(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        raise ListenError(f"cannot listen on {address!r}: write HOST:PORT, [IPV6]:PORT or :PORT")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise ListenError(f"cannot listen on {address!r}: the port must be a number from 0 to 65535")
    return host[1:-1] if bracketed else host, int(port)
