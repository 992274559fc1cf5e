"""Real servers on real sockets, and the few ways in which the tests talk to them."""

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporter.web.application import Application
from exporter.web.connections import Timeouts
from exporter.web.pages import Page, PageStore
from exporter.web.server import WebServer

DEADLINE = 20.0


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float = DEADLINE) -> None:
    """Poll with a deadline; the only waiting that the tests do."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


@dataclass
class Served:
    """A running server with what it serves."""

    server: WebServer
    store: PageStore
    stuck: list[str] = field(default_factory=list)

    @property
    def address(self) -> tuple[str, int]:
        return self.server.addresses[0]

    def get(
        self, path: str = "/metrics", *, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """One request on a connection of its own; header names are given with underscores."""
        connection = self.connection(tls)
        try:
            connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def connection(self, tls: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        if tls is not None:
            return http.client.HTTPSConnection(*self.address, timeout=DEADLINE, context=tls)
        return http.client.HTTPConnection(*self.address, timeout=DEADLINE)

    def raw(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=DEADLINE)


def page_of(text: bytes) -> Page:
    return Page.of(text=text, openmetrics=text + b"# EOF\n")


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Start servers; all are stopped and their threads gone when the test is over."""
    before = set(threading.enumerate())
    running: list[Served] = []

    def start(
        text: bytes | None = b"up 1\n",
        *,
        config_file: Path | None = None,
        max_connections: int = 100,
        timeouts: Timeouts | None = None,
        listen_addresses: tuple[str, ...] = ("127.0.0.1:0",),
        application: Any = None,
    ) -> Served:
        store = PageStore()
        if text is not None:
            store.publish(page_of(text))
        stuck: list[str] = []
        if application is None:
            application = Application(store, healthy=lambda: stuck[0] if stuck else None, version="1.2<3")
        server = WebServer(
            application,
            listen_addresses=listen_addresses,
            config_file=config_file,
            max_connections=max_connections,
            timeouts=timeouts,
        )
        server.start()
        served = Served(server, store, stuck)
        running.append(served)
        return served

    yield start
    for served in running:
        served.server.stop()
    wait_until(lambda: set(threading.enumerate()) <= before, "the server's threads have ended")


def closed_by_peer(sock: socket.socket) -> bool:
    """Read until the peer closes; False when it does not within the socket's timeout."""
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def resident_bytes() -> int:
    """This process's resident memory, from /proc/self/statm."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def wait() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def is_closed() -> Callable[[socket.socket], bool]:
    return closed_by_peer


@pytest.fixture
def resident() -> Callable[[], int]:
    return resident_bytes


@pytest.fixture
def make_page() -> Callable[[bytes], Page]:
    return page_of
