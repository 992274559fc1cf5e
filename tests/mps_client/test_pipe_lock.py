"""One at a time, among threads and among programs, and nobody else decides for how long."""

import fcntl
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.sources.mps_lock import alone, lock_file

CLOCK = Clock()


def soon(seconds=10.0):
    return time.monotonic() + seconds


@pytest.fixture
def pipe(short_tmp):
    (short_tmp / "pipe").mkdir()
    return str(short_tmp / "pipe")


def lock_of(pipe):
    return Path(lock_file(os.path.realpath(pipe)))


def test_the_file_is_beside_the_directory_and_nobody_elses(pipe):
    with alone(pipe, until=soon(), clock=CLOCK) as held:
        assert held
    path = Path(pipe).parent / ".pipe.podgpu.lock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(pipe) == []


def test_threads_wait_for_each_other_by_whatever_name(pipe, short_tmp):
    (short_tmp / "link").symlink_to(pipe)
    inside, most = 0, []

    def use(path):
        nonlocal inside
        for _ in range(20):
            with alone(path, until=soon(60), clock=CLOCK) as held:
                assert held
                inside += 1
                most.append(inside)
                inside -= 1

    threads = [threading.Thread(target=use, args=(path,)) for path in (pipe, str(short_tmp / "link")) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1
    assert len(most) == 160


def test_a_thread_does_not_wait_longer_than_until(pipe):
    with alone(pipe, until=soon(), clock=CLOCK) as first, alone(pipe, until=soon(0.05), clock=CLOCK) as second:
        assert first
        assert not second
    with alone(pipe, until=soon(), clock=CLOCK) as held:
        assert held


def test_another_program_holds_it(pipe):
    with alone(pipe, until=soon(), clock=CLOCK):
        pass
    with lock_of(pipe).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with alone(pipe, until=soon(0.05), clock=CLOCK) as held:
            assert not held
    with alone(pipe, until=soon(), clock=CLOCK) as held:
        assert held


def test_where_no_file_can_be_made_the_process_keeps_the_order():
    with alone("/proc/nonexistent/pipe", until=soon(), clock=CLOCK) as held:
        assert held
        with alone("/proc/nonexistent/pipe", until=soon(0.05), clock=CLOCK) as second:
            assert not second


def test_links_and_other_things_in_its_place_are_left_alone(pipe, short_tmp):
    target = short_tmp / "target"
    path = lock_of(pipe)
    path.symlink_to(target)
    with alone(pipe, until=soon(), clock=CLOCK) as held:
        assert held
    assert not target.exists()
    path.unlink()
    os.mkfifo(path)
    with alone(pipe, until=soon(), clock=CLOCK) as held:
        assert held


HOLDER = """
import fcntl, os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
file = open(sys.argv[1], "w"); fcntl.flock(file, fcntl.LOCK_EX); print("held", flush=True); sys.stdin.read()
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_somebody_elses_file_is_not_ours_to_wait_for(pipe, short_tmp):
    short_tmp.chmod(0o1777)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock_of(pipe))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with alone(pipe, until=soon(0.5), clock=CLOCK) as held:
            assert held
        holder.stdin.close()
