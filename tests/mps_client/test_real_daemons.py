"""The client against the real control daemon of two driver generations."""

import multiprocessing
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import PinnedLimit, ServerStatus
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps import MpsSource
from exporter.sources.mps_control import MpsControl
from exporter.sources.mps_process import ProcessFinder
from exporter.sources.mps_protocol import ProtocolThree, protocol
from tests.mps_client.conftest import gpus, wait_until

MIB = 1024**2


def raw(daemon, text):
    """What the command itself says, without our client."""
    done = subprocess.run(
        [daemon.binary],
        input=text,
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": daemon.pipe},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done.stdout


def source(daemon, *patterns, deadline=5.0):
    return MpsSource(
        patterns or (daemon.pipe,), binary=str(daemon.binary), procfs=Path("/proc"), deadline=deadline, clock=Clock()
    )


def only(reading):
    (daemon,) = reading.value.daemons.values()
    return daemon


def test_no_daemon_before_after_and_behind_stale_files(idle):
    question = mps_commands.server_list()
    assert idle.control().ask(question).reason is Reason.DAEMON_NOT_RUNNING
    idle.start()
    assert idle.control().ask(question) == ""
    idle.stop()
    assert (idle.root / "pipe" / "control").exists()
    assert idle.control().ask(question).reason is Reason.DAEMON_NOT_RUNNING


def test_shares(real):
    control = real.control()
    assert control.ask(mps_commands.default_percentage()) == "100.0"
    assert control.ask(mps_commands.set_default_percentage(33.3)) == "33.3"
    assert mps_text.ratio(control.ask(mps_commands.default_percentage())) == 0.333


def test_what_was_set_lies_within_what_is_read_back(real):
    control = real.control()
    for mebibytes in (1, 512, 1023, 1024, 1025, 4606, 81920, mps_commands.LARGEST_MEBIBYTES):
        assert control.ask(mps_commands.set_default_limit(1, mebibytes)) == ""
        limit = mps_text.pinned(control.ask(mps_commands.default_limit(1)))
        assert limit.shown <= mebibytes * MIB < limit.below
        assert (limit.shown == mebibytes * MIB) or mebibytes > 1024
    assert control.ask(mps_commands.default_limit(0)) == ""
    assert control.ask(mps_commands.default_limit(31)) == ""


@pytest.mark.parametrize(
    ("dangerous", "limit"),
    [
        ("0 512MB", PinnedLimit(512 * MIB, below=513 * MIB)),
        ("0 10g", PinnedLimit(10240 * MIB, below=11264 * MIB)),
        ("0 1024K", PinnedLimit(1024 * MIB, below=2048 * MIB)),
        ("0 1073741824", Reason.MALFORMED),
        ("0 1.5G", PinnedLimit(MIB, below=2 * MIB)),
        ("0 -1M", Reason.MALFORMED),
        ("0 0M", None),
        ("0 0G", None),
        ("0", None),
        ("0=2G", None),
        ("GPU-0a1b2c3d 3G", None),
    ],
)
def test_what_others_may_have_set_is_read_as_it_is(real, dangerous, limit):
    raw(real, "set_default_device_pinned_mem_limit 0 7G\n")
    raw(real, f"set_default_device_pinned_mem_limit {dangerous}\n")
    found = mps_text.pinned(real.control().ask(mps_commands.default_limit(0)))
    assert found.reason is limit if isinstance(limit, Reason) else found == limit


def test_refusals(real):
    control = real.control()
    assert control.ask(mps_commands.client_list(77)).reason is Reason.NOT_FOUND
    assert control.ask(mps_commands.limit(77, 0)).reason is Reason.NOT_FOUND
    assert control.ask(mps_commands.percentage(77)).reason is Reason.NOT_FOUND
    assert control.ask(mps_commands.terminate_client(77, 78)).reason is Reason.NOT_FOUND
    assert control.ask(mps_commands.server_status(77)).reason in (Reason.NOT_FOUND, Reason.UNKNOWN_COMMAND)


def test_it_is_protocol_2(real):
    three = ProtocolThree(str(real.binary), clock=Clock())
    assert three.known(until=time.monotonic() + 10) is False
    assert protocol(real.control(), three, until=time.monotonic() + 10) == 2
    # A command that claims to know protocol 3 changes nothing in what the daemon is.
    assert real.control().ask(mps_commands.servers()).reason is Reason.COMMAND_LOST


def ask_often(binary, pipe, ordinal, amount, times, results):
    control = MpsControl(binary, pipe, deadline=60.0, clock=Clock())
    for _ in range(times):
        control.ask(mps_commands.set_default_limit(ordinal, amount))
        results.append(control.ask(mps_commands.default_limit(ordinal)))


def test_eight_threads_at_once_lose_nothing(real):
    results = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=ask_often, args=(str(real.binary), real.pipe, n, 100 + n, 10, results[n]))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[f"{100 + n}M"] * 10 for n in range(8)]


def process(binary, pipe, number, queue):
    results = []
    ask_often(binary, pipe, number, 100 + number, 10, results)
    queue.put((number, results))


def test_eight_processes_at_once_lose_nothing(real):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=process, args=(str(real.binary), real.pipe, n, queue)) for n in range(8)]
    for one in processes:
        one.start()
    found = dict(queue.get(timeout=100) for _ in processes)
    for one in processes:
        one.join()
    assert found == {n: [f"{100 + n}M"] * 10 for n in range(8)}


def test_without_our_lock_commands_are_lost_and_seen_to_be(real):
    """Callers who do not know of the lock take our commands along. None of that passes for an unset limit."""
    raw(real, "set_default_device_pinned_mem_limit 0 512M\n")
    stop = threading.Event()

    def disturb():
        while not stop.is_set():
            raw(real, "get_default_device_pinned_mem_limit 0\n")

    threads = [threading.Thread(target=disturb) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        answers = [real.control(deadline=20.0).ask(mps_commands.default_limit(0)) for _ in range(40)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert "512M" in answers
    for answer in answers:
        assert answer == "512M" or answer.reason is Reason.COMMAND_LOST


def test_a_stopped_daemon_is_wedged_and_recovers(real):
    os.kill(real.process.pid, signal.SIGSTOP)
    try:
        assert real.control(deadline=0.8).ask(mps_commands.default_percentage()).reason is Reason.DAEMON_WEDGED
    finally:
        os.kill(real.process.pid, signal.SIGCONT)
    wait_until(lambda: real.control().ask(mps_commands.default_percentage()) == "100.0")


def test_an_idle_connection_wedges_it_until_it_ends(real):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as idle:
        idle.connect(os.path.join(real.pipe, "control"))
        assert real.control(deadline=0.8).ask(mps_commands.default_percentage()).reason is Reason.DAEMON_WEDGED
    wait_until(lambda: real.control().ask(mps_commands.default_percentage()) == "100.0")


def test_its_process_is_found_with_and_without_a_pid_file(real):
    finder = ProcessFinder(Path("/proc"), real.pipe, clock=Clock())
    found = finder.find()
    assert found.pid == real.process.pid
    assert found.environment.log_directory == str(real.root / "log")
    (real.root / "pipe" / "nvidia-cuda-mps-control.pid").write_text("1")  # as any pod may
    assert finder.find() == found
    assert ProcessFinder(Path("/proc"), real.pipe, clock=Clock()).find() == found
    assert ProcessFinder(Path("/proc"), str(real.root), clock=Clock()).find() is None


def test_a_reading(real):
    reader = source(real)
    daemon = only(reader.read(gpus("H100", "H100")))
    assert (daemon.protocol, daemon.servers, daemon.ratio, daemon.errors) == (2, (), 1.0, ())
    assert daemon.pinned == {0: None, 1: None}
    assert daemon.pid == real.process.pid
    assert daemon.started > 0
    reader.stop()


def test_a_restart_is_another_daemon_and_has_lost_all_limits(real):
    reader = source(real)
    real.control().ask(mps_commands.set_default_limit(0, 512))
    real.control().ask(mps_commands.set_default_percentage(25))
    before = only(reader.read(gpus("H100")))
    assert (before.ratio, before.pinned[0].shown) == (0.25, 512 * MIB)
    real.stop()
    assert only(reader.read(gpus("H100"))).reason is Reason.DAEMON_NOT_RUNNING
    real.start()
    after = only(reader.read(gpus("H100")))
    assert (after.ratio, after.pinned[0]) == (1.0, None)
    assert (after.pid, after.started) != (before.pid, before.started)
    reader.stop()


def test_devices_are_those_that_the_daemon_sees(idle):
    idle.start(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    reader = source(idle)
    assert set(only(reader.read(gpus("A100", "H100", "H200"))).pinned) == {0}
    reader.stop()


STUCK = "exec sleep 1000"


def test_a_server_that_does_not_respond_has_no_clients_and_limits_to_tell(idle, script):
    """Its daemon answers every question for it with nothing, as it does for a limit that is not set."""
    script(STUCK, name="nvidia-cuda-mps-server")
    idle.start(PATH=f"{idle.root}:{os.environ['PATH']}")
    idle.control().ask(mps_commands.start_server(os.getuid()))
    wait_until(lambda: idle.control().ask(mps_commands.server_list()))
    assert raw(idle, "get_server_list\n").strip()
    reader = source(idle)
    daemon = only(reader.read(gpus("H100")))
    (server,) = daemon.servers
    try:
        assert raw(idle, f"get_device_pinned_mem_limit {server.pid} 0\n") == ""
        assert server.status in (ServerStatus.INITIALIZING, ServerStatus.UNKNOWN)
        for value in (server.clients, server.ratio, server.pinned):
            assert isinstance(value, Failure)
            assert value.reason is Reason.BUSY
        assert daemon.ratio == 1.0
        set_limit = idle.control().ask(mps_commands.set_limit(server.pid, 0, 512))
        assert set_limit.reason is Reason.BUSY
    finally:
        os.kill(server.pid, signal.SIGKILL)
    reader.stop()


def test_a_server_that_ends_at_once_is_not_there(real):
    """Without a GPU the real server exits with status 1, and its daemon goes on."""
    reader = source(real)
    real.control().ask(mps_commands.start_server(os.getuid()))

    def gone():
        daemon = only(reader.read(gpus("H100")))
        assert not isinstance(daemon, Failure)
        return daemon.servers == ()

    wait_until(gone)
    reader.stop()


def test_a_wedged_daemon_costs_its_own_entry_only(idle, short_tmp):
    daemons = []
    try:
        for name in "abc":
            (short_tmp / name).mkdir()
            daemons.append(type(idle)(idle.binary, short_tmp / name).start())
        reader = source(idle, f"{short_tmp}/*/pipe", deadline=1.5)
        assert {type(d).__name__ for d in reader.read(gpus("H100")).value.daemons.values()} == {"MpsDaemon"}
        os.kill(daemons[1].process.pid, signal.SIGSTOP)
        for _ in range(2):
            begun = time.monotonic()
            found = reader.read(gpus("H100")).value.daemons
            assert time.monotonic() - begun < 10
            assert found[daemons[1].pipe].reason is Reason.DAEMON_WEDGED
            assert found[daemons[0].pipe].ratio == found[daemons[2].pipe].ratio == 1.0
        os.kill(daemons[1].process.pid, signal.SIGCONT)
        wait_until(lambda: not isinstance(reader.read(gpus("H100")).value.daemons[daemons[1].pipe], Failure))
        reader.stop()
    finally:
        for daemon in daemons:
            daemon.stop()
