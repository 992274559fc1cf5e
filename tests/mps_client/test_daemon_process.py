"""Which process a daemon is: nothing that a pod writes into the pipe directory is believed."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.sources.mps_process import DaemonEnvironment, ProcessFinder, server_uid

PROC = Path("/proc")
PID_FILE = "nvidia-cuda-mps-control.pid"
# A process with the name and the command line of another program, as any pod may start one.
PRETEND = """
import os, sys
with open("/proc/self/comm", "w") as comm: comm.write("nvidia-cuda-mps")
print("ready", flush=True); sys.stdin.read()
"""


@contextmanager
def pretender(*, name="nvidia-cuda-mps-control", **environment):
    with subprocess.Popen(
        [name, "-c", PRETEND],
        executable=sys.executable,
        env={"PATH": "/bin", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.stdin.close()


@pytest.fixture
def pipe(short_tmp):
    (short_tmp / "pipe").mkdir()
    (short_tmp / "pipe" / "control").touch()
    return short_tmp / "pipe"


def finder(pipe, time=None):
    return ProcessFinder(PROC, str(pipe), clock=Clock(monotonic=time or (lambda: 0.0)))


def test_the_daemon_of_the_pid_file(pipe):
    with pretender(CUDA_MPS_PIPE_DIRECTORY=str(pipe), CUDA_VISIBLE_DEVICES="0", CUDA_DEVICE_ORDER="PCI_BUS_ID") as one:
        (pipe / PID_FILE).write_text(str(one.pid))
        found = finder(pipe).find()
        assert found.pid == one.pid
        assert found.started == int(Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()[19])
        assert found.environment == DaemonEnvironment(str(pipe), visible="0", order="PCI_BUS_ID")
    assert finder(pipe).find() is None


@pytest.mark.parametrize("text", ["", "1", "x", "-1", "99999999999999999999", "7" * 100, "self"])
def test_a_pid_file_of_no_use(pipe, text):
    (pipe / PID_FILE).write_text(text)
    assert finder(pipe).find() is None


def test_a_pid_file_that_names_an_innocent_process_or_is_none(pipe):
    (pipe / PID_FILE).write_text(str(os.getpid()))
    assert finder(pipe).find() is None
    (pipe / PID_FILE).unlink()
    (pipe / PID_FILE).symlink_to("/proc/self/stat")
    assert finder(pipe).find() is None
    (pipe / PID_FILE).unlink()
    os.mkfifo(pipe / PID_FILE)
    assert finder(pipe).find() is None


def test_the_daemon_of_another_directory(pipe, short_tmp):
    (short_tmp / "other").mkdir()
    with pretender(CUDA_MPS_PIPE_DIRECTORY=str(short_tmp / "other")) as other:
        (pipe / PID_FILE).write_text(str(other.pid))
        assert finder(pipe).find() is None
        with pretender(CUDA_MPS_PIPE_DIRECTORY=str(pipe)) as ours:
            assert finder(pipe).find().pid == ours.pid


def test_a_daemon_whose_directory_can_not_be_seen_is_believed_of_the_pid_file_only(pipe):
    with pretender(CUDA_MPS_PIPE_DIRECTORY="/nonexistent") as one:
        assert finder(pipe).find() is None
        (pipe / PID_FILE).write_text(str(one.pid))
        assert finder(pipe).find().pid == one.pid


@pytest.mark.parametrize("name", ["nvidia-cuda-mps-server", "nvidia-cuda-mps-control-x", "python3"])
def test_the_kernels_short_name_is_not_enough(pipe, name):
    with pretender(name=name, CUDA_MPS_PIPE_DIRECTORY=str(pipe)) as process:
        (pipe / PID_FILE).write_text(str(process.pid))
        assert finder(pipe).find() is None


def test_the_processes_are_searched_anew_when_a_daemon_started_and_once_a_minute(pipe):
    now = [0.0]
    found = finder(pipe, lambda: now[0])
    assert found.find() is None
    with pretender(CUDA_MPS_PIPE_DIRECTORY=str(pipe)) as one:
        assert found.find() is None
        now[0] = 61.0
        assert found.find().pid == one.pid
        now[0] = 62.0
        assert found.find().pid == one.pid  # without another search
    with pretender(CUDA_MPS_PIPE_DIRECTORY=str(pipe)) as two:
        assert found.find() is None
        (pipe / "control").unlink()
        (pipe / "control").touch()
        assert found.find().pid == two.pid


def test_a_servers_user():
    with pretender(name="/usr/bin/nvidia-cuda-mps-server") as server:
        assert server_uid(PROC, server.pid) == os.getuid()
    assert server_uid(PROC, os.getpid()) is None
    assert server_uid(PROC, server.pid) is None
    with pretender() as daemon:
        assert server_uid(PROC, daemon.pid) is None
