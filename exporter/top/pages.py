"""Where views come from: an exporter's page over HTTP, or this node itself.

Guarantees: a failure is a PageError in one line; credentials go to the given server only, since redirects are not
followed; an answer is bounded in size and each wait for it in time.

It will not take a password from the command line, where every user of the machine can read it.
"""

import base64
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import unquote, urlsplit

from exporter import version
from exporter.accounting import opened
from exporter.metrics.samples import BuildInfo, samples
from exporter.observation import first_readings, observer
from exporter.settings import Settings, SettingsError
from exporter.top.view import PageError, View, series_of_samples, series_of_text, view

Views = Callable[[], View]  # raises PageError

_TIMEOUT = 5.0  # seconds for each wait
_LARGEST_PAGE = 64 << 20  # bytes; that of a full node is below 2 MiB


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to the server, and how it proves who it is. Files; empty: none, or the system's authorities."""

    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False


class ExporterPage:
    """The page of a running exporter. Raises SettingsError for a URL or file that can't be used."""

    def __init__(self, url: str, credentials: Credentials) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SettingsError(f"--url: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"--url: takes a URL such as http://127.0.0.1:9836/metrics, not {url!r}")
        self._host, self._port = parts.hostname, port
        self._path = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        self.shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{self._path}"  # without a password
        self._context = _context(credentials) if parts.scheme == "https" else None
        self._headers = {"User-Agent": f"podgpu-top/{version()}", "Connection": "close"}
        user = credentials.user or unquote(parts.username or "")
        if user:
            password = _password(credentials.password_file) or unquote(parts.password or "")
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"

    def view(self) -> View:
        """The page as it is now. Raises PageError."""
        return view(series_of_text(self._get().decode(errors="replace")))

    def _get(self) -> bytes:
        if self._context is None:
            connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT)
        else:
            connection = HTTPSConnection(self._host, self._port, timeout=_TIMEOUT, context=self._context)
        try:
            connection.request("GET", self._path, headers=self._headers)
            response = connection.getresponse()
            body = response.read(_LARGEST_PAGE + 1)
        except ssl.SSLCertVerificationError as error:
            raise PageError(f"{self.shown}: the server's certificate is not trusted: {error.verify_message}") from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise PageError(f"{self.shown}: {' '.join(reason.split())}") from None
        finally:
            connection.close()
        if response.status != 200:
            raise PageError(f"{self.shown}: {_refusal(response, body)}")
        if len(body) > _LARGEST_PAGE:
            raise PageError(f"{self.shown}: the page is above {_LARGEST_PAGE >> 20} MiB")
        return body


class NodePage:
    """What an exporter on this node would show, read from the node itself."""

    shown = "this node"

    def __init__(self, settings: Settings) -> None:
        self._sampler = observer(settings)
        self._build = BuildInfo(version(), "")
        self._begun = False

    def view(self) -> View:
        """The node as it is now. What can't be read is missing, and the view says which sources are down."""
        readings = self._sampler.readings() if self._begun else first_readings(self._sampler)
        self._begun = True
        snapshot = self._sampler.snapshot(readings)
        return view(series_of_samples(samples(snapshot, totals=opened(), build=self._build)))


def _context(credentials: Credentials) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=credentials.ca_file or None)
        if credentials.cert_file:
            context.load_cert_chain(credentials.cert_file, credentials.key_file or None, password=_no_passphrase)
    except (OSError, ValueError) as error:  # which includes ssl.SSLError
        named = ", ".join(name for name in (credentials.ca_file, credentials.cert_file, credentials.key_file) if name)
        raise SettingsError(f"{named}: {error}") from None
    if credentials.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _no_passphrase() -> str:
    """Asked for instead of a prompt, which would wait for ever. Raises ValueError."""
    raise ValueError("keys with a passphrase can't be used")


def _password(file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--password-file: {file}: {error}") from None


def _refusal(response: HTTPResponse, body: bytes) -> str:
    said = body[:200].decode(errors="replace").strip().partition("\n")[0]
    hint = {
        401: "; give --user and --password-file",
        301: "; redirects are not followed",
        302: "; redirects are not followed",
        307: "; redirects are not followed",
        308: "; redirects are not followed",
    }.get(response.status, "")
    return f"HTTP {response.status} {said if response.status >= 500 and said else response.reason}{hint}"
