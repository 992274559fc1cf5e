"""The enforcer's loop over a whole simulated node: real driver library, control daemons, kubelet, cgroups and files."""

import ctypes
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pynvml
import pytest

from enforcer.mechanisms.apply import Mechanisms, Places
from enforcer.model import Action, CapState, Records
from enforcer.observation import NodeObserver
from enforcer.outcomes import Done, Outcome
from enforcer.reconcile import Mode, Reconciler, Report
from exporter.clock import Clock
from exporter.errors import Failure
from exporter.sampler import Sampler
from exporter.service import sources
from exporter.settings import settings
from exporter.sources.library_use import LibraryUse
from exporter.sources.memory_limits import MemoryLimits
from simulator import mps_control
from simulator.driver import build_library
from simulator.mps import registration, world
from simulator.node import Node
from simulator.nvml import library, state
from simulator.paths import Paths
from simulator.processes import Processes, exporter_flags
from simulator.scenario import Pod, Scenario
from simulator.scenario_file import load

_PATIENCE = 40.0  # seconds
BOOT = "11111111-2222-3333-4444-555555555555"


class CrashError(BaseException):
    """The enforcer's process ends here. Nothing of it may catch that."""


@dataclass
class Crashing:
    """Mechanisms of a process that ends after so many actions that changed something."""

    inner: Mechanisms
    after: int
    done: list[Action] = field(default_factory=list)

    def records(self) -> Records | Failure:
        return self.inner.records()

    def apply(self, action: Action) -> Outcome:
        if len(self.done) >= self.after:
            raise CrashError
        outcome = self.inner.apply(action)
        if isinstance(outcome, Done):
            self.done.append(action)
        return outcome


@dataclass
class Enforced:
    """A node, and enforcers on it, one after the other."""

    node: Node
    processes: Processes
    chosen: object
    now: float = 0.0
    counted: list[tuple[Action, str]] = field(default_factory=list)
    stops: list[Callable[[], None]] = field(default_factory=list)

    def mechanisms(self) -> Mechanisms:
        paths = self.node.paths
        binary = str(paths.bin / mps_control.NAME)
        places = Places(str(paths.enforcer_state), str(paths.receipts), paths.sysfs, paths.procfs, binary, BOOT)
        made = Mechanisms(places, driver_deadline=5.0, clock=Clock(), use=LibraryUse())
        self.stops.append(made.stop)
        return made

    def start(self, *, mode: Mode = Mode.ENFORCE, crash_after: int | None = None) -> Reconciler:
        """An enforcer that has just started, in place of any that was there: it remembers nothing."""
        self.stop()
        paths, clock = self.node.paths, Clock()
        found = sources(self.chosen, clock, mps_settings_age=0)
        self.stops += [found.pods.stop, found.driver.stop, found.limits.mps.stop, found.limits.memory.stop]
        sampler = Sampler(found, interval=20, deadline=8, clock=clock, publish=lambda _snapshot, _totals: None)
        limits = MemoryLimits(paths.sysfs, paths.procfs, deadline=5.0, clock=clock)
        self.stops.append(limits.stop)
        mechanisms = self.mechanisms()
        return Reconciler(
            NodeObserver(sampler, limits, sysfs=paths.sysfs, procfs=paths.procfs, clock=clock),
            mechanisms if crash_after is None else Crashing(mechanisms, crash_after),
            mode=mode,
            clock=clock,
            counted=lambda action, result: self.counted.append((action, result)),
        )

    def stop(self) -> None:
        """Let the threads of the enforcer end."""
        for stop in self.stops:
            stop()
        self.stops.clear()

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let the node go on: gates that were opened let jobs in, clients connect."""
        self.now += seconds
        self.node.advance(self.now)

    def settle(self, enforcer: Reconciler) -> Report:
        """Reconcile and let the node go on, until nothing more happens."""
        until = time.monotonic() + _PATIENCE
        quiet = 0
        while time.monotonic() < until:
            report = enforcer.reconcile()
            self.pass_time()
            quiet = quiet + 1 if not report.outcomes and self._is_known(report) else 0
            if quiet > 2:
                return report
            time.sleep(0.05)  # for clients to connect, and for the kubelet to tell
        raise AssertionError(report.outcomes)

    def _is_known(self, report: Report) -> bool:
        """Whether the enforcer has heard of the pods as they are: the kubelet tells of changes a moment later."""
        assert report.observation is not None
        heard = {(pod.name, frozenset(pod.annotations.items())) for pod in report.observation.readings.pods}
        if report.observation.seen.records.starts:
            return False
        there = [pod for pod in self.node.scenario.pods if pod.start <= self.now < pod.end]
        return heard == {(pod.name, frozenset(pod.annotations.items())) for pod in there}

    def change(self, pod: str, **fields: object) -> None:
        """Change a pod of the scenario as the API server would show it: same uid, same processes."""
        pods = tuple(replace(each, **fields) if each.name == pod else each for each in self.node.scenario.pods)
        self.node.scenario = replace(self.node.scenario, pods=pods)
        self.pass_time()

    def annotate(self, pod: str, **annotations: str) -> None:
        self.change(pod, annotations=annotations)

    def end(self, pod: str) -> None:
        """The pod is deleted."""
        self.change(pod, end=self.now)

    def pod(self, name: str) -> Pod:
        return next(each for each in self.node.scenario.pods if each.name == name)

    def held(self) -> dict[int, dict]:
        """What the node's daemons hold each client to, by pid: what no exporter can see."""
        found: dict[int, dict] = {}
        for path in self.node.paths.root.glob(f"{self.node.paths.mps_world.name}.clients.*"):
            found |= world.held(self.node.paths.mps_world, int(path.suffix[1:]))
        return found


def states(report: Report) -> dict[str, CapState]:
    """Where caps stand, by pod/container."""
    return {f"{key.pod.name}/{key.container}": state for key, state in report.states.items()}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Scenario], Path]:
    """Builds each driver's library once a session."""
    built: dict[str, Path] = {}

    def of(scenario: Scenario) -> Path:
        if scenario.driver not in built:
            paths = Paths(tmp_path_factory.mktemp("driver"))
            build_library(paths, scenario)
            built[scenario.driver] = paths.library
        return built[scenario.driver]

    return of


@pytest.fixture
def enforced(
    libraries: Callable[[Scenario], Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Enforced]]:
    """Makes a node of a scenario, with its kubelet and control daemons, for enforcers in this process."""
    made: list[Enforced] = []
    root = Path(tempfile.mkdtemp(prefix="e-", dir="/tmp"))
    root.chmod(0o755)
    with Processes() as processes:

        def of(name: str) -> Enforced:
            scenario, paths = load(name), Paths(root)
            loaded = ctypes.CDLL(str(shutil.copy(libraries(scenario) / library.SONAME, root / library.SONAME)))
            monkeypatch.setattr(pynvml, "nvmlLib", loaded)
            monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
            monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
            monkeypatch.setenv(state.ENVIRONMENT, str(paths.driver_state))
            monkeypatch.setenv(registration.ENVIRONMENT, str(paths.procfs))
            monkeypatch.setenv(world.ENVIRONMENT, str(paths.mps_world))
            processes.mps(paths, scenario)
            node = Node(paths, scenario)
            node.advance(0)
            processes.kubelet(paths)
            flags = [flag for flag in exporter_flags(paths, address=":0") if not flag.startswith("--web.")]
            chosen = settings([*flags, "--interval=20s"], {})
            paths.enforcer_state.parent.mkdir(parents=True, exist_ok=True)
            made.append(Enforced(node, processes, chosen))
            until = time.monotonic() + _PATIENCE
            while scenario.mps and not made[-1].held():  # the first client of the ungated pods, and so a server
                assert time.monotonic() < until
                time.sleep(0.02)
            return made[-1]

        yield of
        for each in made:
            each.stop()
    shutil.rmtree(root, ignore_errors=True)
