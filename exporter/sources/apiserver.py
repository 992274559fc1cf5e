"""GETs from the API server, as a pod may make them: with the service account that Kubernetes mounts.

Standard library only. What is asked is one GET a minute and one watch, and the `kubernetes` package would cost every
node more than 60 MiB of memory and a second of start for models of resources that nobody reads.

Guarantees: the token and the CA are read anew for each request, since both are replaced while we run; the token goes to
no server that the CA does not vouch for, and never over plain HTTP; one deadline covers the whole exchange, however
slowly bytes trickle in, and of an answer without an end the whole time and each silence; an answer, and a line of one,
is bounded; every failure is a value.

It will not write, retry, follow redirects or keep a connection open. Who writes derives from it, outside the exporter:
here there is no other method than GET.
"""

import io
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any, cast

from exporter import version
from exporter.errors import Failure, Reason

LARGEST_ANSWER = 16 << 20  # bytes; the pods of one node are a few MiB at most
LARGEST_LINE = 4 << 20  # bytes; etcd takes no object above 1.5 MiB
_MOUNT_IT = "mount the service account (automountServiceAccountToken: true)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. `retry_after` is in seconds; None where it does not ask for a pause."""

    status: int
    body: bytes
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `headers` are those besides what every request has."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def is_mounted(folder: Path) -> bool:
    """Whether a service account is mounted here at all."""
    return os.path.exists(folder / "token")


class ApiServer:
    """The API server of the cluster that this pod runs in. `deadline` (seconds) is for a whole exchange."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str], deadline: float) -> None:
        self._folder = folder
        self._host = environment.get("KUBERNETES_SERVICE_HOST", "")
        self._port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        self._deadline = deadline

    def get(self, path: str) -> Answer | Failure:
        """GET a path with its query. Any status is an answer; a failure is that there is none."""
        return self._exchange(Request("GET", path))

    def _exchange(self, request: Request) -> Answer | Failure:
        """Make a request and read its whole answer."""
        until = time.monotonic() + self._deadline
        connection = self._asked(request, until=until)
        if isinstance(connection, Failure):
            return connection
        try:
            with _response(_Stream(connection, until=until)) as response:
                return _answer(response)
        except (OSError, HTTPException) as error:
            return self._failure(error)
        finally:
            connection.close()

    def stream(self, path: str, *, idle: float, total: float) -> "Lines | Answer | Failure":
        """GET a path whose answer goes on, line by line, as a watch's does. Whoever gets the lines closes them.

        An answer with another status than 200 is an `Answer`. `idle` is for how many seconds the server may say
        nothing, `total` after how many we go away whatever it says.
        """
        begun = time.monotonic()
        connection = self._asked(Request("GET", path), until=begun + self._deadline)
        if isinstance(connection, Failure):
            return connection
        stream = _Stream(connection, until=begun + self._deadline)
        try:
            response = _response(stream)
            if response.status != 200:
                with response:
                    found = _answer(response)
                connection.close()
                return found
        except (OSError, HTTPException) as error:
            connection.close()
            return self._failure(error)
        stream.patience(until=begun + total, idle=idle)
        return Lines(response, connection, where=self._where)

    def _asked(self, request: Request, *, until: float) -> ssl.SSLSocket | Failure:
        """A connection to the API server on which the request has been made."""
        if not self._host or not self._port.isdigit():
            return Failure(
                Reason.MISSING, "KUBERNETES_SERVICE_HOST and _PORT do not name the API server: is this a pod?"
            )
        token = self._token()
        if isinstance(token, Failure):
            return token
        trusted = self._trusted()
        if isinstance(trusted, Failure):
            return trusted
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {token}",
            "Connection": "close",
            "User-Agent": f"podgpu/{version()}",
            **request.headers,
        }
        client = HTTPConnection(self._host, int(self._port))
        try:
            client.sock = connection = self._connected(trusted, until=until)
            client.request(request.method, request.path, request.body, headers=headers)
        except (OSError, HTTPException) as error:
            client.close()
            return self._failure(error)
        return connection

    @property
    def _where(self) -> str:
        return f"the API server at {self._host}:{self._port}"

    def _connected(self, trusted: ssl.SSLContext, *, until: float) -> ssl.SSLSocket:
        """A connection whose other end is who it should be. Raises OSError."""
        failed = OSError(f"{self._host} has no address")
        for family, kind, _, _, address in socket.getaddrinfo(self._host, int(self._port), type=socket.SOCK_STREAM):
            # Made one for TLS before it is connected: a socket that is reset in between would not be closed.
            connection = trusted.wrap_socket(
                socket.socket(family, kind), server_hostname=self._host, do_handshake_on_connect=False
            )
            try:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.settimeout(_left(until))
                connection.connect(address)
                connection.settimeout(_left(until))
                connection.do_handshake()
            except OSError as error:
                connection.close()
                failed = error
            else:
                return connection
        raise failed

    def _token(self) -> str | Failure:
        path = self._folder / "token"
        try:
            token = path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return Failure(Reason.MISSING, f"{path} does not exist: {_MOUNT_IT}")
        except OSError as error:
            return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")
        except UnicodeDecodeError:
            return Failure(Reason.MALFORMED, f"{path} is no token")
        if not token or not token.isprintable():
            return Failure(Reason.MALFORMED, f"{path} is no token")
        return token

    def _trusted(self) -> ssl.SSLContext | Failure:
        # Not create_default_context: from Python 3.13 on that one refuses the CAs of older clusters, which lack an
        # extension that nobody else asks for. Certificate and name are verified all the same.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        path = self._folder / "ca.crt"
        try:
            context.load_verify_locations(cafile=path)
        except FileNotFoundError:
            return Failure(Reason.MISSING, f"{path} does not exist: {_MOUNT_IT}")
        except ssl.SSLError:
            return Failure(Reason.MALFORMED, f"{path} holds no certificate")
        except OSError as error:
            return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")
        return context

    def _failure(self, error: OSError | HTTPException) -> Failure:
        where = self._where
        match error:
            case ssl.SSLCertVerificationError():
                return Failure(
                    Reason.UNAVAILABLE,
                    f"{where} is not the one that {self._folder / 'ca.crt'} vouches for: {error.verify_message}",
                )
            case TimeoutError():
                return Failure(Reason.TIMEOUT, f"{where} did not answer within {self._deadline:.0f} s")
            case IncompleteRead() | RemoteDisconnected():
                return Failure(Reason.UNAVAILABLE, f"{where} ended the connection before the end of its answer")
            case HTTPException():
                return Failure(Reason.MALFORMED, f"{where} does not speak HTTP: {type(error).__name__}")
            case OSError():
                return Failure(Reason.UNAVAILABLE, f"{where}: {error.strerror or error}")


def refusal(answer: Answer, *, right: str) -> Failure:
    """The failure that a status other than 200 means. `right` names the RBAC rule that the request needs."""
    match answer.status:
        case 401:
            return Failure(Reason.NO_PERMISSION, "the API server does not accept the service account's token")
        case 403:
            return Failure(Reason.NO_PERMISSION, f"the API server refuses: give the service account {right}")
        case 429:
            return Failure(Reason.RATE_LIMITED, "the API server asks for fewer requests")
        case status:
            return Failure(Reason.UNAVAILABLE, f"the API server answered with HTTP status {status}")


class Lines:
    """The lines of an answer that goes on. `close` may be called from any thread, and ends the iteration."""

    def __init__(self, response: HTTPResponse, connection: ssl.SSLSocket, *, where: str) -> None:
        self._response = response
        self._connection = connection
        self._where = where

    def __iter__(self) -> Iterator[bytes | Failure]:
        """The lines that were whole. Ends where the server ended the answer, or else with a failure as the last one."""
        pieces = b""
        try:
            while piece := self._response.read1(1 << 16):
                *lines, pieces = (pieces + piece).split(b"\n")
                yield from lines
                if len(pieces) > LARGEST_LINE:
                    yield Failure(Reason.TOO_LARGE, f"a line of {self._where} is larger than {LARGEST_LINE >> 20} MiB")
                    return
        except TimeoutError:
            yield Failure(Reason.TIMEOUT, f"{self._where} has fallen silent")
        except (OSError, HTTPException, ValueError):  # ValueError: closed by `close` between two reads
            yield Failure(Reason.UNAVAILABLE, f"{self._where} ended the connection in the middle of its answer")

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            # Wakes the thread that waits for a line. Not SSLSocket's own, which takes its state away below that thread.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
        self._connection.close()


class _Stream(io.RawIOBase):
    """The receiving side of a socket. A socket's own timeout starts anew with each byte; this one's does not."""

    def __init__(self, source: socket.socket, *, until: float) -> None:
        super().__init__()
        self._source = source
        self._until = until
        self._idle = float("inf")

    def patience(self, *, until: float, idle: float) -> None:
        """Set the deadline anew, and how long (seconds) there may be no byte at all."""
        self._until, self._idle = until, idle

    def readable(self) -> bool:
        """True: it is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any writable buffer has no name before Python 3.12
        """Wait for bytes until the deadline. Raises TimeoutError."""
        self._source.settimeout(min(self._idle, _left(self._until)))
        return self._source.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What the HTTP response asks of a socket."""
        return io.BufferedReader(self)


def _response(source: _Stream) -> HTTPResponse:
    """A response, read up to the end of its headers. Raises OSError or HTTPException."""
    response = HTTPResponse(cast("socket.socket", source), method="GET")
    try:
        response.begin()
    except (OSError, HTTPException):
        response.close()
        raise
    return response


def _answer(response: HTTPResponse) -> Answer | Failure:
    """Read the rest of a response. Raises OSError or HTTPException."""
    body = response.read(LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        return Failure(Reason.TOO_LARGE, f"the API server's answer is larger than {LARGEST_ANSWER >> 20} MiB")
    if response.length:  # announced and not come: reading a bounded amount does not complain by itself
        raise IncompleteRead(body, response.length)
    return Answer(response.status, body, _seconds(response.headers.get("Retry-After", "")))


def _seconds(text: str) -> float | None:
    """A Retry-After in seconds. API servers send no dates."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
