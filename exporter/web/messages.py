"""Requests and responses as values, and the one way in which a response leaves.

Guarantees that a response holds at most one chunk in memory beyond the page it is cut from, that its length is
announced, and that a connection whose request carried a body is closed afterwards, so that nobody can keep it busy
by sending one. Bodies of requests are never read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

# The shapes that the ASGI specification gives to its three arguments.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

CHUNK_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """The part of a request that we look at. Header names are lower case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, scope: Scope) -> "Request":
        """Take what we need from an ASGI scope."""
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        return cls(method=scope["method"], path=scope["path"], headers=headers)

    def header(self, name: str) -> str:
        """All values of a header as one list; empty where there is none."""
        return ", ".join(value for key, value in self.headers if key == name)

    @property
    def has_body(self) -> bool:
        """Whether the client announced a body."""
        return bool(self.header("transfer-encoding")) or self.header("content-length") not in ("", "0")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response. Content-Length, Date and Connection are added when it is sent."""

    status: HTTPStatus
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def line(cls, status: HTTPStatus, line: str, *, headers: tuple[tuple[str, str], ...] = ()) -> "Response":
        """A response of one line of text."""
        return cls(status=status, body=f"{line}\n".encode(), headers=headers)


async def send_response(request: Request, response: Response, send: Send) -> None:
    """Send `response`; waits for a slow client after each chunk."""
    headers = [("Date", formatdate(time.time(), usegmt=True)), *response.headers]
    if response.status is not HTTPStatus.NO_CONTENT:
        headers += [("Content-Type", response.content_type), ("Content-Length", str(len(response.body)))]
    if request.has_body:
        headers.append(("Connection", "close"))
    await send(
        {
            "type": "http.response.start",
            "status": response.status.value,
            "headers": [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        }
    )
    body = b"" if request.method == "HEAD" else response.body
    for start in range(0, len(body), CHUNK_BYTES):
        await send({"type": "http.response.body", "body": body[start : start + CHUNK_BYTES], "more_body": True})
        await asyncio.sleep(0)  # others get a turn between two chunks, and a lost client is noticed
    await send({"type": "http.response.body", "body": b"", "more_body": False})
