"""One GET from the API server, as a pod may make it: with the service account that Kubernetes mounts.

Standard library only. What is asked is one GET a minute, and the `kubernetes` package would cost every node more than
60 MiB of memory and a second of start for models of resources that nobody reads.

Guarantees: the token and the CA are read anew for each request, since both are replaced while we run; the token goes to
no server that the CA does not vouch for, and never over plain HTTP; one deadline covers the whole exchange, however
slowly bytes trickle in; an answer is bounded; every failure is a value.

It will not write, retry, follow redirects or keep a connection open.
"""

import io
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, RemoteDisconnected
from pathlib import Path
from typing import Any, cast

from exporter import version
from exporter.errors import Failure, Reason

LARGEST_ANSWER = 16 << 20  # bytes; the slices of one node are some hundred KiB at most
_MOUNT_IT = "mount the service account (automountServiceAccountToken: true)"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. `retry_after` is in seconds; None where it does not ask for a pause."""

    status: int
    body: bytes
    retry_after: float | None = None


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
        until = time.monotonic() + self._deadline
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
        }
        connection = HTTPConnection(self._host, int(self._port))
        try:
            connection.sock = self._connected(trusted, until=until)
            connection.request("GET", path, headers=headers)
            return _answer(connection.sock, until=until)
        except (OSError, HTTPException) as error:
            return self._failure(error)
        finally:
            connection.close()

    def _connected(self, trusted: ssl.SSLContext, *, until: float) -> ssl.SSLSocket:
        """A connection whose other end is who it should be. Raises OSError."""
        plain = socket.create_connection((self._host, int(self._port)), timeout=_left(until))
        try:
            plain.settimeout(_left(until))
            return trusted.wrap_socket(plain, server_hostname=self._host)
        except OSError:
            plain.close()
            raise

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
        where = f"the API server at {self._host}:{self._port}"
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


class _Stream(io.RawIOBase):
    """The receiving side of a socket. A socket's own timeout starts anew with each byte; this one's does not."""

    def __init__(self, source: socket.socket, *, until: float) -> None:
        super().__init__()
        self._source = source
        self._until = until

    def readable(self) -> bool:
        """True: it is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - any writable buffer has no name before Python 3.12
        """Wait for bytes until the deadline. Raises TimeoutError."""
        self._source.settimeout(_left(self._until))
        return self._source.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What the HTTP response asks of a socket."""
        return io.BufferedReader(self)


def _answer(source: socket.socket, *, until: float) -> Answer | Failure:
    """Read one response. Raises OSError or HTTPException."""
    response = HTTPResponse(cast("socket.socket", _Stream(source, until=until)), method="GET")
    try:
        response.begin()
        body = response.read(LARGEST_ANSWER + 1)
        if len(body) > LARGEST_ANSWER:
            return Failure(Reason.TOO_LARGE, f"the API server's answer is larger than {LARGEST_ANSWER >> 20} MiB")
        if response.length:  # announced and not come: reading a bounded amount does not complain by itself
            raise IncompleteRead(body, response.length)
        return Answer(response.status, body, _seconds(response.headers.get("Retry-After", "")))
    finally:
        response.close()


def _seconds(text: str) -> float | None:
    """A Retry-After in seconds. API servers send no dates."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
