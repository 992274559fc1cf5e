"""Prometheus and Alertmanager, with podgpu's rules, beside simulated nodes: all on loopback, ended on the way out.

Guarantees: the programs are the real ones, rules and routes are the files that are shipped. Only time is shortened:
what is minutes in the rules is as many seconds here, since nobody waits six hours for a test. Targets carry the labels
that Kubernetes' service discovery gives them, the exporter's own pod among them, so that `honor_labels` has work to do.

It will not be used for anything but tests and pictures.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from simulator.processes import free_address
from tools.debian_packages import CACHE, find

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "dashboards" / "rules"
ALERTMANAGER = ROOT / "dashboards" / "alertmanager" / "alertmanager.yaml"
_PATIENCE = 60.0  # seconds for a program to be ready
_STOP = 10.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class StackError(Exception):
    """A program that is missing or did not come up, in one line."""


class Stack:
    """The programs that run. A context manager: leaving it ends exactly those."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = ExitStack()
        self.notifications: list[tuple[str, dict[str, Any]]] = []  # path of the receiver, and what Alertmanager sent
        self.prometheus = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def demo(self, scenario: str) -> str:
        """Start `podgpu demo`; returns the address of its exporter."""
        log = self._start(f"demo-{scenario}", [sys.executable, "-m", "simulator", "--scenario", scenario])
        found: list[str] = []

        def said() -> bool:
            found[:] = re.findall(r"http://([\d.]+:\d+)/metrics", log.read_text(errors="replace"))
            return bool(found)

        _wait(said, f"the demo of {scenario}")
        return found[0]

    def receiver(self) -> str:
        """Start a webhook receiver that keeps what it is told in `notifications`; returns its URL."""
        notifications = self.notifications

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                notifications.append((self.path, json.loads(self.rfile.read(length))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: what was received is what counts."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self._closing.callback(thread.join, _STOP)
        self._closing.callback(server.server_close)
        self._closing.callback(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}"

    def start_alertmanager(self, receiver: str) -> str:
        """Start Alertmanager with the example that is shipped, without its pauses; returns its address."""
        text = ALERTMANAGER.read_text().replace("http://127.0.0.1:9095", receiver)
        text = re.sub(r"group_(wait|interval): \w+", r"group_\1: 1s", text)
        config = self._folder / "alertmanager.yaml"
        config.write_text(text)
        address = free_address(0)
        command = [
            *_with_its_files(_program("prometheus-alertmanager", "alertmanager")),
            f"--config.file={config}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={address}",
            "--cluster.listen-address=",
        ]
        self._start("alertmanager", command)
        _wait(lambda: _answers(f"http://{address}/-/ready"), "Alertmanager")
        return address

    def start_prometheus(self, nodes: Mapping[str, str], *, alertmanager: str = "") -> None:
        """Start Prometheus on the exporters of nodes, by name, with our rules."""
        rules = []
        for path in sorted(RULES.glob("*.yaml")):
            rules.append(self._folder / path.name)
            rules[-1].write_text(yaml.safe_dump(hastened(yaml.safe_load(path.read_text()))))
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump(_configuration(nodes, rules, alertmanager)))
        address = free_address(0)
        command = [
            _program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'prometheus'}",
            f"--web.listen-address={address}",
            "--web.cors.origin=.*",
        ]
        self._start("prometheus", command)
        self.prometheus = f"http://{address}"
        _wait(lambda: _answers(f"{self.prometheus}/-/ready"), "Prometheus")

    def ask(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - whatever JSON the API answers
        """The data of an answer of Prometheus' HTTP API. Raises URLError."""
        with urlopen(f"{self.prometheus}/api/v1/{path}?{urlencode(parameters)}", timeout=20) as response:  # noqa: S310
            return json.load(response)["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The series of an instant query, as labels and values."""
        return [(one["metric"], float(one["value"][1])) for one in self.ask("query", query=expr)["result"]]

    def _start(self, name: str, command: Sequence[str]) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "COLUMNS": "200"},  # so that no address is cut
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )
        self._closing.callback(_end, process)
        return log


def hastened(rules: dict[str, Any]) -> dict[str, Any]:
    """The rules with seconds for minutes, evaluated each second. What they look back on stays as it is."""
    return {
        "groups": [
            {
                "name": group["name"],
                "interval": "1s",
                "rules": [
                    {
                        key: _hastened(value) if key in ("for", "keep_firing_for") else value
                        for key, value in rule.items()
                    }
                    for rule in group["rules"]
                ],
            }
            for group in rules["groups"]
        ]
    }


def _hastened(duration: str) -> str:
    seconds = sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", duration))
    return f"{max(1, seconds // 60)}s"


def _configuration(nodes: Mapping[str, str], rules: Sequence[Path], alertmanager: str) -> dict[str, Any]:
    managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "alerting": {"alertmanagers": managers},
        "scrape_configs": [
            {
                "job_name": "podgpu",
                "honor_labels": True,
                "static_configs": [
                    {
                        "targets": [address],
                        "labels": {
                            "node": node,
                            "namespace": "monitoring",
                            "pod": f"podgpu-{node}",
                            "container": "exporter",
                        },
                    }
                    for node, address in nodes.items()
                ],
            }
        ],
    }


def _program(*names: str) -> str:
    found = next((path for name in names if (path := find(name)) is not None), None)
    if found is None:
        raise StackError(f"{names[0]} is missing; `make tools` fetches it")
    return str(found)


def _with_its_files(program: str) -> list[str]:
    """Debian's Alertmanager reads templates from /usr/share. Where it was only unpacked, it sees them there as well.

    A mount namespace of its own, which needs no right where user namespaces are allowed, and nobody else sees.
    """
    if not Path(program).is_relative_to(CACHE):
        return [program]
    shell = 'mount --bind "$0" /usr/share && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, str(CACHE / "usr/share"), program]


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5):  # noqa: S310 - a program of ours
            return True
    except (URLError, OSError):
        return False


def _wait(done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _PATIENCE
    while not done():
        if time.monotonic() > until:
            raise StackError(f"{what} was not ready after {_PATIENCE:.0f} s")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
