"""One reading a cycle of every daemon of the node."""

import threading
import time
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import MpsClient, MpsDaemon, MpsNamespace, MpsReading, PinnedLimit, ServerStatus
from exporter.sources.mps import MpsSource
from exporter.sources.mps_two import SETTINGS_AGE
from tests.mps_client.conftest import gpus, wait_until

MIB, GIB = 1024**2, 1024**3

# A daemon of protocol 2, whose answers are files beside its directory.
TWO = """
test -n "$1" && exit 0
state=$CUDA_MPS_PIPE_DIRECTORY/state
test -e $state/hang && exec sleep 1000
test -e $state/gone && { echo Cannot find MPS control daemon process >&2; exit 1; }
echo >> $state/calls
while read -r line; do
    echo "$line" >> $state/told
    case "$line" in
        "get_server_status "*|"get_client_list "*|"get_active_thread_percentage "*|"get_device_pinned_mem_limit "*)
            set -- $line
            test -e $state/busy && test $1 != get_server_status && continue
            grep -qx $2 $state/get_server_list || { echo "Server $2 not found"; continue; } ;;
    esac
    if test -e "$state/$line"; then cat "$state/$line"
    else case "$line" in
        get_default_active_thread_percentage|"get_active_thread_percentage "*) echo 100.0 ;;
        get_server_list|"get_client_list "*|*pinned_mem_limit*) ;;
        *) echo "Unknown command \\"${line%% *}\\"" ;;
    esac; fi
done
"""
THREE = """
state=$CUDA_MPS_PIPE_DIRECTORY/state
case "$*" in *"-h"*) echo "server namespace client device"; exit 0 ;; esac
echo "$*" >> $state/calls
test -n "$3" && cat "$state/$3"
"""


class Pipe:
    """A pipe directory with what its stand-in answers."""

    def __init__(self, path):
        self.path = path
        self.state = path / "state"
        self.state.mkdir(parents=True)
        (path / "control").touch()
        (self.state / "calls").touch()

    def answers(self, **answers):
        for question, answer in answers.items():
            self.answer(question, answer)

    def answer(self, question, answer=""):
        (self.state / question).write_text(answer)

    def calls(self):
        """The number of processes since the last time."""
        lines = (self.state / "calls").read_text().splitlines()
        (self.state / "calls").write_text("")
        return len(lines)


@pytest.fixture
def now():
    return [time.monotonic()]


@pytest.fixture
def make(short_tmp, now):
    sources = []

    def source(binary, *patterns, deadline=20.0):
        clock = Clock(monotonic=lambda: now[0])
        patterns = patterns or (f"{short_tmp}/p*",)
        found = MpsSource(patterns, binary=binary, procfs=Path("/proc"), deadline=deadline, clock=clock)
        sources.append(found)
        return found

    yield source
    for found in sources:
        found.stop()


@pytest.fixture
def two(script, short_tmp):
    return script(TWO), Pipe(short_tmp / "p")


@pytest.fixture
def three(script, short_tmp):
    return script(THREE), Pipe(short_tmp / "p")


def read(source, devices=None):
    reading = source.read(gpus(count=8) if devices is None else devices)
    assert reading.source == "mps"
    assert isinstance(reading.outcome, MpsReading)
    return reading.outcome.daemons


def only(source, devices=None):
    (daemon,) = read(source, devices).values()
    return daemon


# Protocol 2.


def serve(pipe, *clients, server=48201):
    pipe.answer("get_server_list", f"{server}\n")
    pipe.answer(f"get_server_status {server}", "ACTIVE\n")
    pipe.answer(f"get_client_list {server}", "".join(f"{client}\n" for client in clients))


def test_protocol_2(two, make):
    binary, pipe = two
    serve(pipe, 51023, 51024)
    pipe.answer("get_active_thread_percentage 48201", "33.3\n")
    pipe.answer("get_device_pinned_mem_limit 48201 1", "4G\n")
    pipe.answer("get_default_device_pinned_mem_limit 0", "512M\n")
    daemon = only(make(binary), gpus("H100", "H100"))
    assert (daemon.protocol, daemon.pid, daemon.started, daemon.ratio, daemon.errors) == (2, None, None, 1.0, ())
    assert daemon.pinned == {0: PinnedLimit(512 * MIB, below=513 * MIB), 1: None}
    (server,) = daemon.servers
    assert (server.name, server.pid, server.uid, server.status) == ("", 48201, None, ServerStatus.ACTIVE)
    assert server.clients == (MpsClient(51023), MpsClient(51024))
    assert server.ratio == 0.333
    assert server.pinned == {0: None, 1: PinnedLimit(4 * GIB, below=5 * GIB)}
    assert server.devices is None  # nothing is known of the daemon's environment


def test_commands_a_cycle_of_protocol_2_with_8_gpus(two, make, now):
    binary, pipe = two
    serve(pipe, 51023)
    source = make(binary)
    only(source)
    assert pipe.calls() == 1 + 3 + 18  # once to find out the protocol
    for _ in range(3):
        now[0] += 5
        only(source)
        assert pipe.calls() == 3
    now[0] += SETTINGS_AGE
    only(source)
    assert pipe.calls() == 3 + 18


@pytest.mark.parametrize("change", ["client", "server", "no-server"])
def test_shares_and_limits_are_read_again_when_somebody_came_or_went(two, make, change):
    binary, pipe = two
    serve(pipe, 51023)
    source = make(binary)
    assert only(source).servers[0].pinned[0] is None
    pipe.answer("get_device_pinned_mem_limit 48201 0", "1G\n")
    pipe.answer("get_default_device_pinned_mem_limit 0", "2G\n")
    assert only(source).servers[0].pinned[0] is None
    if change == "client":
        serve(pipe, 51023, 51024)
        assert only(source).servers[0].pinned[0].shown == GIB
    elif change == "server":
        serve(pipe, server=48202)
    else:
        pipe.answer("get_server_list", "")
    assert only(source).pinned[0].shown == 2 * GIB


def test_drivers_that_do_not_tell_a_servers_state(two, make):
    binary, pipe = two
    pipe.answer("get_server_list", "48201\n")
    source = make(binary)
    for _ in range(2):
        assert only(source).servers[0].status is ServerStatus.UNKNOWN
    assert (pipe.state / "told").read_text().count("get_server_status") == 1


def test_a_server_that_went_between_two_questions(two, make):
    binary, pipe = two
    serve(pipe)
    pipe.answer("get_server_list", "48201\n48202\n")
    pipe.answer("get_server_status 48202", "Server 48202 not found\n")
    assert [server.pid for server in only(make(binary)).servers] == [48201]


def test_a_busy_server(two, make):
    binary, pipe = two
    serve(pipe, 51023)
    pipe.answer("busy")
    source = make(binary)
    daemon = only(source)
    (server,) = daemon.servers
    assert server.status is ServerStatus.ACTIVE
    assert server.clients.reason is server.ratio.reason is server.pinned.reason is Reason.BUSY
    assert daemon.ratio == 1.0
    (pipe.state / "busy").unlink()
    (server,) = only(source).servers  # what failed is asked for again at once
    assert (server.clients, server.ratio) == ((MpsClient(51023),), 1.0)


def test_one_bad_limit_is_not_that_of_another_device(two, make):
    binary, pipe = two
    serve(pipe)
    pipe.answer("get_device_pinned_mem_limit 48201 0", "1048576G\n")
    source = make(binary)
    daemon = only(source, gpus("H100", "H100"))
    assert daemon.servers[0].pinned == {1: None}
    (problem,) = daemon.errors
    assert problem.reason is Reason.MALFORMED
    assert problem.detail.startswith("device 0")
    pipe.answer("get_device_pinned_mem_limit 48201 0", "1G\n")
    assert only(source, gpus("H100", "H100")).servers[0].pinned[0].shown == GIB  # and not after the time for settings


def test_a_default_share_that_is_none(two, make):
    binary, pipe = two
    pipe.answer("get_server_list", "not pids\n")
    assert only(make(binary)).reason is Reason.MALFORMED


def test_without_gpus_there_are_no_limits_to_ask_for(two, make):
    daemon = only(make(two[0]), ())
    assert daemon.pinned == {}
    assert daemon.ratio == 1.0


# Protocol 3.

SERVERS = "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n"
NAMESPACES = "name,server,server-status,pinned-memory-limit,active-thread-percentage,client-priority,pipe-directory\n"
CLIENTS = "pid,server,device,namespace,cmd\n"


def test_protocol_3(three, make):
    binary, pipe = three
    devices = gpus("H100", "H100", "H200")
    pipe.answers(
        server=f"{SERVERS}shared,0,48201,Ready,/p/shared,{devices[2].uuid},{devices[0].uuid},-\nidle,0,-,Fault,/p/idle,-,-\n",
        namespace=f"{NAMESPACES}default,shared,Ready,10G,50.00,0,/p/shared/default\nsmall,shared,Ready,-,-,0,/p/shared/small\n",
        client=f"{CLIENTS}51023,shared,1,small,python train.py --gpus=0,1\n51024,shared,0,default,nbody\n",
    )
    daemon = only(make(binary), devices)
    assert (daemon.protocol, daemon.ratio, daemon.pinned, daemon.errors) == (3, None, {}, ())
    shared, idle = daemon.servers
    ten = PinnedLimit(10 * GIB, below=11 * GIB)
    assert (shared.name, shared.pid, shared.uid, shared.status) == ("shared", 48201, 0, ServerStatus.ACTIVE)
    assert shared.devices == (devices[2].uuid, devices[0].uuid)
    assert shared.pinned == {0: ten, 1: ten}
    assert shared.ratio == 0.5
    assert shared.namespaces == (
        MpsNamespace("default", ratio=0.5, pinned=ten, pipe_directory="/p/shared/default"),
        MpsNamespace("small", pipe_directory="/p/shared/small"),
    )
    assert shared.clients == (
        MpsClient(51023, device="1", namespace="small"),
        MpsClient(51024, device="0", namespace="default"),
    )
    assert (idle.pid, idle.status, idle.clients, idle.devices) == (None, ServerStatus.FAULT, (), None)


def test_commands_a_cycle_of_protocol_3(three, make, now):
    binary, pipe = three
    pipe.answers(server=f"{SERVERS}a,0,7,Ready,/p/a,-,-\n", namespace=NAMESPACES, client=CLIENTS)
    source = make(binary)
    only(source)
    assert pipe.calls() == 1 + 3
    for _ in range(3):
        now[0] += 60
        only(source)
        assert pipe.calls() == 3


def test_a_list_of_protocol_3_that_is_none_costs_its_own_values(three, make):
    binary, pipe = three
    pipe.answers(server=f"{SERVERS}a,0,7,Ready,/p/a,-,-\n", namespace="what?\n", client="what?\n")
    daemon = only(make(binary))
    (server,) = daemon.servers
    for value in (server.clients, server.ratio, server.pinned):
        assert value.reason is Reason.MALFORMED
    assert [problem.reason for problem in daemon.errors] == [Reason.MALFORMED] * 2


def test_a_command_that_knows_protocol_3_and_a_daemon_that_does_not(script, short_tmp, make):
    binary = script('case "$*" in *"-h"*) echo "server namespace"; exit ;; *list*) exit 0 ;; esac' + TWO)
    pipe = Pipe(short_tmp / "p")
    pipe.answer("get_default_active_thread_percentage", "40.0\n")
    daemon = only(make(binary))
    assert (daemon.protocol, daemon.ratio) == (2, 0.4)


def test_the_help_is_asked_for_once_per_file_and_far_from_any_daemon(script, short_tmp, make):
    log = short_tmp / "help"
    told = f'case "$*" in *"-h"*) test -e "$CUDA_MPS_PIPE_DIRECTORY" || echo >> {log} ;; esac'
    for name in ("p1", "p2"):
        Pipe(short_tmp / name)
    binary = script(told + TWO)
    for _ in range(2):
        source = make(binary)
        assert len(read(source)) == 2
        read(source)
    assert len(log.read_text()) == 2  # by each source once
    script(told + TWO + "\n")  # another file
    source = make(binary)
    read(source)
    assert len(log.read_text()) == 3


# The node.


def test_a_node_without_daemons(make, short_tmp):
    source = make("/nonexistent")
    reading = source.read(gpus(count=8))
    assert reading.value == MpsReading({})
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(f"mps {short_tmp}")]


def test_a_container_without_the_command(make, short_tmp):
    Pipe(short_tmp / "p")
    problem = only(make("/nonexistent/nvidia-cuda-mps-control"))
    assert problem.reason is Reason.MISSING
    assert "NVIDIA_DRIVER_CAPABILITIES" in problem.detail


def test_directories_come_and_go_and_their_threads_with_them(two, make, short_tmp):
    binary, pipe = two
    source = make(binary)
    assert set(read(source)) == {str(pipe.path)}
    other = Pipe(short_tmp / "p2")
    assert set(read(source)) == {str(pipe.path), str(other.path)}
    pipe.path.rename(short_tmp / "away")
    assert set(read(source)) == {str(other.path)}
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == f"mps {pipe.path}"])
    assert [t for t in threading.enumerate() if t.name == f"mps {other.path}"]


def test_a_wedged_daemon_among_healthy_ones(script, short_tmp):
    binary = script(TWO)
    pipes = [Pipe(short_tmp / f"p{n}") for n in range(3)]
    pipes[1].answer("hang")
    source = MpsSource([f"{short_tmp}/p*"], binary=binary, procfs=Path("/proc"), deadline=1.5, clock=Clock())
    for _ in range(2):
        begun = time.monotonic()
        found = read(source)
        assert time.monotonic() - begun < 8
        assert found[str(pipes[1].path)].reason is Reason.DAEMON_WEDGED
        assert isinstance(found[str(pipes[0].path)], MpsDaemon)
        assert isinstance(found[str(pipes[2].path)], MpsDaemon)
    (pipes[1].state / "hang").unlink()
    wait_until(lambda: isinstance(read(source)[str(pipes[1].path)], MpsDaemon))
    source.stop()


def test_a_daemon_that_goes_and_another_that_comes_is_asked_anew(two, make):
    binary, pipe = two
    pipe.answer("get_default_active_thread_percentage", "25.0\n")
    source = make(binary)
    assert only(source).ratio == 0.25
    pipe.answer("gone")
    assert only(source).reason is Reason.DAEMON_NOT_RUNNING
    (pipe.state / "gone").unlink()
    pipe.answer("get_default_active_thread_percentage", "100.0\n")
    assert only(source).ratio == 1.0


def test_another_socket_is_another_daemon(two, make):
    binary, pipe = two
    pipe.answer("get_default_active_thread_percentage", "25.0\n")
    source = make(binary)
    assert only(source).ratio == 0.25
    pipe.answer("get_default_active_thread_percentage", "100.0\n")
    assert only(source).ratio == 0.25  # within the time for settings
    (pipe.path / "control").unlink()
    (pipe.path / "control").touch()
    assert only(source).ratio == 1.0


def test_a_look_into_nothing_is_cheap(make):
    source = make("/nonexistent", "/nonexistent/*/pipe", "/nonexistent/pipe")
    assert not any(isinstance(found, Failure) for found in read(source).values())
    begun = time.thread_time()
    for _ in range(100):
        source.read(())
    assert time.thread_time() - begun < 0.5
