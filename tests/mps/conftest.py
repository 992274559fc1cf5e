"""Control daemons to test on: two real ones, where they can be had, and the simulated ones that stand for them."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from simulator.mps import world
from simulator.mps_control import install
from tests.mps import fetch

REQUIRE = "PODGPU_REQUIRE_MPS"
_PATIENCE = 10.0
_DRIVERS = {"535": "535.261.03", "550": "550.163.01"}

ROOT = Path(__file__).parents[2]
_AS_ANOTHER_USER = """
import os, sys
sys.path.append(sys.argv[1])
from simulator.mps import daemon, frontend
os.setuid(int(sys.argv[2]))
sys.exit(frontend.main(sys.argv[4:]))
"""


@dataclass
class Said:
    """What a call printed, and its exit code; None: it was still waiting when it was stopped."""

    code: int | None
    out: str = ""
    error: str = ""


@dataclass
class Control:
    """One executable, and the folder of the daemon that a test starts with it."""

    executable: Path
    root: Path
    major: int
    real: bool
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def pipe(self) -> Path:
        return self.root / "p"

    @property
    def log(self) -> Path:
        return self.root / "l"

    @property
    def control_log(self) -> str:
        return (self.log / "control.log").read_text()

    def environ(self, **changed: str) -> Mapping[str, str]:
        places = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        return {"PATH": os.defpath, **self.environment, **places, **changed}

    def call(
        self,
        *arguments: str,
        text: str = "",
        uid: int | None = None,
        timeout: float = _PATIENCE,
        environ: Mapping[str, str] | None = None,
    ) -> Said:
        """Run the executable with `text` on a standard input that ends."""
        try:
            done = subprocess.run(
                self._command(arguments, uid),
                input=text,
                capture_output=True,
                text=True,
                env=self.environ(**(environ or {})),
                user=uid if self.real else None,
                timeout=timeout,
                check=False,
                cwd="/",
            )
        except subprocess.TimeoutExpired:
            return Said(None)
        return Said(done.returncode, done.stdout, done.stderr)

    def _command(self, arguments: Sequence[str], uid: int | None) -> list[str]:
        """The call; as another user with the simulated one's modules loaded before, as that user may not read them."""
        if uid is None or self.real:
            return [str(self.executable), *arguments]
        return [sys.executable, "-ISE", "-c", _AS_ANOTHER_USER, str(ROOT), str(uid), str(self.executable), *arguments]

    def say(self, line: str, **how: object) -> str:
        """What a command answers, if the call went well."""
        said = self.call(text=f"{line}\n", **how)
        assert (said.code, said.error) == (0, ""), said
        return said.out

    def start(self, **environ: str) -> None:
        assert self.call("-d", environ=environ) == Said(0)
        self.eventually(lambda: self.call(text="get_default_client_priority\n").code == 0)

    def pid(self) -> int:
        (pid,) = self.running()
        return pid

    def running(self) -> set[int]:
        """The daemons of this executable in this test's folder, by what the kernel says of them."""
        found = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                words = (folder / "cmdline").read_bytes().split(b"\0")
                environ = (folder / "environ").read_bytes()
            except OSError:
                continue
            mine = os.fsencode(self.executable) in words and b"=" + os.fsencode(self.root) + b"/" in environ
            if mine and state != "Z":
                found.add(int(folder.name))
        return found

    def kill(self) -> None:
        """End the daemon as nobody should."""
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        self.eventually(lambda: pid not in self.running())

    def eventually(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + _PATIENCE
        while not holds():
            assert time.monotonic() < until, self.control_log if self.log.exists() else "nothing was logged"
            time.sleep(0.01)

    def fault(self, **what: object) -> None:
        """Let the simulated daemon go wrong; it has seen it when this returns."""
        path = self.root / "world.json"
        world.write(path, world.World(**{**_fields(world.read(path)), "faults": (world.Fault(**what),)}))


def _fields(found: world.World) -> dict[str, object]:
    return {name: getattr(found, name) for name in ("driver", "gpus", "clients", "server_pids", "faults")}


KINDS = ["real-535", "real-550", "simulated-535", "simulated-550"]


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder whose path leaves room for sockets, and which other users can enter."""
    path = Path(tempfile.mkdtemp(prefix="mps-", dir="/tmp"))
    path.chmod(0o755)
    (path / "p").mkdir()
    (path / "l").mkdir()
    yield path
    shutil.rmtree(path)


@contextmanager
def _simulated(around: world.World) -> Iterator[Control]:
    with _folder() as root:
        path = root / "world.json"
        world.write(path, around)
        control = Control(install(root / "b"), root, around.generation, real=False)
        control.environment = {world.ENVIRONMENT: str(path)}
        yield control
        _end(control)


@contextmanager
def _of_kind(kind: str) -> Iterator[Control]:
    name, _, major = kind.partition("-")
    if name == "simulated":
        with _simulated(world.World(_DRIVERS[major])) as control:
            yield control
        return
    executable = fetch.binary(major)
    if not executable.exists():
        reason = f"there is no {executable}; `make mps-control` fetches it"
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with _folder() as root:
        control = Control(executable, root, int(major), real=True)
        yield control
        _end(control)


def _end(control: Control) -> None:
    for pid in control.running():
        os.kill(pid, signal.SIGKILL)
    control.eventually(lambda: not control.running())


@pytest.fixture
def simulated() -> Iterator[Callable[[world.World], Control]]:
    """Makes a simulated executable in a world."""
    with ExitStack() as stack:
        yield lambda around: stack.enter_context(_simulated(around))


@pytest.fixture(params=KINDS)
def control(request: pytest.FixtureRequest) -> Iterator[Control]:
    """An executable of a generation, real or simulated, without GPU and without a daemon."""
    with _of_kind(request.param) as found:
        yield found


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest) -> Iterator[Control]:
    """A running daemon for tests that leave nothing behind that disturbs another one."""
    with _of_kind(request.param) as found:
        found.start()
        yield found
