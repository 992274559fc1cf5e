"""Pictures of the dashboards, drawn by Grafana's own panel components from a Prometheus beside simulated nodes.

    python -m tools.pictures [--to docs/images] [--seconds 240]

It is not Grafana: no server, no variables to choose, no transformation but the merging of a table. It shows whether the
queries and options of each panel make a picture, and fails naming every panel that is empty or could not be drawn.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tools.debian_packages import CACHE, find
from tools.stack import ROOT, Stack, StackError

PREVIEW = ROOT / "tools" / "dashboard-preview"
NODES = {"node-a": "overrun", "node-b": "mixed"}
_CELL = 38  # pixels of a row of Grafana's grid, as in src/main.jsx
_WIDTH = 1400
_PATIENCE = 120.0  # seconds for one picture


class PictureError(Exception):
    """A picture that could not be made, in one line."""


class Pages:
    """The built preview and the dashboards over HTTP, and what the page reports."""

    def __init__(self) -> None:
        reports: dict[str, Any] = {}

        class Handler(SimpleHTTPRequestHandler):
            def translate_path(self, path: str) -> str:
                if path.startswith("/dashboards/"):
                    return str(ROOT / "dashboards" / Path(path).name)
                return super().translate_path(path)

            def do_POST(self) -> None:
                report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reports[report["dashboard"]] = report["panels"]
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: the reports are what counts."""

        self.reports = reports
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(PREVIEW / "dist")))
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def picture(board: dict[str, Any], pages: Pages, prometheus: str, *, seconds: int, to: Path) -> list[str]:
    """Draw one dashboard into a PNG; returns what is wrong with its panels, one line each. Raises PictureError."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) * _CELL + 2 * _CELL // 4
    asked = {"dashboard": f"{board['uid']}.json", "prometheus": prometheus, "seconds": seconds, "step": 2}
    with tempfile.TemporaryDirectory(prefix="podgpu-chromium-") as profile:
        command = [
            *_chromium(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size={_WIDTH},{height}",
            "--virtual-time-budget=20000",
            f"--screenshot={to}",
            f"{pages.url}/?{urlencode(asked)}",
        ]
        try:
            done = subprocess.run(
                command, env=_environment(), capture_output=True, text=True, timeout=_PATIENCE, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            raise PictureError(f"{board['uid']}: Chromium was not done after {_PATIENCE:.0f} s") from None
    if done.returncode or not to.exists() or board["uid"] not in pages.reports:
        raise PictureError(f"{board['uid']}: Chromium: {' '.join(done.stderr.split())[-600:]}")
    return [
        f"{board['uid']}: {panel['title']}: {panel['error'] or ('no data' if not panel['series'] else 'not drawn')}"
        for panel in pages.reports[board["uid"]]
        if panel["error"] or not panel["series"] or not panel["drawn"]
    ]


def _chromium() -> list[str]:
    given = os.environ.get("CHROMIUM", "")
    if given or shutil.which("chromium"):
        return [given or "chromium"]
    unpacked = CACHE / "usr/lib/chromium/chromium"  # its launcher is a script that looks for it elsewhere
    if not unpacked.exists():
        raise PictureError("chromium is missing; `make pictures` fetches it, or set CHROMIUM")
    return [str(unpacked)]


def _environment() -> dict[str, str]:
    """Where an unpacked Chromium finds the libraries that came with it."""
    libraries = sorted((CACHE / "usr/lib").glob("*-linux-gnu"))
    folders = [str(path) for folder in libraries for path in (folder, folder / "pulseaudio")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(folders)}


def _build() -> None:
    if find("npm") is None:
        raise PictureError("npm is missing; install Node.js 20 or newer")
    commands = [["npm", "run", "--silent", "build"]]
    if not (PREVIEW / "node_modules").exists():
        commands.insert(0, ["npm", "ci", "--legacy-peer-deps", "--no-audit", "--no-fund", "--no-progress"])
    for command in commands:
        done = subprocess.run(command, cwd=PREVIEW, capture_output=True, text=True)
        if done.returncode:
            raise PictureError(f"{' '.join(command)}: {' '.join(done.stderr.split())[-600:]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw every dashboard. Exit codes: 0 all panels are drawn, 1 one is not, or a program is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.pictures", description=main.__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="folder (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=240, help="history to draw (default: %(default)s)")
    given = parser.parse_args(arguments)
    given.to.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    try:
        _build()
        with tempfile.TemporaryDirectory(prefix="podgpu-pictures-") as folder, Stack(Path(folder)) as stack:
            stack.start_prometheus({node: stack.demo(scenario) for node, scenario in NODES.items()})
            print(f"watching the nodes for {given.seconds} s", file=sys.stderr)
            time.sleep(given.seconds)
            pages = Pages()
            try:
                for path in sorted((ROOT / "dashboards").glob("*.json")):
                    board = json.loads(path.read_text())
                    image = given.to / f"{path.stem}.png"
                    wrong += picture(board, pages, stack.prometheus, seconds=given.seconds, to=image)
                    print(image)
            finally:
                pages.close()
    except (PictureError, StackError) as error:
        wrong.append(str(error))
    for line in wrong:
        print(f"tools.pictures: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
