"""An API server without a cluster: real HTTP, with or without TLS, over a real socket, answers from a file.

    python -m simulator.apiserver --listen HOST:PORT --state FILE [--calls FILE] [--writes FILE]
        [--certificate FILE --key FILE]

The state file is JSON, read again whenever it has changed, and described by the classes below, `State` first:

    {"versions": ["v1"], "tokens": ["a-token"],
     "slices": [{"metadata": {"name": "node-0-gpu"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-..."}}}]}}],
     "faults": [{"path": "/apis/", "status": 429, "headers": {"Retry-After": "5"}, "count": 1}]}

Slices are written as `resource.k8s.io/v1` has them, and answered as the version that is asked for has them. Pods are
listed and watched, as `simulator.podwatch` says. With `--calls`, the number of requests by path (without the query, and
of a watch with `?watch` after it; of another method with that before it) is in that file, as JSON, after each request.
Events can be made and patched and pods evicted, as `simulator.apiwrites` says; with `--writes` they are in that file.

It will not do what an API server decides: it admits nothing, stores nothing else, and knows one account from another by
its token alone.
"""

import argparse
import json
import os
import select
import signal
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, cast
from urllib.parse import parse_qs, urlsplit

from simulator import podwatch, slices
from simulator.apiwrites import Answer, Writes, status

_DRIP = 0.02  # seconds between two bytes of an answer that trickles


class Fault(TypedDict, total=False):
    """What goes wrong with requests of a `method` (absent: all) whose path begins with `path` (absent: all).

    `first` is the number of the first such request, `count` how many there are (absent: all that follow). Requests
    count from 1, anew after each change of the file. A request is answered after `delay` seconds; with `hang` never;
    with `cut` by the first half of its answer; with `drip` byte by byte; with `status`, `headers` and `body` by these
    instead of what it asked for.

    With `watch` true or false only watches, or only other requests, are met. A watch with `lines` consists of these
    lines, and then ends: with `cut` in the middle of one more, with `silent` never.
    """

    method: str
    path: str
    first: int
    count: int
    delay: float
    hang: bool
    cut: bool
    drip: bool
    status: int
    headers: dict[str, str]
    body: str
    watch: bool
    lines: list[str]
    silent: bool


class State(TypedDict, total=False):
    """The state file. `versions` of resource.k8s.io are served (absent: v1), to these `tokens` (absent: to anyone).

    Without `pods` the account that asks has no right to them. A watch gets a bookmark each `bookmark_every` seconds.
    Pods that are `protected` ("namespace/name") have a disruption budget that allows no eviction.
    """

    versions: list[str]
    tokens: list[str]
    slices: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    bookmark_every: float
    protected: list[str]
    faults: list[Fault]


Query = Mapping[str, list[str]]


def write_state(path: str | os.PathLike[str], state: State) -> None:
    """Writes the state file as a whole, so that no reader ever sees half of it."""
    _write_json(Path(path), state)


def _write_json(path: Path, value: object) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


# --- what is answered ---------------------------------------------------------------------------------------------


class _Answers:
    """What to answer from, and the count of requests."""

    def __init__(self, state_path: Path, *, calls_path: Path | None, writes_path: Path | None) -> None:
        self.calls: Counter[str] = Counter()
        self.writes = Writes()
        self.stopping = threading.Event()
        self._state_path = state_path
        self._calls_path = calls_path
        self._writes_path = writes_path
        self._lock = threading.Lock()
        self._text = ""
        self._state: State = {}
        self._history = podwatch.History()
        self._met: Counter[int] = Counter()  # requests that each fault of the present text was tried on

    def begin(self, path: str, *, watch: bool, method: str = "GET") -> tuple[State, Fault]:
        """Count a request. Returns the state to answer from, and the fault that the request meets, if any."""
        with self._lock:
            self.calls[f"{path}?watch" if watch else path if method == "GET" else f"{method} {path}"] += 1
            if self._calls_path is not None:
                _write_json(self._calls_path, self.calls)
            self._reread()
            met: Fault = {}
            for place, fault in enumerate(self._state.get("faults", [])):
                met_by = path.startswith(fault.get("path", "/")) and fault.get("method", method) == method
                if met_by and fault.get("watch", watch) == watch:
                    self._met[place] += 1
                    first = fault.get("first", 1)
                    if not met and first <= self._met[place] < first + fault.get("count", sys.maxsize):
                        met = fault
            return self._state, met

    def pods(self, node: str) -> Answer:
        """The list of pods, of one node or of all."""
        with self._lock:
            self._reread()
            if "pods" not in self._state:
                return status(403, "pods is forbidden")
            return 200, self._history.listed(node)

    def write(self, method: str, path: str, body: bytes) -> Answer:
        """Do what a request asks for that changes something."""
        with self._lock:
            pods = self._state.get("pods", [])
            answer = self.writes.do(method, path, body, pods=pods, protected=self._state.get("protected", []))
            if self._writes_path is not None:
                _write_json(self._writes_path, self.writes.told())
            self._history.update(self.writes.remaining(pods))
            return answer

    def events(self, node: str, *, since: int) -> list[podwatch.Event]:
        """What has happened to the pods of a node, or of all, after a version."""
        with self._lock:
            self._reread()
            return self._history.events(node, since=since)

    def _reread(self) -> None:
        text = self._state_path.read_text()
        if text != self._text:
            self._state, self._text = json.loads(text), text
            self._met.clear()
            self._history.update(self.writes.remaining(self._state.get("pods", [])))


class _Request(BaseHTTPRequestHandler):
    """One connection; each request on it is answered."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self._do_write()

    def do_PATCH(self) -> None:
        self._do_write()

    def do_GET(self) -> None:
        server = cast("_Server", self.server)
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        watch = query.get("watch") == ["true"]
        state, fault = server.answers.begin(parts.path, watch=watch)
        if fault.get("hang"):
            self._wait_for_the_end()
            return
        server.answers.stopping.wait(fault.get("delay", 0.0))
        code, content = self._content(state, parts.path, query)
        if watch and code == 200 and "status" not in fault:
            self._watch(state, query, fault)
            return
        body = fault.get("body", json.dumps(content)).encode()
        self._send(fault.get("status", code), fault.get("headers", {}), body, fault)

    def _do_write(self) -> None:
        answers = cast("_Server", self.server).answers
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        state, fault = answers.begin(path, watch=False, method=self.command)
        if fault.get("hang"):
            self._wait_for_the_end()
            return
        answers.stopping.wait(fault.get("delay", 0.0))
        code, content = self._denied(state) or (
            status(fault["status"], "as the state file says")
            if "status" in fault
            else answers.write(self.command, path, body)
        )
        self._send(code, fault.get("headers", {}), fault.get("body", json.dumps(content)).encode(), fault)

    def _denied(self, state: State) -> Answer | None:
        """The refusal of a token that is none of those that are valid."""
        tokens = state.get("tokens")
        if tokens is not None and self.headers.get("Authorization") not in [f"Bearer {token}" for token in tokens]:
            return status(401, "Unauthorized")
        return None

    def _content(self, state: State, path: str, query: Query) -> Answer:
        if (denied := self._denied(state)) is not None:
            return denied
        if path == podwatch.PATH:
            node = podwatch.selected_node(query)
            if node is None:
                return status(400, "field label not supported")
            return cast("_Server", self.server).answers.pods(node)
        return slices.answer(path, query, items=state.get("slices", []), versions=state.get("versions", ["v1"]))

    def _send(self, status: int, headers: Mapping[str, str], body: bytes, fault: Fault) -> None:
        phrase = HTTPStatus(status).phrase
        lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        head = f"HTTP/1.1 {status} {phrase}\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items())
        whole = f"{head}\r\n".encode() + body
        if fault.get("cut"):
            whole = whole[: len(whole) - len(body) // 2]
            self.close_connection = True
        try:
            if fault.get("drip"):
                for byte in whole:
                    self.wfile.write(bytes([byte]))
                    if self._is_over(_DRIP):
                        return
            else:
                self.wfile.write(whole)
        except OSError:  # the client has given up
            self.close_connection = True

    def _watch(self, state: State, query: Query, fault: Fault) -> None:
        """Answer with a line for each event, until the time that the client gave is up or it has gone."""
        answers = cast("_Server", self.server).answers
        watch = podwatch.Watch(
            query, answers.events, ended=self._has_gone, bookmark_every=state.get("bookmark_every", float("inf"))
        )
        self.close_connection = True
        try:
            self.wfile.write(podwatch.HEAD)
            for line in fault.get("lines", watch):
                self.wfile.write(podwatch.chunk(f"{line}\n"))
            if fault.get("silent"):
                self._wait_for_the_end()
            elif fault.get("cut"):
                self.wfile.write(podwatch.chunk('{"type": "ADDED", "object": {"kind"'))
            else:
                self.wfile.write(podwatch.END)
        except OSError:  # the client has given up
            return

    def _has_gone(self, seconds: float) -> bool:
        """Wait, unless the client goes away, which never says anything on a watch, or the server stops."""
        ready, _, _ = select.select([self.connection], [], [], seconds)
        return bool(ready) or self._is_over(0.0)

    def _wait_for_the_end(self) -> None:
        """Answer nothing until the client goes away or the server stops."""
        self.close_connection = True
        self.connection.settimeout(0.05)
        while not self._is_over(0.0):
            try:
                if not self.connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def _is_over(self, seconds: float) -> bool:
        return cast("_Server", self.server).answers.stopping.wait(seconds)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: ANN401 - the name in the base class
        """Nothing: requests are counted, not logged."""


# --- the server ---------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    """Takes the connections. Each has its thread, so that one that hangs keeps no other waiting."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], answers: _Answers, tls: ssl.SSLContext | None) -> None:
        super().__init__(address, _Request)
        self.answers = answers
        self._tls = tls

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection. Its handshake is made by its own thread, with the first byte that is read."""
        connection, peer = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Nothing: a client that gives up, or does not trust us, is what tests are made of."""


class ApiServer:
    """A running server. `calls` are the requests by path since its start, `writes` what they changed.

    `stop` may be called twice.
    """

    def __init__(self, server: _Server) -> None:
        self.calls = server.answers.calls
        self.writes = server.answers.writes
        host, port = server.server_address[:2]
        self.address = f"{host!s}:{port}"
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="apiserver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends all requests and stops listening."""
        self._server.answers.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def serve(
    state_path: str | os.PathLike[str],
    *,
    address: str = "127.0.0.1:0",
    calls_path: str | os.PathLike[str] | None = None,
    writes_path: str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> ApiServer:
    """Starts a server in this process. It answers as soon as this returns."""
    host, _, port = address.rpartition(":")
    answers = _Answers(
        Path(state_path),
        calls_path=None if calls_path is None else Path(calls_path),
        writes_path=None if writes_path is None else Path(writes_path),
    )
    return ApiServer(_Server((host, int(port)), answers, tls))


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m simulator.apiserver", description=__doc__.splitlines()[0])
    parser.add_argument("--listen", required=True, help="where to listen, as HOST:PORT")
    parser.add_argument("--state", required=True, help="the JSON file to answer from")
    parser.add_argument("--calls", help="where to write the number of requests by path")
    parser.add_argument("--writes", help="where to write the Events and evictions that were asked for")
    parser.add_argument("--certificate", help="the certificate to serve with; without it there is no TLS")
    parser.add_argument("--key", help="its private key")
    options = parser.parse_args(arguments)
    tls = None
    if options.certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(options.certificate, options.key)
    # Blocked before the first thread starts, because threads inherit the mask; sigwait then takes the signal.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with serve(options.state, address=options.listen, calls_path=options.calls, writes_path=options.writes, tls=tls):
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
