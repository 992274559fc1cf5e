"""`podgpu demo`: the real exporter on a simulated node, with `podgpu top` to show who holds what.

Everything but the node is what runs in a cluster. When it ends, for whatever reason that can be caught, its processes
are ended and its folder is removed.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from exporter.top.choice import Choice
from exporter.top.frame import once
from exporter.top.pages import Credentials, ExporterPage
from exporter.top.screen import watch
from exporter.top.terminal import columns, glyphs
from exporter.top.view import PageError
from simulator.driver import build_library
from simulator.errors import StartError
from simulator.mps_daemons import Daemons
from simulator.node import Node
from simulator.nvml.library import LibraryBuildError
from simulator.paths import Paths
from simulator.processes import Processes, fetch, free_address, wait_until_ready
from simulator.scenario import Scenario, ScenarioError
from simulator.scenario_file import load, names

_PORT = 9836
_ENFORCER_PORT = 9837
_ENFORCER_INTERVAL = 2.0  # seconds
_INTERVAL = 1.0  # seconds from one sampling cycle, and one table, to the next
_MPS_INTERVAL = 3.0  # from one cycle to the next where each takes some twenty calls of the control daemon's front-end


class _Ended(Exception):  # noqa: N818 - a request, not an error
    """Somebody asked the demo to end."""


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise _Ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Exit codes: 0 done, 1 a process did not come up, 2 a flag or scenario can't be used."""
    given = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    root = Path(tempfile.mkdtemp(prefix="podgpu-demo-"))
    try:
        return _run(given, root)
    except ScenarioError as error:
        print(f"podgpu demo: {error}", file=sys.stderr)
        return 2
    except (StartError, LibraryBuildError) as error:
        print(f"podgpu demo: {error}", file=sys.stderr)
        return 1
    except _Ended:
        return 0
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, names()))
    listing = "\n".join(f"  {name:{width}}  {load(name).description}" for name in names())
    parser = argparse.ArgumentParser(
        prog="podgpu demo",
        description="Runs the exporter on a simulated shared-GPU node. Needs gcc, no GPU and no cluster.",
        epilog=f"scenarios:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--scenario", default="mixed", metavar="NAME|FILE", help="the node to simulate (default: mixed)"
    )
    parser.add_argument("--once", action="store_true", help="print one complete metrics page and end")
    parser.add_argument(
        "--for", dest="seconds", type=float, default=float("inf"), metavar="SECONDS", help="end after this time"
    )
    return parser


def _run(given: argparse.Namespace, root: Path) -> int:
    loaded = load(given.scenario)
    paths = Paths(root)
    print("building the simulated driver library", file=sys.stderr)
    build_library(paths, loaded)
    address = free_address(_PORT)
    url = f"http://{address}/metrics"
    with Processes() as processes, (root / "exporter.log").open("wb") as errors:
        print(f"starting a node: {loaded.description}", file=sys.stderr)
        daemons = processes.mps(paths, loaded)
        if given.once and loaded.enforcer is None:
            Node(paths, loaded).advance(0)
        else:
            processes.clockwork(paths, given.scenario)
        processes.kubelet(paths)
        if paths.apiserver_state.exists():
            processes.apiserver(paths)
        interval = _MPS_INTERVAL if loaded.mps else _INTERVAL
        if loaded.enforcer is not None:
            _enforce(processes, paths, loaded, errors)
        exporter = processes.exporter(
            paths, f"--interval={interval}s", "--pods.label=team", address=address, errors=errors
        )
        try:
            wait_until_ready(address, exporter)
        except StartError:
            sys.stderr.write((root / "exporter.log").read_text(errors="replace"))
            raise
        if any(daemon.restart_every for daemon in loaded.mps) and not given.once:
            threading.Thread(target=_restart, args=(daemons, time.monotonic()), daemon=True).start()
        if given.once:
            sys.stdout.buffer.write(fetch(url))
            sys.stdout.flush()
        else:
            _watch(url, until=time.monotonic() + given.seconds)
    return 0


def _restart(daemons: Daemons, begun: float) -> None:
    """Restart the daemons when that is due, for as long as the node is there."""
    with suppress(StartError):  # the node is ending
        while True:
            time.sleep(1)
            daemons.advance(time.monotonic() - begun)


def _enforce(processes: Processes, paths: Paths, loaded: Scenario, errors: IO[bytes]) -> None:
    """Start the node's enforcer, and wait for its first cycle to be over."""
    address = free_address(_ENFORCER_PORT)
    flags = (f"--interval={_ENFORCER_INTERVAL}s", *(loaded.enforcer or ()))
    enforcer = processes.enforcer(paths, *flags, address=address, errors=errors)
    wait_until_ready(address, enforcer)
    print(f"the enforcer's metrics: http://{address}/metrics", file=sys.stderr)


def _watch(url: str, *, until: float) -> None:
    """Show `podgpu top` until the time is over. On a terminal live, elsewhere one table after the other."""
    page = ExporterPage(url, Credentials())
    if sys.stdin.isatty() and sys.stdout.isatty():
        watch(page.view, Choice(), interval=_INTERVAL, source=url, until=until)
        return
    while time.monotonic() < until:
        try:
            lines = once(page.view(), Choice(), columns=columns(), now=time.time(), glyphs=glyphs(), source=url)
        except PageError as error:
            lines = [str(error)]
        print("\n".join((*lines, "")), flush=True)
        time.sleep(max(0.0, min(5 * _INTERVAL, until - time.monotonic())))
