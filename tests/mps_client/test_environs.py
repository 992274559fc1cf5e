"""What real processes were started with."""

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.model import ClientEnvironment
from exporter.sources.environs import EnvironSource
from tests.mps_client.conftest import wait_until

PROC = Path("/proc")


@contextmanager
def started(environment, *command):
    with subprocess.Popen(
        command or ["/bin/cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.stdin.close()


def of(source, pid):
    reading = source.read([pid])
    assert reading.source == "environ"
    return reading.value.environments[pid]


def settled(source, pid):
    """The answer once the process has been started in full."""
    return wait_until(lambda: None if getattr(found := of(source, pid), "reason", "") is Reason.TRANSIENT else found)


def source(time=lambda: 0.0, root=PROC):
    return EnvironSource(root, clock=Clock(monotonic=time))


def test_the_variables_of_a_client():
    environment = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G,1=4096M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "GPU-é",
        "OTHER": "CUDA_VISIBLE_DEVICES=7",
    }
    with started(environment) as process:
        assert settled(source(), process.pid) == ClientEnvironment("0=4G,1=4096M", "25", "/tmp/nvidia-mps", "", "GPU-é")


def test_no_variables():
    for environment in ({}, {"XCUDA_VISIBLE_DEVICES": "1", "cuda_visible_devices": "2"}):
        with started(environment) as process:
            assert settled(source(), process.pid) == ClientEnvironment()


def test_each_pid_has_its_own_answer():
    with started({"CUDA_VISIBLE_DEVICES": "1"}) as one, started({"CUDA_VISIBLE_DEVICES": "2"}) as two:
        asked = source()
        for process in (one, two):
            settled(asked, process.pid)
        found = asked.read([one.pid, two.pid]).value.environments
        assert {pid: e.cuda_devices for pid, e in found.items()} == {one.pid: "1", two.pid: "2"}


def test_processes_that_have_ended():
    asked = source()
    with started({"CUDA_VISIBLE_DEVICES": "1"}) as process:
        assert settled(asked, process.pid).cuda_devices == "1"
    assert of(asked, process.pid).reason is Reason.EXITED
    zombie = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    assert of(source(), zombie.pid).reason is Reason.EXITED
    zombie.wait()


EXEC = """
import os, sys
sys.stdin.readline()
second = "import sys; print('second', flush=True); sys.stdin.read()"
os.execve(sys.executable, ["x", "-c", second], {"CUDA_VISIBLE_DEVICES": "2"})
"""


def test_what_exec_replaced_is_seen_within_a_minute():
    now = [0.0]
    asked = source(lambda: now[0])
    with started({"CUDA_VISIBLE_DEVICES": "1"}, sys.executable, "-c", EXEC) as process:
        assert settled(asked, process.pid).cuda_devices == "1"
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"second\n"
        now[0] = 59.0
        assert of(asked, process.pid).cuda_devices == "1"
        now[0] = 60.0
        assert of(asked, process.pid).cuda_devices == "2"


OVERWRITE = """
import ctypes, sys
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[47]), int(fields[48])
ctypes.memset(start, %d, end - start)
print("done", flush=True); sys.stdin.read()
"""


@pytest.mark.parametrize("byte", [0, 32])
def test_an_environment_that_was_written_over_is_not_one_without_the_variable(byte):
    with started({"CUDA_VISIBLE_DEVICES": "1"}, sys.executable, "-c", OVERWRITE % byte) as process:
        assert process.stdout.readline() == b"done\n"
        assert of(source(), process.pid).reason is Reason.UNREADABLE


def test_the_first_of_two_counts(tmp_path):
    made_up(tmp_path, b"CUDA_VISIBLE_DEVICES=1\0CUDA_VISIBLE_DEVICES=2\0")
    assert of(source(root=tmp_path), 7).cuda_devices == "1"


def test_large_environments():
    many = {f"SERVICE_{n}_PORT": "tcp://10.0.0.1:443" for n in range(20000)}  # as of a namespace full of services
    for _ in range(20):  # each is looked at while it is being started
        with started({**many, "CUDA_VISIBLE_DEVICES": "1"}) as process:
            assert settled(source(), process.pid).cuda_devices == "1"


def test_what_is_larger_than_what_is_read_is_not_taken_for_unset(tmp_path):
    made_up(tmp_path, b"A=" + b"x" * (2 << 20) + b"\0CUDA_VISIBLE_DEVICES=1\0")
    assert of(source(root=tmp_path), 7).reason is Reason.TOO_LARGE
    made_up(tmp_path, b"CUDA_VISIBLE_DEVICES=" + b"x" * 20000 + b"\0")
    assert of(source(root=tmp_path), 7).reason is Reason.TOO_LARGE


def test_within_exec_an_environment_is_not_empty_but_unknown(tmp_path):
    asked = source(root=tmp_path)
    made_up(tmp_path, b"", code=0)
    assert of(asked, 7).reason is Reason.TRANSIENT
    made_up(tmp_path, b"")
    assert of(asked, 7) == ClientEnvironment()  # and that was not remembered


def made_up(root, environ, *, start=5, state="S", code=9):
    folder = root / "7"
    folder.mkdir(exist_ok=True)
    fields = [state, *["0"] * 18, str(start), *["0"] * 3, str(code), *["0"] * 26]
    (folder / "stat").write_text(f"7 (a) b) {' '.join(fields)}")
    (folder / "environ").write_bytes(environ)


def test_a_pid_that_another_process_got(tmp_path):
    asked = source(root=tmp_path)
    made_up(tmp_path, b"CUDA_VISIBLE_DEVICES=1\0")
    assert of(asked, 7).cuda_devices == "1"
    made_up(tmp_path, b"CUDA_VISIBLE_DEVICES=2\0", start=6)
    assert of(asked, 7).cuda_devices == "2"


def test_a_pid_that_changes_hands_while_it_is_read(tmp_path):
    made_up(tmp_path, b"")
    (tmp_path / "7" / "environ").unlink()
    os.mkfifo(tmp_path / "7" / "environ")  # so that the reader waits between its two looks at stat
    pid = os.fork()
    if pid == 0:
        try:
            with open(tmp_path / "7" / "environ", "wb") as pipe:
                made = (tmp_path / "7" / "stat").read_text().replace(" 5 ", " 6 ")
                (tmp_path / "7" / "stat").write_text(made)
                pipe.write(b"CUDA_VISIBLE_DEVICES=1\0")
        finally:
            os._exit(0)
    assert of(source(root=tmp_path), 7).reason is Reason.PID_REUSED
    os.waitpid(pid, 0)


def test_nothing_is_remembered_of_processes_that_are_not_asked_for():
    asked = source()
    with started({"CUDA_VISIBLE_DEVICES": "1"}) as process:
        of(asked, process.pid)
        asked.read([])
        assert asked._known == {}


def test_a_stat_of_another_form(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("nonsense")
    assert of(source(root=tmp_path), 7).reason is Reason.UNREADABLE


PROBE = """
import os, sys
from pathlib import Path
from exporter.clock import Clock
from exporter.sources.environs import EnvironSource
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(EnvironSource(Path("/proc"), clock=Clock()).read([int(sys.argv[1])]).value.environments[int(sys.argv[1])])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_another_users_environment_needs_a_capability():
    with started({"CUDA_VISIBLE_DEVICES": "1"}) as process:
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(process.pid)],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert done.stdout.startswith("no_permission: ")
    assert "CAP_SYS_PTRACE" in done.stdout
