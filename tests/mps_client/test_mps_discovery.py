"""Which directories count as a daemon's, and that looking for them is bounded."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import Failure, Reason
from exporter.settings import settings
from exporter.sources.mps_discovery import pipe_directories

PID_FILE = "nvidia-cuda-mps-control.pid"


def make(path, *names):
    path.mkdir(parents=True, exist_ok=True)
    for name in names or ("control",):
        if name == "control":
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path / name))
        else:
            (path / name).write_text("7")
    return str(path)


def test_a_directory_counts_by_its_socket_or_its_pid_file(short_tmp):
    paths = [make(short_tmp / "a"), make(short_tmp / "b", PID_FILE)]
    (short_tmp / "c").mkdir()
    (short_tmp / "d").touch()
    assert pipe_directories([f"{short_tmp}/*"]) == dict.fromkeys(paths)
    assert pipe_directories([f"{short_tmp}/c", f"{short_tmp}/d", f"{short_tmp}/e/f"]) == {}


def test_patterns_match_within_one_name(short_tmp):
    one = make(short_tmp / "gpu" / "pipe")
    two = make(short_tmp / "nvidia.com" / "gpu.shared" / "pipe")
    make(short_tmp / ".hidden" / "pipe")
    make(short_tmp / "gpu" / "log" / "x")
    assert pipe_directories([f"{short_tmp}/*/pipe"]) == {one: None}
    assert pipe_directories([f"{short_tmp}/*/*/pipe"]) == {two: None}
    assert pipe_directories([f"{short_tmp}/**/pipe"]) == {one: None}
    assert pipe_directories([f"{short_tmp}/g[op]?/pipe/"]) == {one: None}


def test_one_directory_under_two_names_is_one(short_tmp):
    path = make(short_tmp / "nvidia-mps")
    (short_tmp / "alias").symlink_to(path)
    assert pipe_directories([path, f"{short_tmp}/alias", path]) == {path: None}
    assert pipe_directories([f"{short_tmp}/alias", path]) == {f"{short_tmp}/alias": None}


def test_links_that_lead_nowhere_or_in_a_circle(short_tmp):
    (short_tmp / "loop").symlink_to("loop")
    (short_tmp / "a").symlink_to("b")
    (short_tmp / "b").symlink_to("a")
    (short_tmp / "dangling").symlink_to("/nonexistent")
    (short_tmp / "self").symlink_to(".")
    path = make(short_tmp / "pipe")
    found = pipe_directories(
        [f"{short_tmp}/*", f"{short_tmp}/*/*", f"{short_tmp}/loop/pipe", f"{short_tmp}/{'x' * 300}"]
    )
    assert found == {path: None}


def test_thousands_of_matches_are_not_all_followed(tmp_path):
    for number in range(300):
        make(tmp_path / f"{number:04}", PID_FILE)
    found = pipe_directories([f"{tmp_path}/*"])
    problems = [problem for problem in found.values() if problem is not None]
    assert len(found) == 65
    assert [problem.reason for problem in problems] == [Reason.TOO_LARGE]
    assert "--mps.pipe-directory" in problems[0].detail


PROBE = """
import os, sys
from exporter.sources.mps_discovery import pipe_directories
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path, problem in pipe_directories(sys.argv[1:]).items():
    print(os.path.basename(path), problem and problem.reason)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_what_may_not_be_looked_into_is_not_absent(short_tmp):
    short_tmp.chmod(0o755)
    make(short_tmp / "open")
    make(short_tmp / "closed")
    make(short_tmp / "shut" / "pipe")
    (short_tmp / "closed").chmod(0o700)
    (short_tmp / "shut").chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, f"{short_tmp}/open", f"{short_tmp}/closed", f"{short_tmp}/shut/*"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["open None", "closed no_permission", "shut no_permission"]


def test_the_defaults_are_absolute_and_cheap():
    patterns = settings([], {}).mps_directories
    assert "/run/nvidia/mps/*/*/pipe" in patterns
    assert not any(
        isinstance(problem, Failure) and problem.reason is Reason.TOO_LARGE
        for problem in pipe_directories(patterns).values()
    )
