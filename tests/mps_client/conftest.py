"""Real control daemons of two driver generations, and executables that stand in for what they can't be made to do.

The real ones run without a GPU. They are unpacked below .cache/mps by `python -m tests.mps.fetch`; with
PODGPU_REQUIRE_MPS=1 a missing one is a failure.
"""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.model import Device
from exporter.sources.mps_control import MpsControl

CACHE = Path(__file__).parents[2] / ".cache" / "mps"


def gpus(*names, count=0):
    names = names or ("H100",) * count
    return tuple(Device(i, uuid=f"GPU-{i:08d}-aaaa-bbbb-cccc-000000000000", name=name) for i, name in enumerate(names))


def wait_until(done, *, seconds=10):
    deadline = time.monotonic() + seconds
    while not (found := done()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


@dataclass
class RealDaemon:
    """A real daemon in the foreground, so that it is our own child, in a short path as sockets need it."""

    binary: Path
    root: Path
    process: subprocess.Popen | None = None

    @property
    def pipe(self):
        return str(self.root / "pipe")

    def control(self, **options):
        return MpsControl(str(self.binary), self.pipe, clock=Clock(), **options)

    def start(self, **environment):
        for name in ("pipe", "log"):
            (self.root / name).mkdir(exist_ok=True)
        for name in ("control", "control_privileged"):
            (self.root / "pipe" / name).unlink(missing_ok=True)
        with (self.root / "out").open("w") as out:
            self.process = subprocess.Popen(
                [self.binary, "-f"],
                env={
                    **os.environ,
                    "CUDA_MPS_PIPE_DIRECTORY": self.pipe,
                    "CUDA_MPS_LOG_DIRECTORY": str(self.root / "log"),
                    **environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: "connect CUDA applications" in (self.root / "out").read_text())
        return self

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def short_tmp():
    """A folder with a short path: sockets take 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(params=["535", "550"])
def idle(request, short_tmp):
    """A real daemon that has not been started."""
    binary = CACHE / request.param / "usr" / "bin" / "nvidia-cuda-mps-control"
    if not binary.exists():
        reason = f"no real control daemon {request.param}: python -m tests.mps.fetch"
        if os.environ.get("PODGPU_REQUIRE_MPS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    daemon = RealDaemon(binary, short_tmp)
    yield daemon
    daemon.stop()


@pytest.fixture
def real(idle):
    """A real daemon, running."""
    return idle.start()


@pytest.fixture
def script(short_tmp):
    """Makes an executable of a shell's text, to stand in for the control command."""

    def make(body, name="nvidia-cuda-mps-control"):
        path = short_tmp / name
        new = short_tmp / f"{name}.new"
        new.write_text(f"#!/bin/sh\n{body}\n")
        new.chmod(0o755)
        new.rename(path)
        return str(path)

    return make
