"""What mechanisms act on: the simulated driver and its control groups, simulated control daemons, folders of ours."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from enforcer.mechanisms.apply import Mechanisms, Places
from enforcer.model import PodId
from exporter.clock import Clock
from exporter.sources.library_use import LibraryUse
from simulator.mps import registration
from simulator.mps import world as worlds
from simulator.mps.world import Fault, Gpu, World, WouldBe
from simulator.mps_control import install
from simulator.procfs import Process, Procfs
from tests.memory_limits.conftest import builds, machine_of  # noqa: F401 - fixtures

MIB, GIB = 1 << 20, 1 << 30
BOOT = "11111111-2222-3333-4444-555555555555"
UID = "0a1b2c3d-0000-4000-8000-000000000001"
POD = PodId("team", "train", UID)
SERVERS = (9001, 9002, 9003)
GPUS = tuple(
    Gpu(n, uuid=f"GPU-{n:08d}-aaaa-bbbb-cccc-000000000000", pci=f"0000000{n}:00:00.0", name="H100", memory=80 * GIB)
    for n in range(2)
)


class Time:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = Clock(lambda: self.now, lambda: 1.8e9 + self.now, lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_until(done: Callable[[], object], *, seconds: float = 10.0) -> object:
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    path = Path(tempfile.mkdtemp(prefix="mech-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def mechanisms_of(short_tmp: Path) -> Iterator[Callable[..., Mechanisms]]:
    """Makes mechanisms with records in `short_tmp`; those that are made anew find what earlier ones recorded."""
    made: list[Mechanisms] = []

    def make(*, sysfs: Path = Path("/nowhere"), binary: str = "none", deadline: float = 10.0, **changed) -> Mechanisms:
        places = Places(
            state=str(short_tmp / "state"),
            receipts=str(short_tmp / "receipts"),
            sysfs=sysfs,
            procfs=short_tmp / "proc",
            mps_control=binary,
            boot=changed.pop("boot", BOOT),
        )
        options = {"driver_deadline": deadline, "clock": Clock(), "use": LibraryUse(), **changed}
        made.append(Mechanisms(places, **options))
        return made[-1]

    yield make
    for each in made:
        each.stop()


class MpsNode:
    """A simulated node with a control command; a daemon is started by a test, or by what it tests."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.pipe = root / "mps"
        self.world = World("550.163.01", gpus=GPUS, server_pids=SERVERS)
        self.binary = str(install(root / "bin"))
        self.procfs = Procfs(root / "proc")
        for pid in SERVERS:
            name = "nvidia-cuda-mps-server"
            self.procfs.put(Process(pid, 100, name, (name,), "0::/\n", uid=0))
        monkeypatch.setenv(worlds.ENVIRONMENT, str(root / "world"))
        monkeypatch.setenv(registration.ENVIRONMENT, str(self.procfs.root))
        self.set()

    def set(self, **changes: object) -> None:
        self.world = replace(self.world, **changes)
        worlds.write(self.root / "world", self.world)

    def start(self, *options: str, pipe: Path | None = None) -> None:
        pipe = pipe or self.pipe
        for folder in (pipe, self.root / "log"):
            folder.mkdir(exist_ok=True)
        subprocess.run(
            [self.binary, *options, "-d"],
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.root / "log")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=20,
        )
        pipe.chmod(0o755)  # the simulated daemon's umask is 0

    def say(self, *arguments: str, text: str = "", pipe: Path | None = None) -> str:
        """What the command itself prints."""
        done = subprocess.run(
            [self.binary, *arguments],
            input=text,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe or self.pipe)},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout + done.stderr

    def connect(self, *pids: int, pipe: Path | None = None, gpu: int = 0) -> None:
        path = str(pipe or self.pipe)
        self.set(
            clients=tuple(WouldBe(pid, uid=0, command="train", pipe_directory=path, devices=(gpu,)) for pid in pids)
        )

    def fault(self, **what: object) -> None:
        self.set(faults=(Fault(**what),) if what else ())

    def held(self, pid: int) -> dict[str, object] | None:
        """What a client is held to by whichever daemon it is connected to."""
        for daemon in self.daemons():
            if (found := worlds.held(self.root / "world", daemon).get(pid)) is not None:
                return dict(found)
        return None

    def daemons(self) -> list[int]:
        """The shown pids of the daemons that live."""
        registration.dead(self.procfs.root)
        return sorted(int(folder.name) for folder in self.procfs.root.iterdir() if registration.is_daemon(folder))

    def kill(self) -> None:
        """End every daemon as nobody should."""
        for shown in self.daemons():
            os.kill(registration.real_pid(self.procfs.root / str(shown)), signal.SIGKILL)
        wait_until(lambda: not self.daemons())


@pytest.fixture
def node(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MpsNode]:
    found = MpsNode(short_tmp, monkeypatch)
    yield found
    found.kill()


@pytest.fixture
def script(short_tmp: Path) -> Callable[[str], str]:
    """Makes a control command of a shell's text."""

    def make(body: str) -> str:
        path = short_tmp / "played"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make
