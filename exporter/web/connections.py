"""Connections: how many there may be, and how long each may take.

Guarantees that a connection is always under exactly one deadline, whose end closes it: the handshake, the request
(from connect or its first byte to its last header), the response (until the client has taken it) or the pause between
two requests. Sending a byte now and then extends none of them. Over the limit newcomers are turned away and those who
are in stay. All of it runs on one event loop; a connection costs a socket and a few kilobytes, never a thread.

With TLS the last 128 KiB of a response count as taken once they are encrypted; for these the idle deadline bounds the
wait instead.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from exporter.web.security import Security, WatchedSecurity
from exporter.web.tls import san_values

_log = logging.getLogger("exporter.web")
_FULL_LOG_INTERVAL_SECONDS = 60.0
_TLS_GOODBYE_SECONDS = 5.0
# Turns of the loop from accept over connection_made to connection_lost (4), after which nobody is between the doors.
_TURNS = 5
_FULL_BODY = b"too many connections\n"
_FULL_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nRetry-After: 5\r\nConnection: close\r\n\r\n%b" % (len(_FULL_BODY), _FULL_BODY)
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines of a connection, in seconds."""

    read: float = 10.0
    write: float = 30.0
    idle: int = 60


class Connections:
    """The open sockets of one server. For one event loop."""

    def __init__(self, config: Config, *, security: WatchedSecurity, limit: int, timeouts: Timeouts) -> None:
        self.config = config
        self.timeouts = timeouts
        self.state = ServerState()
        self._security = security
        self._limit = limit
        self._open: set[asyncio.Transport] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._closing = False
        self._next_full_log = 0.0

    def arrival(self) -> "Arrival":
        """A protocol for a connection that was just accepted."""
        return Arrival(self)

    @property
    def security(self) -> Security:
        """The settings with which a new connection is to be served."""
        return self._security.current()

    def admit(self, transport: asyncio.Transport) -> bool:
        """Count `transport` in, where there is room for it."""
        if self._closing:
            return False
        if len(self._open) >= self._limit:
            now = time.monotonic()
            if now >= self._next_full_log:
                self._next_full_log = now + _FULL_LOG_INTERVAL_SECONDS
                _log.warning(
                    "all %d connections are in use, turning newcomers away (--web.max-connections)", self._limit
                )
            return False
        self._open.add(transport)
        self._none_open.clear()
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Count `transport` out; a second time does nothing."""
        self._open.discard(transport)
        if not self._open:
            self._none_open.set()

    def begin(self, handshake: "asyncio.Task[None]") -> None:
        """Keep a running handshake from being collected."""
        self._handshakes.add(handshake)
        handshake.add_done_callback(self._handshakes.discard)

    async def refuse_newcomers(self) -> None:
        """Turn away whoever is still on the way from accept to here; nobody is when this returns."""
        self._closing = True
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def close(self, seconds: float) -> None:
        """Let responses under way finish for at most `seconds`, close everything else at once."""
        for handshake in self._handshakes:
            handshake.cancel()
        for connection in list(self.state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(seconds):
                await self._none_open.wait()
        except TimeoutError:
            _log.warning("stopping: %d connections did not finish and are dropped", len(self._open))
            for transport in list(self._open):
                transport.abort()
        # Requests whose client is gone end by themselves within a turn or two, at most after one password check.
        if self.state.tasks:
            await asyncio.wait(self.state.tasks, timeout=1.0)
        for _ in range(_TURNS):
            await asyncio.sleep(0)


class Arrival(asyncio.Protocol):
    """A connection between accept and its first request: turned away, handed over, or led through the handshake."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._raw: asyncio.Transport | None = None
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Decide about the newcomer."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"not a stream: {transport!r}")
        security = self._connections.security
        if not self._connections.admit(transport):
            if security.context is None:  # with TLS nobody could read an answer before the handshake
                transport.write(_FULL_RESPONSE)
            transport.close()
            return
        self._raw = transport
        if security.context is None:
            transport.set_write_buffer_limits(high=0)
            self._hand_over(transport, transport)
        else:
            transport.pause_reading()  # the handshake must see the first byte
            self._connections.begin(asyncio.get_running_loop().create_task(self._handshake(transport, security)))

    def data_received(self, data: bytes) -> None:
        """Keep what arrives together with the end of the handshake, before the connection is handed over."""
        self._early += data

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget a connection that never was handed over."""
        if self._raw is not None:
            self._connections.leave(self._raw)

    async def _handshake(self, raw: asyncio.Transport, security: Security) -> None:
        context = security.context
        if context is None:
            raise ValueError("a handshake without TLS")
        raw.set_write_buffer_limits(high=0)
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                raw,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._connections.timeouts.read,
                ssl_shutdown_timeout=_TLS_GOODBYE_SECONDS,
            )
        except (OSError, asyncio.CancelledError) as error:
            # The client has been told by a TLS alert, or is gone.
            _log.debug("TLS handshake failed: %s", error)
            raw.abort()
            self._connections.leave(raw)
            return
        if encrypted is None:  # lost in the moment in which the handshake ended
            self._connections.leave(raw)
            return
        if security.allowed_sans and security.allowed_sans.isdisjoint(san_values(encrypted.get_extra_info("peercert"))):
            _log.debug("client certificate refused: none of its names is in client_allowed_sans")
            encrypted.abort()
            return
        # 0 would pause even an empty buffer of a TLS transport.
        encrypted.set_write_buffer_limits(high=1)
        self._hand_over(encrypted, raw)

    def _hand_over(self, transport: asyncio.Transport, raw: asyncio.Transport) -> None:
        connections = self._connections
        connection = ScrapeConnection(
            connections.config,
            connections.state,
            timeouts=connections.timeouts,
            lost=lambda: connections.leave(raw),
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if self._early:
            connection.data_received(bytes(self._early))


class ScrapeConnection(H11Protocol):
    """uvicorn's HTTP/1.1 connection under deadlines. `lost` is called once, when the connection is gone."""

    def __init__(self, config: Config, state: ServerState, *, timeouts: Timeouts, lost: Callable[[], None]) -> None:
        super().__init__(config, state, {})
        self._timeouts = timeouts
        self._lost = lost
        self._deadline: asyncio.TimerHandle | None = None  # None between two requests, where uvicorn's own timer runs
        self._awaited = ""
        self._unflushed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Give the client `read` seconds for its first request."""
        super().connection_made(transport)
        self._await("request", self._timeouts.read)

    def data_received(self, data: bytes) -> None:
        """Give the client `read` seconds from the first byte of a further request."""
        if self._deadline is None:
            self._await("request", self._timeouts.read)
        super().data_received(data)

    def handle_events(self) -> None:
        """Give the client `write` seconds to take its response once the request is there."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and self._awaited != "response":
            self._await("response", self._timeouts.write)
            self._cork(on=True)

    def on_response_complete(self) -> None:
        """Begin the pause only when the client has taken the response, not when we have handed it out."""
        if self.transport.is_closing():
            super().on_response_complete()  # the deadline stays: closing waits for the client too
        elif self.flow.write_paused:
            self._unflushed = True
        else:
            self._cork(on=False)
            self._release()
            super().on_response_complete()

    def resume_writing(self) -> None:
        """The client has taken all that was handed out."""
        super().resume_writing()
        if self._unflushed:
            self._unflushed = False
            self.on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; in the middle of another answer there is no place for a refusal."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.transport.abort()
        elif self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """Close now, or after the response under way."""
        if not self.transport.is_closing():
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop every timer and give the place free."""
        self._release()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._lost()

    def _cork(self, *, on: bool) -> None:
        # Full segments only while a response is under way: the short one at the end of each chunk costs the reader a
        # wake-up, and one with a small window now and then its delayed acknowledgement, 40 ms.
        sock = self.transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # the client is gone, which the transport will notice by itself
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, on)

    def _await(self, what: str, seconds: float) -> None:
        self._release()
        self._awaited = what
        self._deadline = self.loop.call_later(seconds, self._expire)

    def _release(self) -> None:
        self._awaited = ""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        _log.debug("connection dropped: its %s took too long", self._awaited)
        self.transport.abort()
