"""Real processes of this machine, through the real /proc."""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.errors import Reason
from exporter.model import ProcessReading
from exporter.sources import cgroups
from exporter.sources.procfs import ProcfsSource
from simulator.procfs import Process, Procfs

PROC = Path("/proc")

pytestmark = pytest.mark.skipif(
    ProcfsSource(PROC).namespace_failure() is not None, reason="this machine's /proc is that of a container"
)


@contextmanager
def sleeper():
    """A process that waits for its standard input to end."""
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def wait_until(done):
    deadline = time.monotonic() + 10
    while not done():
        assert time.monotonic() < deadline
        os.sched_yield()


def place(source, pid):
    outcome = source.read([pid]).outcome
    assert isinstance(outcome, ProcessReading)
    return outcome.places[pid]


def test_live_child_is_where_its_cgroup_says():
    source = ProcfsSource(PROC)
    with sleeper() as pid:
        for _ in range(2):
            assert place(source, pid) == cgroups.parse(
                Path(f"/proc/{pid}/cgroup").read_bytes(), private_cgroupns=source.private_cgroup_namespace()
            )
    for _ in range(2):
        assert place(source, pid).reason is Reason.EXITED


def test_start_time_is_that_of_the_kernel():
    """A process started between two instants is too young for the first and old enough for the second."""
    source = ProcfsSource(PROC)
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with sleeper() as pid:
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert source.read([pid], listed_at=before - 0.1).value.places[pid].reason is Reason.PID_REUSED
        assert source.read([pid], listed_at=after).value.places[pid].reason is not Reason.PID_REUSED


def test_zombie_has_the_place_that_its_cgroup_still_tells():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        descriptor = os.pidfd_open(pid)
        try:
            assert select.select([descriptor], [], [], 10)[0]
        finally:
            os.close(descriptor)
        assert b") Z " in Path(f"/proc/{pid}/stat").read_bytes()
        text = Path(f"/proc/{pid}/cgroup").read_text()
        found = place(ProcfsSource(PROC), pid)
        if text.count("\n") > 1:  # v1 or hybrid: the kernel writes `/` for whoever has begun to exit
            assert all(line.endswith(":/") for line in text.splitlines() if not line.startswith("0::"))
            assert found.reason is Reason.EXITED
        else:
            assert found == cgroups.parse(text, private_cgroupns=ProcfsSource(PROC).private_cgroup_namespace())
    finally:
        os.waitpid(pid, 0)


def test_name_with_a_parenthesis():
    program = "import sys; open('/proc/self/comm','w').write(') Z 5 ('); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert b"() Z 5 ()" in Path(f"/proc/{child.pid}/stat").read_bytes()
        assert place(ProcfsSource(PROC), child.pid).reason is not Reason.EXITED
        child.stdin.close()


@pytest.mark.parametrize(("name", "server"), [("nvidia-cuda-mps-server", True), ("nvidia-cuda-mps-control", False)])
def test_mps_server_is_told_from_its_control_daemon(tmp_path, name, server):
    program = tmp_path / name
    program.write_bytes(Path("/bin/cat").read_bytes())
    program.chmod(0o755)
    child = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        # exec closes the pipe that Popen waits for before it sets the name.
        wait_until(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "nvidia-cuda-mps\n")
        assert place(ProcfsSource(PROC), child.pid).names_mps_server is server
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


def test_real_reuse_of_a_pid():
    """Take the number of a dead process for a new one, as the kernel does when numbers run round."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("choosing the next pid needs root")
    source = ProcfsSource(PROC)
    with sleeper() as first:
        identity = place(source, first)
    # The start time has ticks of 10 ms: the successor must not start in the same one.
    born = int(time.clock_gettime(time.CLOCK_BOOTTIME) * 100)
    wait_until(lambda: int(time.clock_gettime(time.CLOCK_BOOTTIME) * 100) > born + 1)
    for _ in range(20):
        try:
            last.write_text(str(first - 1))
        except OSError:
            pytest.skip("this kernel does not let the next pid be chosen")
        with sleeper() as second:
            if second == first:
                listed_at = born / 100
                assert source.read([first], listed_at=listed_at).value.places[first].reason is Reason.PID_REUSED
                assert place(source, first) == identity  # a process of its own, in the same cgroup
                return
    pytest.skip("another process was always faster")


def test_live_child_killed_while_it_is_read():
    """Kill between the read of the cgroup and the second read of stat: the answer is EXITED, not an exception."""
    child = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)

    def read_file(path):
        content = Path(os.fsdecode(path)).read_bytes()
        if path == b"/proc/%d/cgroup" % child.pid:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
        return content

    assert place(ProcfsSource(PROC, read_file=read_file), child.pid).reason is Reason.EXITED
    child.stdin.close()


def test_made_up_procfs_has_the_kernels_format(tmp_path):
    """The simulated stat has as many fields as the real one, and status the line that tells namespaces apart."""
    procfs = Procfs(tmp_path)
    procfs.put(Process(500, 1000, "cat", ("cat",), "0::/\n"))
    with sleeper() as pid:
        real, made = (root / number for root, number in ((PROC, str(pid)), (procfs.root, "500")))
        assert len((made / "stat").read_text().split()) == len((real / "stat").read_text().split())
        assert "\nNSpid:\t500\n" in (made / "status").read_text()
        assert f"\nNSpid:\t{pid}\n" in (real / "status").read_text()
