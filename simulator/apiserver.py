"""An API server without a cluster: real HTTP, with or without TLS, over a real socket, answers from a file.

    python -m simulator.apiserver --listen HOST:PORT --state FILE [--calls FILE] [--certificate FILE --key FILE]

The state file is JSON, read again whenever it has changed, and described by the classes below, `State` first:

    {"versions": ["v1"], "tokens": ["a-token"],
     "slices": [{"metadata": {"name": "node-0-gpu"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-0",
        "pool": {"name": "node-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": "GPU-..."}}}]}}],
     "faults": [{"path": "/apis/", "status": 429, "headers": {"Retry-After": "5"}, "count": 1}]}

Slices are written as `resource.k8s.io/v1` has them, and answered as the version that is asked for has them. Pods are
listed and watched, as `simulator.podwatch` says. With `--calls`, the number of requests by path (without the query, and
of a watch with `?watch` after it) is in that file, as JSON, after each request.

It will not do what an API server decides: it stores nothing, admits nothing, and knows one account from another by its
token alone.
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
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, cast
from urllib.parse import parse_qs, urlsplit

from simulator import podwatch

_RESOURCES = "/apis/resource.k8s.io/"
_DRIP = 0.02  # seconds between two bytes of an answer that trickles


class Fault(TypedDict, total=False):
    """What goes wrong with requests whose path begins with `path` (absent: all).

    `first` is the number of the first such request, `count` how many there are (absent: all that follow). Requests
    count from 1, anew after each change of the file. A request is answered after `delay` seconds; with `hang` never;
    with `cut` by the first half of its answer; with `drip` byte by byte; with `status`, `headers` and `body` by these
    instead of what it asked for.

    With `watch` true or false only watches, or only other requests, are met. A watch with `lines` consists of these
    lines, and then ends: with `cut` in the middle of one more, with `silent` never.
    """

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
    """

    versions: list[str]
    tokens: list[str]
    slices: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    bookmark_every: float
    faults: list[Fault]


Query = Mapping[str, list[str]]
Answer = tuple[int, dict[str, Any]]


def write_state(path: str | os.PathLike[str], state: State) -> None:
    """Writes the state file as a whole, so that no reader ever sees half of it."""
    _write_json(Path(path), state)


def _write_json(path: Path, value: object) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(value))
    new.replace(path)


# --- what is answered ---------------------------------------------------------------------------------------------


def _status(code: int, message: str) -> Answer:
    """An error, as an API server puts it."""
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _slices(state: State, path: str, query: Query) -> Answer:
    """The list of ResourceSlices, of one version, of one node or of all."""
    version = path.removeprefix(_RESOURCES).removesuffix("/resourceslices")
    if version not in state.get("versions", ["v1"]):
        return _status(404, "the server could not find the requested resource")
    items = state.get("slices", [])
    for selector in query.get("fieldSelector", []):
        field, _, value = selector.partition("=")
        if field != "spec.nodeName":
            return _status(400, f"field label not supported: {field}")
        items = [item for item in items if item["spec"].get("nodeName") == value]
    if version == "v1beta1":
        items = [_with_basic(item) for item in items]
    return 200, {
        "kind": "ResourceSliceList",
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"resourceVersion": "1"},
        "items": items,
    }


def _with_basic(item: dict[str, Any]) -> dict[str, Any]:
    """A slice as v1beta1 has it: what describes a device stands one level deeper."""
    devices = [
        {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}
        for device in item["spec"].get("devices", [])
    ]
    return {**item, "spec": {**item["spec"], "devices": devices}}


_ROUTES: dict[str, Callable[[State, str, Query], Answer]] = {
    f"{_RESOURCES}{version}/resourceslices": _slices for version in ("v1", "v1beta2", "v1beta1")
}


class _Answers:
    """What to answer from, and the count of requests."""

    def __init__(self, state_path: Path, *, calls_path: Path | None) -> None:
        self.calls: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._state_path = state_path
        self._calls_path = calls_path
        self._lock = threading.Lock()
        self._text = ""
        self._state: State = {}
        self._history = podwatch.History()
        self._met: Counter[int] = Counter()  # requests that each fault of the present text was tried on

    def begin(self, path: str, *, watch: bool) -> tuple[State, Fault]:
        """Count a request. Returns the state to answer from, and the fault that the request meets, if any."""
        with self._lock:
            self.calls[f"{path}?watch" if watch else path] += 1
            if self._calls_path is not None:
                _write_json(self._calls_path, self.calls)
            self._reread()
            met: Fault = {}
            for place, fault in enumerate(self._state.get("faults", [])):
                if path.startswith(fault.get("path", "/")) and fault.get("watch", watch) == watch:
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
                return _status(403, "pods is forbidden")
            return 200, self._history.listed(node)

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
            self._history.update(self._state.get("pods", []))


class _Request(BaseHTTPRequestHandler):
    """One connection; each GET on it is answered."""

    protocol_version = "HTTP/1.1"

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

    def _content(self, state: State, path: str, query: Query) -> Answer:
        tokens = state.get("tokens")
        if tokens is not None and self.headers.get("Authorization") not in [f"Bearer {token}" for token in tokens]:
            return _status(401, "Unauthorized")
        if path == podwatch.PATH:
            node = podwatch.selected_node(query)
            if node is None:
                return _status(400, "field label not supported")
            return cast("_Server", self.server).answers.pods(node)
        route = _ROUTES.get(path)
        if route is None:
            return _status(404, "the server could not find the requested resource")
        return route(state, path, query)

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
    """A running server. `calls` are the requests by path since its start; `stop` may be called twice."""

    def __init__(self, server: _Server) -> None:
        self.calls = server.answers.calls
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
    tls: ssl.SSLContext | None = None,
) -> ApiServer:
    """Starts a server in this process. It answers as soon as this returns."""
    host, _, port = address.rpartition(":")
    answers = _Answers(Path(state_path), calls_path=None if calls_path is None else Path(calls_path))
    return ApiServer(_Server((host, int(port)), answers, tls))


def main(arguments: list[str] | None = None) -> None:
    """Serves until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m simulator.apiserver", description=__doc__.splitlines()[0])
    parser.add_argument("--listen", required=True, help="where to listen, as HOST:PORT")
    parser.add_argument("--state", required=True, help="the JSON file to answer from")
    parser.add_argument("--calls", help="where to write the number of requests by path")
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
    with serve(options.state, address=options.listen, calls_path=options.calls, tls=tls):
        signal.sigwait(ends)


if __name__ == "__main__":
    main()
