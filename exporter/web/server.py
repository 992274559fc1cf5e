"""Runs the HTTP server in one thread of its own.

uvicorn's HTTP/1.1 protocol on an asyncio loop that sleeps while nobody asks. Guarantees that what can be wrong with
addresses and configuration is raised from `start()`, before a thread exists, and that `stop()` returns when its grace
is over, or one password check later. Installs no signal handlers and touches no logging but the levels of uvicorn's
own loggers. Two threads at most: the loop, and one for password hashes once the first is checked.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from uvicorn.config import Config

from exporter.web.authentication import Guard
from exporter.web.connections import Connections, Timeouts
from exporter.web.listening import listen
from exporter.web.messages import Asgi
from exporter.web.security import WatchedSecurity

DEFAULT_MAX_CONNECTIONS = 100
_MAX_HEADER_BYTES = 16 * 1024
_log = logging.getLogger("exporter.web")


class WebServer:
    """Serves one ASGI application on several addresses until it is stopped."""

    def __init__(
        self,
        application: Asgi,
        *,
        listen_addresses: Sequence[str],
        config_file: Path | None = None,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`config_file` is the file of --web.config.file; None serves in clear and to everybody."""
        self._application = application
        self._listen_addresses = tuple(listen_addresses)
        self._config_file = config_file
        self._max_connections = max_connections
        self._timeouts = timeouts if timeouts is not None else Timeouts()
        self._addresses: tuple[tuple[str, int], ...] = ()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._grace = 0.0

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of every bound socket, in the order of the listen addresses; empty before `start()`."""
        return self._addresses

    def start(self) -> None:
        """Bind and serve; returns when connections are accepted.

        Raises:
            WebConfigError: the configuration file or a file it names cannot be used.
            ListenError: an address cannot be had.
        """
        security = WatchedSecurity(self._config_file)
        settings = security.current()
        sockets = listen(self._listen_addresses)
        self._addresses = tuple(bound.getsockname()[:2] for bound in sockets)
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(sockets, security, started), name="exporter-web", daemon=True
        )
        self._thread.start()
        started.wait()
        for host, port in self._addresses:
            _log.info(
                "listening on %s port %d (TLS %s, authentication %s)",
                host,
                port,
                "on" if settings.context is not None else "off",
                "on" if settings.users else "off",
            )

    def stop(self, timeout: float = 5.0) -> None:
        """Stop accepting, let responses under way finish for `timeout` seconds, drop the rest. Idempotent."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None:
            return
        self._thread = None
        if loop is not None and stopping is not None and thread.is_alive():
            self._grace = timeout
            loop.call_soon_threadsafe(stopping.set)
        thread.join()

    def _run(self, sockets: list[socket.socket], security: WatchedSecurity, started: threading.Event) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(sockets, security, started))
        except Exception:  # noqa: BLE001 - the thread's edge; without it the process stays up, deaf and silent
            _log.exception("the web server has failed and serves nothing any more")
        finally:
            started.set()
            for bound in sockets:
                bound.close()

    async def _serve(self, sockets: list[socket.socket], security: WatchedSecurity, started: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        # Only password hashes go there; more threads would only let strangers take more cores.
        loop.set_default_executor(ThreadPoolExecutor(max_workers=1, thread_name_prefix="exporter-web-passwords"))
        connections = Connections(
            _uvicorn_config(Guard(self._application, security), self._timeouts),
            security=security,
            limit=self._max_connections,
            timeouts=self._timeouts,
        )
        listeners = [await loop.create_server(connections.arrival, sock=bound) for bound in sockets]
        self._loop, self._stopping = loop, asyncio.Event()
        started.set()
        await self._stopping.wait()
        # asyncio loses sockets that it has accepted when their server is closed before they have their transport.
        for bound in sockets:
            loop.remove_reader(bound)
        await connections.refuse_newcomers()
        for listener in listeners:
            listener.close()
        await connections.close(self._grace)


def _uvicorn_config(application: Asgi, timeouts: Timeouts) -> Config:
    """The settings that uvicorn's protocol reads; whatever belongs to its own server is of no account here."""
    config = Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=timeouts.idle,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
    )
    config.load()
    return config
