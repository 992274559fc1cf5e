"""The real program on a simulated node: every process is one of its own, and everything goes over files and sockets."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from simulator.driver import build_library
from simulator.mps_daemons import Daemons
from simulator.node import Node
from simulator.nvml import state
from simulator.paths import Paths
from simulator.processes import Processes, fetch, free_address, wait_until_ready
from simulator.scenario import Scenario
from simulator.scenario_file import load

_PATIENCE = 20.0  # seconds until a test gives up waiting for what should come


@dataclass
class Whole:
    """A node and the exporter on it."""

    node: Node
    processes: Processes
    address: str
    daemons: Daemons
    kubelet: Popen[bytes] | None = None
    apiserver: Popen[bytes] | None = None
    exporter: Popen[bytes] | None = None
    enforcer: Popen[bytes] | None = None
    enforcer_address: str = ""
    now: float = 0.0

    @property
    def paths(self) -> Paths:
        return self.node.paths

    @property
    def log(self) -> str:
        return (self.paths.root / "exporter.log").read_text()

    def start_kubelet(self) -> None:
        self.kubelet = self.processes.kubelet(self.paths)

    def start_apiserver(self) -> None:
        self.apiserver = self.processes.apiserver(self.paths)

    def start_exporter(self, *flags: str, ready: bool = True) -> None:
        with (self.paths.root / "exporter.log").open("ab") as errors:
            self.exporter = self.processes.exporter(
                self.paths, "--interval=250ms", *flags, address=self.address, errors=errors
            )
        if ready:
            wait_until_ready(self.address, self.exporter)

    def start_enforcer(self, *flags: str) -> None:
        """Start the enforcer, or start it anew."""
        self.enforcer_address = self.enforcer_address or free_address(0)
        asked = self.node.scenario.enforcer or ()
        with (self.paths.root / "enforcer.log").open("ab") as errors:
            self.enforcer = self.processes.enforcer(
                self.paths, "--interval=1s", *asked, *flags, address=self.enforcer_address, errors=errors
            )
        wait_until_ready(self.enforcer_address, self.enforcer)

    def enforcer_value(self, family: str, **labels: str) -> float:
        page = fetch(f"http://{self.enforcer_address}/metrics").decode()
        return sum(value for found, value in samples(page, family) if labels.items() <= found.items())

    def change(self, pod: str, **fields: object) -> None:
        """Change a pod of the scenario: same uid, same processes."""
        pods = tuple(replace(each, **fields) if each.name == pod else each for each in self.node.scenario.pods)
        self.node.scenario = replace(self.node.scenario, pods=pods)
        self.node.advance(self.now)

    def until(self, holds: Callable[[], bool], *, seconds: float = 30.0) -> float:
        """Let the node go on until something holds; how many seconds that took."""
        begun = time.monotonic()
        while not holds():
            logs = "".join(f.read_text(errors="replace") for f in self.paths.root.glob("*.log"))
            assert time.monotonic() - begun < seconds, f"{self.page()}\n{logs}"
            self.node.advance(self.now)
            time.sleep(0.05)
        return time.monotonic() - begun

    def page(self) -> str:
        return fetch(f"http://{self.address}/metrics").decode()

    def values(self, family: str, **labels: str) -> list[float]:
        """The values of a family's series that have these labels."""
        return [value for found, value in samples(self.page(), family) if labels.items() <= found.items()]

    def value(self, family: str, **labels: str) -> float | None:
        found = self.values(family, **labels)
        assert len(found) <= 1, found
        return found[0] if found else None

    def eventually(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < until, f"{self.page()}\n{self.log}"
            time.sleep(0.05)

    def until_next_cycles(self, count: int = 2) -> None:
        """Wait until so many more snapshots were published."""
        begun = sum(self.values("podgpu_sampler_cycles_total"))
        self.eventually(lambda: sum(self.values("podgpu_sampler_cycles_total")) >= begun + count)

    def threads(self) -> int:
        status = Path(f"/proc/{self.exporter.pid}/status").read_text()
        return int(re.search(r"^Threads:\s+(\d+)", status, re.MULTILINE)[1])

    def fault(self, *faults: state.Fault) -> None:
        """Let the driver go wrong from now on."""
        state.write(self.paths.driver_state, replace(self.node.driver_state(0), faults=faults))

    def driver_writes(self, changed: state.State) -> None:
        state.write(self.paths.driver_state, changed)

    def status_of(self, path: str) -> int:
        try:
            fetch(f"http://{self.address}{path}")
        except HTTPError as error:
            return error.code
        return 200


def samples(page: str, family: str) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for found in text_string_to_metric_families(page)
        for sample in found.samples
        if sample.name == family
    ]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Paths, Scenario], None]:
    """Builds each driver's library once a session."""
    built: dict[str, Path] = {}

    def put(paths: Paths, scenario: Scenario) -> None:
        if scenario.driver not in built:
            cache = Paths(tmp_path_factory.mktemp("driver"))
            build_library(cache, scenario)
            built[scenario.driver] = cache.library
        shutil.copytree(built[scenario.driver], paths.library)

    return put


@pytest.fixture
def make(tmp_path: Path, libraries: Callable[[Paths, Scenario], None]) -> Iterator[Callable[..., Whole]]:
    """Makes a node of a scenario, with a kubelet but without an exporter."""
    with ExitStack() as folders, Processes() as processes:

        def of(scenario: str | Scenario, *, driver: bool = True, kubelet: bool = True) -> Whole:
            loaded = load(scenario) if isinstance(scenario, str) else scenario
            paths = Paths(tmp_path)
            if loaded.mps or loaded.enforcer is not None:  # sockets need a short path
                paths = Paths(Path(folders.enter_context(TemporaryDirectory(prefix="n-", dir="/tmp"))))
            if driver:
                libraries(paths, loaded)
            daemons = processes.mps(paths, loaded)
            node = Node(paths, loaded)
            node.advance(0)
            whole = Whole(node, processes, free_address(0), daemons)
            if kubelet:
                whole.start_kubelet()
            if paths.apiserver_state.exists():
                whole.start_apiserver()
            return whole

        yield of
