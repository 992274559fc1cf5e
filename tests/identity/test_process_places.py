"""Processes of a made-up procfs: places, reuse of pids, endings, and what may not be read."""

import errno
import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.clock import Clock
from exporter.errors import Reason
from exporter.model import ContainerRef, Place, ProcessReading
from exporter.sources.procfs import ProcfsSource, read_whole
from simulator.cgroupfs import ContainerCgroup
from simulator.procfs import Process, Procfs

A = ContainerCgroup("4a163a05-439d-484b-8e53-2968bc15824f", "0123456789abcdef" * 4)
B = ContainerCgroup("eab5a334-93fe-48a8-b139-9e8079c1f163", "fedcba9876543210" * 4)
IN_A = Place(container=ContainerRef(A.pod_uid, container_id=A.container_id))
IN_B = Place(container=ContainerRef(B.pod_uid, container_id=B.container_id))
HOST = Place()
JOB = Process(500, 1000, "python3", ("python3", "train.py"), A.text)
TICKS = os.sysconf("SC_CLK_TCK")


def unresolved(reason):
    return Place(reason=reason)


def places(source, *pids, **options):
    reading = source.read(pids, **options)
    assert isinstance(reading.outcome, ProcessReading)
    return reading.outcome.places


class Reader:
    """Reads files as the product does, keeps count, and lets something happen before or instead of a read."""

    def __init__(self):
        self.paths = []
        self.before = {}  # end of a path -> what happens before each of its reads, in turn

    def __call__(self, path):
        name = os.fsdecode(path)
        self.paths.append(name)
        for end, events in self.before.items():
            if name.endswith(end) and events and (event := events.pop(0)) is not None:
                event()
        return read_whole(path)

    def names(self):
        return [path.rsplit("/", 1)[1] for path in self.paths if "/self/" not in path]


def fail(number):
    def event():
        raise OSError(number, os.strerror(number))

    return event


@pytest.fixture
def procfs(tmp_path):
    return Procfs(tmp_path / "proc")


@pytest.fixture
def reader():
    return Reader()


@pytest.fixture
def source(procfs, reader):
    return ProcfsSource(procfs.root, read_file=reader)


def test_reading_says_its_source_and_its_time(procfs):
    instants = iter([10.0, 10.25])
    reading = ProcfsSource(procfs.root, clock=Clock(monotonic=lambda: next(instants))).read([1])
    assert (reading.source, reading.seconds) == ("procfs", 0.25)


def test_each_process_has_its_own_place(procfs, source):
    procfs.put(JOB)
    procfs.put(replace(JOB, pid=501, cgroup_text=B.text_v1))
    procfs.put(replace(JOB, pid=502, cgroup_text="0::/system.slice/ssh.service\n"))
    expected = {500: IN_A, 501: IN_B, 502: HOST, 1: HOST, 2: HOST}
    assert places(source, 500, 501, 502, 1, 2) == expected
    assert places(source, 502, 2, 501, 1, 500) == expected


def test_n28_pid_that_does_not_exist(procfs, source):
    procfs.put(JOB)
    assert places(source, 777, 500, 0, -1) == {
        777: unresolved(Reason.EXITED),
        500: IN_A,
        0: unresolved(Reason.EXITED),
        -1: unresolved(Reason.EXITED),
    }


def test_n33_unknown_pod_is_a_place_all_the_same(procfs, source):
    procfs.put(replace(JOB, cgroup_text=f"0::{A.pod_path}\n"))
    assert places(source, 500)[500] == Place(container=ContainerRef(A.pod_uid))


def test_process_that_moves_is_found_where_it_is(procfs, source):
    procfs.put(replace(JOB, cgroup_text="0::/system.slice/containerd.service\n"))
    assert places(source, 500)[500] == HOST
    procfs.put(JOB)
    assert places(source, 500)[500] == IN_A


def test_known_process_costs_one_read_of_cgroup_and_stat(procfs, source, reader):
    procfs.put(JOB)
    places(source, 500)
    assert reader.names() == ["stat", "cgroup", "stat"]
    reader.paths.clear()
    places(source, 500)
    assert reader.names() == ["cgroup", "stat"]


def test_process_that_was_not_listed_for_a_cycle_is_forgotten(procfs, source, reader):
    procfs.put(JOB)
    places(source, 500)
    places(source)
    reader.paths.clear()
    places(source, 500)
    assert reader.names() == ["stat", "cgroup", "stat"]


@pytest.mark.parametrize("comm", ["a) 5 (b", "x\ny) Z 1 (", ")", "", "(((", ") Z 1 2 3 4 5 6"])
def test_name_cannot_forge_the_fields_behind_it(procfs, source, comm):
    procfs.put(replace(JOB, comm=comm))
    assert places(source, 500)[500] == IN_A
    procfs.put(replace(JOB, comm=comm, start_time=2000, cgroup_text=B.text))
    assert places(source, 500)[500] == IN_B


def test_broken_stat_costs_its_own_process_only(procfs, source):
    procfs.put(JOB)
    procfs.put(replace(JOB, pid=501))
    for content in (b"", b"501", b"501 (python3", b"501 (python3) S 1", b"501 (x) S " + b"x " * 40):
        (procfs.root / "501" / "stat").write_bytes(content)
        assert places(source, 500, 501) == {500: IN_A, 501: unresolved(Reason.UNREADABLE)}


# Pids are given away again.


def test_k51_pid_goes_to_another_pod(procfs, source):
    procfs.put(JOB)
    assert places(source, 500)[500] == IN_A
    procfs.put(replace(JOB, start_time=2000, cgroup_text=B.text))
    assert places(source, 500)[500] == IN_B


def test_b98_pid_of_a_dead_process_takes_nothing_over(procfs, source):
    procfs.put(JOB)
    assert places(source, 500)[500] == IN_A
    procfs.remove(500)
    assert places(source, 500)[500] == unresolved(Reason.EXITED)


@pytest.mark.parametrize("known", [False, True])
def test_n31_reuse_between_the_reads_is_seen_and_read_again(procfs, source, reader, known):
    procfs.put(JOB)
    if known:
        places(source, 500)
    successor = replace(JOB, start_time=2000, cgroup_text=B.text)
    # cgroup of the first process, then stat of its successor
    reader.before["500/stat"] = [lambda: procfs.put(successor)] if known else [None, lambda: procfs.put(successor)]
    assert places(source, 500)[500] == IN_B


def test_n31_cgroup_of_a_successor_is_never_given_to_the_first(procfs, source, reader):
    procfs.put(JOB)
    reader.before["500/cgroup"] = [lambda: procfs.put(replace(JOB, start_time=2000, cgroup_text=B.text))]
    assert places(source, 500)[500] == IN_B


@pytest.mark.parametrize("known", [False, True])
def test_n31_pid_that_keeps_changing_hands_is_unresolved(procfs, source, reader, known):
    procfs.put(JOB)
    if known:
        places(source, 500)
    starts = iter(range(2000, 3000))
    reader.before["500/cgroup"] = [lambda: procfs.put(replace(JOB, start_time=next(starts)))] * 9
    assert places(source, 500)[500] == unresolved(Reason.PID_REUSED)
    assert sum(path.endswith("/500/cgroup") for path in reader.paths) <= 4
    reader.before.clear()
    assert places(source, 500)[500] == IN_A


def test_n31_pid_may_change_hands_once_since_and_once_during_the_reading(procfs, source, reader):
    procfs.put(JOB)
    places(source, 500)
    procfs.put(replace(JOB, start_time=2000))
    reader.before["500/cgroup"] = [None, lambda: procfs.put(replace(JOB, start_time=3000, cgroup_text=B.text))]
    assert places(source, 500)[500] == IN_B


def test_process_that_started_after_the_list_is_not_the_listed_one(procfs, source):
    procfs.put(replace(JOB, start_time=50 * TICKS))
    assert places(source, 500, listed_at=60.0)[500] == IN_A
    assert places(source, 500, listed_at=50.0)[500] == IN_A
    assert places(source, 500, listed_at=49.9)[500] == unresolved(Reason.PID_REUSED)
    assert places(source, 500)[500] == IN_A


# Processes end.


def test_n29_zombie_has_its_place_while_its_cgroup_tells(procfs, source):
    procfs.put(JOB)
    procfs.make_zombie(500)
    assert places(source, 500)[500] == IN_A
    procfs.make_zombie(500, cgroup_text=A.text.replace("\n", " (deleted)\n"))
    assert places(source, 500)[500] == IN_A
    procfs.make_zombie(500, cgroup_text=A.text_v1.replace(A.path, "/"))
    assert places(source, 500)[500] == unresolved(Reason.EXITED)
    procfs.remove(500)
    assert places(source, 500)[500] == unresolved(Reason.EXITED)


def test_dying_process_on_cgroup_v1_is_not_the_hosts(procfs, source):
    procfs.put(replace(JOB, cgroup_text=A.text_v1))
    assert places(source, 500)[500] == IN_A
    # Before it is a zombie, the driver frees its memory: the kernel has set PF_EXITING and every v1 line reads `/`.
    procfs.put(replace(JOB, cgroup_text=A.text_v1.replace(A.path, "/"), state="D", flags=0x400004))
    assert places(source, 500)[500] == unresolved(Reason.EXITED)
    procfs.put(replace(JOB, cgroup_text="5:pids:/\n0::/system.slice/containerd.service\n", flags=0x400004))
    assert places(source, 500)[500] == unresolved(Reason.EXITED)


def test_dying_host_process_on_cgroup_v2_is_still_the_hosts(procfs, source):
    procfs.put(replace(JOB, cgroup_text="0::/system.slice/ssh.service\n", flags=0x400004))
    assert places(source, 500)[500] == HOST


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ESRCH])
@pytest.mark.parametrize("end", ["500/stat", "500/cgroup"])
@pytest.mark.parametrize("known", [False, True])
def test_b98_process_that_goes_away_while_it_is_read(procfs, source, reader, number, end, known):
    procfs.put(JOB)
    if known:
        places(source, 500)
    reader.before[end] = [fail(number)]
    assert places(source, 1, 500) == {1: HOST, 500: unresolved(Reason.EXITED)}


# What may not be read.


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO])
def test_b54_unreadable_cgroup(procfs, source, reader, number):
    procfs.put(JOB)
    reader.before["500/cgroup"] = [fail(number)] * 2
    assert places(source, 500)[500] == unresolved(Reason.CGROUP_UNREADABLE)
    assert places(source, 500)[500] == IN_A


@pytest.mark.parametrize(("number", "reason"), [(errno.EPERM, "no_permission"), (errno.EIO, "unreadable")])
def test_unreadable_stat(procfs, source, reader, number, reason):
    procfs.put(JOB)
    reader.before["500/stat"] = [fail(number)]
    assert places(source, 1, 500) == {1: HOST, 500: unresolved(Reason(reason))}


def test_c71_empty_cgroup_is_read_once_more(procfs, source, reader):
    procfs.put(replace(JOB, cgroup_text=""))
    assert places(source, 500)[500] == unresolved(Reason.CGROUP_UNREADABLE)
    reader.before["500/cgroup"] = [None, lambda: procfs.put(JOB)]
    assert places(source, 500)[500] == IN_A


def test_cgroup_beyond_the_cap_is_not_believed(procfs, source):
    procfs.put(replace(JOB, cgroup_text=A.text * 1000))
    assert places(source, 500)[500] == unresolved(Reason.CGROUP_UNREADABLE)


def test_long_cgroup_below_the_cap_is_read_whole(procfs, source):
    procfs.put(replace(JOB, cgroup_text="4:cpu:/\n" * 4000 + A.text))
    assert places(source, 500)[500] == IN_A


# What calls itself an MPS server.

SERVER = Process(600, 1000, "nvidia-cuda-mps-server", ("/usr/bin/nvidia-cuda-mps-server",), A.text)


@pytest.mark.parametrize("word", ["nvidia-cuda-mps-server", "/usr/bin/nvidia-cuda-mps-server"])
def test_mps_server_is_named(procfs, source, word):
    procfs.put(replace(SERVER, argv=(word, "-x")))
    for _ in range(2):
        assert places(source, 600)[600] == replace(IN_A, names_mps_server=True)


@pytest.mark.parametrize(
    "argv",
    [
        ("nvidia-cuda-mps-control", "-d"),
        ("python3", "nvidia-cuda-mps-server"),
        ("nvidia-cuda-mps-server2",),
        ("nvidia-cuda-mps-server/x",),
        ("nvidia-cuda-mps-server -x",),
        (),
    ],
)
def test_control_daemon_and_lookalikes_are_not_the_server(procfs, source, argv):
    procfs.put(replace(SERVER, argv=argv))
    assert places(source, 600)[600] == IN_A


def test_command_line_is_read_of_those_only_that_have_the_name(procfs, source, reader):
    procfs.put(SERVER)
    procfs.put(replace(JOB, argv=("nvidia-cuda-mps-server",)))
    for _ in range(3):
        assert places(source, 500, 600) == {500: IN_A, 600: replace(IN_A, names_mps_server=True)}
    assert reader.names().count("cmdline") == 1


def test_daemon_that_forks_and_becomes_the_server_is_named_at_once(procfs, source, reader):
    procfs.put(replace(SERVER, argv=("nvidia-cuda-mps-control", "-d")))
    assert places(source, 600)[600] == IN_A
    procfs.put(SERVER)
    reader.paths.clear()
    for _ in range(3):
        assert places(source, 600)[600] == replace(IN_A, names_mps_server=True)
    assert reader.names().count("cmdline") == 1


def test_process_that_takes_the_name_is_named_a_cycle_later(procfs, source):
    procfs.put(replace(SERVER, comm="bash", argv=("bash",)))
    assert places(source, 600)[600] == IN_A
    procfs.put(SERVER)
    assert [places(source, 600)[600].names_mps_server for _ in range(3)] == [False, True, True]
    procfs.put(replace(SERVER, comm="bash", argv=("bash",)))
    assert places(source, 600)[600] == IN_A


def test_claim_goes_with_the_process_and_not_with_its_pid(procfs, source):
    procfs.put(SERVER)
    places(source, 600)
    procfs.put(replace(SERVER, start_time=2000, argv=("nvidia-cuda-mps-control",)))
    assert places(source, 600)[600] == IN_A


# Laws.

PROCESSES = st.builds(
    Process,
    st.integers(10, 14),
    start_time=st.integers(1, 3),
    comm=st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.just("nvidia-cuda-mps-server"),
    argv=st.just(("nvidia-cuda-mps-server",)) | st.just(("x",)),
    cgroup_text=st.sampled_from([A.text, B.text_v1, "0::/\n", ""]),
    state=st.sampled_from("SRZ"),
)


@given(history=st.lists(st.lists(PROCESSES, unique_by=lambda process: process.pid, max_size=5), max_size=5))
def test_what_was_seen_before_changes_nothing(tmp_path_factory, history):
    """A source that saw every cycle and one that saw only the last agree, so no memory ever shows."""
    procfs = Procfs(tmp_path_factory.mktemp("history") / "proc")
    old = ProcfsSource(procfs.root)
    pids = range(9, 16)
    for processes in history:
        for pid in pids:
            procfs.remove(pid)
        for process in processes:
            procfs.put(process)
        seen = old.read(pids).value
        assert seen is not None
        fresh = ProcfsSource(procfs.root).read(pids).value
        # A process that takes another name is told from its command line a cycle late, and only then.
        assert {pid: place.container for pid, place in seen.places.items()} == {
            pid: place.container for pid, place in fresh.places.items()
        }
        assert {pid: place.reason for pid, place in seen.places.items()} == {
            pid: place.reason for pid, place in fresh.places.items()
        }
