"""The client and the source against the simulated daemon, which has servers and clients, of both protocols."""

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Device, PinnedLimit, ServerStatus
from exporter.sources import mps_commands
from exporter.sources.mps import MpsSource
from exporter.sources.mps_control import MpsControl
from simulator.mps import world as worlds
from simulator.mps.registration import ENVIRONMENT as PROCFS
from simulator.mps.world import Fault, Gpu, World, WouldBe
from simulator.mps_control import install
from simulator.procfs import Process, Procfs
from tests.mps_client.conftest import wait_until

MIB, GIB = 1024**2, 1024**3
OFFSET = 1_000_000  # from a daemon's pid to the one that it shows
SERVERS = (9001, 9002, 9003)
GPUS = tuple(
    Gpu(n, uuid=f"GPU-{n:08d}-aaaa-bbbb-cccc-000000000000", pci=f"0000000{n}:00:00.0", name="H100", memory=80 * GIB)
    for n in range(2)
)
DEVICES = tuple(Device(gpu.index, uuid=gpu.uuid, name=gpu.name) for gpu in GPUS)


class Node:
    """A simulated node's procfs and world, and a daemon in the foreground."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.pipe = root / "pipe"
        self.world = World("550.163.01", gpus=GPUS, server_pids=SERVERS)
        self.binary = str(install(root / "bin"))
        self.procfs = Procfs(root / "proc")
        for pid in SERVERS:
            name = "nvidia-cuda-mps-server"
            self.procfs.put(Process(pid, 100, name, (name,), "0::/\n", uid=1000))
        monkeypatch.setenv(worlds.ENVIRONMENT, str(root / "world"))
        monkeypatch.setenv(PROCFS, str(self.procfs.root))
        self.shown = None  # the pid that it has in the simulated procfs

    def set(self, **changes):
        self.world = replace(self.world, **changes)
        worlds.write(self.root / "world", self.world)

    def start(self, *options, **environment):
        self.set()
        (self.root / "log").mkdir(exist_ok=True)
        self.pipe.mkdir(exist_ok=True)
        (self.pipe / "control").unlink(missing_ok=True)
        subprocess.run(
            [self.binary, *options, "-d"],
            env={
                **os.environ,
                "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
                "CUDA_MPS_LOG_DIRECTORY": str(self.root / "log"),
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=20,
        )
        (self.shown,) = (pid for name in os.listdir(self.procfs.root) if name.isdigit() and (pid := int(name)) > OFFSET)

    def stop(self):
        """End the daemon, as a signal does, and wait until it has signed off."""
        if self.shown is not None:
            os.kill(self.shown - OFFSET, signal.SIGTERM)
            wait_until(lambda: not (self.procfs.root / str(self.shown)).exists())
            self.shown = None

    def connect(self, *pids, pipe=None, **options):
        self.set(
            clients=tuple(
                WouldBe(
                    pid,
                    uid=1000,
                    command="python train.py --gpus=0,1",
                    pipe_directory=str(pipe or self.pipe),
                    devices=(0,),
                    **options,
                )
                for pid in pids
            )
        )

    def control(self, **options):
        return MpsControl(self.binary, str(self.pipe), clock=Clock(), **options)

    def ask(self, command):
        answer = self.control().ask(command)
        assert isinstance(answer, str), answer
        return answer

    def source(self, **options):
        return MpsSource(
            [str(self.pipe)],
            binary=self.binary,
            procfs=self.procfs.root,
            clock=Clock(),
            **{"deadline": 10.0, **options},
        )


@pytest.fixture
def node(short_tmp, monkeypatch):
    found = Node(short_tmp, monkeypatch)
    yield found
    found.stop()


def daemon(source):
    (found,) = source.read(DEVICES).value.daemons.values()
    return found


def with_clients(source, *pids):
    """The daemon when it has these clients."""

    def connected():
        found = daemon(source)
        clients = [client.pid for server in found.servers for client in server.clients]
        return found if clients == list(pids) else None

    return wait_until(connected)


@pytest.mark.parametrize("driver", ["535.261.03", "550.163.01", "615.71.09"])
def test_protocol_2_with_a_server_and_clients(node, driver):
    node.world = replace(node.world, driver=driver)
    node.start()
    node.ask(mps_commands.set_default_limit(0, 4606))
    node.ask(mps_commands.set_default_percentage(33.3))
    node.connect(51023, 51024)
    source = node.source()
    found = with_clients(source, 51023, 51024)
    assert found.protocol == 2
    assert found.pid == node.shown
    assert found.ratio == 0.333
    assert found.pinned == {0: PinnedLimit(4 * GIB, below=5 * GIB), 1: None}
    (server,) = found.servers
    assert (server.name, server.pid, server.uid, server.ratio) == ("uid_1000", 9001, 1000, 0.333)
    assert server.status is (ServerStatus.UNKNOWN if driver < "550" else ServerStatus.ACTIVE)
    assert server.devices == tuple(gpu.uuid for gpu in GPUS)
    # The server's log tells what the daemon shows in whole GiB, and what each client connected under.
    assert server.pinned == {0: PinnedLimit(4606 * MIB, below=4607 * MIB), 1: None}
    assert [client.pinned for client in server.clients] == [{0: 4606 * MIB}] * 2
    source.stop()


def test_a_limit_holds_for_clients_that_come_after_it(node):
    node.start()
    node.ask(mps_commands.set_default_limit(0, 8192))
    node.connect(51023)
    source = node.source()
    with_clients(source, 51023)
    node.ask(mps_commands.set_limit(9001, 0, 512))
    node.connect(51023, 51024)
    (server,) = with_clients(source, 51023, 51024).servers
    assert server.pinned[0].shown == 512 * MIB
    assert {client.pid: client.pinned for client in server.clients} == {51023: {0: 8 * GIB}, 51024: {0: 512 * MIB}}
    source.stop()


def test_a_daemon_of_one_gpu_numbers_it_0(node):
    node.start(CUDA_VISIBLE_DEVICES=GPUS[1].uuid)
    node.set(clients=(WouldBe(51023, uid=0, command="a", pipe_directory=str(node.pipe), devices=(1,)),))
    source = node.source()
    (server,) = with_clients(source, 51023).servers
    assert server.devices == (GPUS[1].uuid,)
    assert set(server.pinned) == {0}
    source.stop()


@pytest.mark.parametrize("state", [ServerStatus.FAULT, ServerStatus.INITIALIZING])
def test_the_state_of_a_server(node, state):
    node.start()
    node.connect(51023)
    source = node.source()
    with_clients(source, 51023)
    node.set(faults=(Fault(server_state=state.upper()),))
    wait_until(lambda: daemon(source).servers[0].status is state)
    source.stop()


def start_three(node):
    node.world = replace(node.world, driver="615.71.09")
    node.start("-p", "3", "-m")
    source = node.source()
    assert daemon(source).protocol == 3
    run(node, "server", "create", "shared", f"--allowed-devices={GPUS[1].uuid},{GPUS[0].uuid}")
    return source


def run(node, *words):
    subprocess.run(
        [node.binary, "-p", "3", *words],
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipe)},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=20,
    )


def test_protocol_3_with_namespaces_and_clients(node):
    source = start_three(node)
    node.ask(mps_commands.create_namespace("small", "shared"))
    node.ask(mps_commands.set_namespace("small", "shared", mebibytes=20480, share=30))
    node.connect(51023, pipe=node.pipe / "shared" / "small")
    found = with_clients(source, 51023)
    (server,) = found.servers
    assert (server.name, server.uid, server.status) == ("shared", 0, ServerStatus.ACTIVE)
    assert server.pid in SERVERS
    assert server.devices == (GPUS[1].uuid, GPUS[0].uuid)
    assert (server.ratio, server.pinned) == (None, {0: None, 1: None})
    spaces = {space.name: space for space in server.namespaces}
    assert set(spaces) == {"default", "small"}
    assert spaces["small"].ratio == 0.3
    assert spaces["small"].pinned.shown == 20 * GIB
    assert spaces["small"].pipe_directory == str(node.pipe / "shared" / "small")
    (client,) = server.clients
    assert (client.pid, client.device, client.namespace) == (51023, "1", "small")
    assert found.errors == ()
    node.connect()
    with_clients(source)
    node.ask(mps_commands.delete_namespace("small", "shared"))
    assert [space.name for space in daemon(source).servers[0].namespaces] == ["default"]
    source.stop()


def test_protocol_3_refuses_in_words(node):
    start_three(node).stop()
    control = node.control()
    assert isinstance(control.ask(mps_commands.create_namespace("small", "nowhere")), Failure)


def test_what_the_protocols_say_of_a_daemon_that_is_gone(node):
    source = start_three(node)
    node.stop()
    assert daemon(source).reason is Reason.DAEMON_NOT_RUNNING
    node.start()
    assert daemon(source).protocol == 2
    source.stop()


# Faults.


def test_a_daemon_that_hangs_and_one_that_refuses(node):
    node.start()
    source = node.source(deadline=1.0)
    assert not isinstance(daemon(source), Failure)
    node.set(faults=(Fault(hang=True),))
    wait_until(lambda: isinstance(found := daemon(source), Failure) and found.reason is Reason.DAEMON_WEDGED)
    node.set(faults=(Fault(refuse=True),))
    wait_until(lambda: isinstance(found := daemon(source), Failure) and found.reason is Reason.COMMAND_LOST)
    node.set(faults=())
    wait_until(lambda: not isinstance(daemon(source), Failure))
    source.stop()


@pytest.mark.parametrize(("lost", "answered"), [(1, True), (2, True), (9, False)])
def test_commands_that_are_swallowed(node, lost, answered):
    node.start()
    node.set(faults=(Fault(lose=lost),))
    time_to_see = time.monotonic() + 0.2  # the daemon looks at its faults some twenty times a second
    wait_until(lambda: time.monotonic() > time_to_see)
    answer = node.control().ask(mps_commands.default_limit(0))
    assert answer == "" if answered else answer.reason is Reason.COMMAND_LOST


@pytest.mark.parametrize("options", [(), ("-p", "3")])
def test_eight_at_once_lose_nothing_where_overlapping_calls_are_lost(node, options):
    node.world = replace(node.world, driver="615.71.09", faults=(Fault(overlap=True),))
    node.start(*options)
    command = mps_commands.servers() if options else mps_commands.default_percentage()
    answers = []

    def ask():
        control = node.control(deadline=60.0)
        answers.extend(control.ask(command) for _ in range(5))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40
    assert len(set(answers)) == 1
    assert isinstance(answers[0], str)


def test_a_root_that_is_not_a_procfs_leaves_the_daemon_without_a_process(node):
    node.start()
    source = MpsSource([str(node.pipe)], binary=node.binary, procfs=Path("/nonexistent"), deadline=10.0, clock=Clock())
    found = daemon(source)
    assert (found.pid, found.started, found.ratio) == (None, None, 1.0)
    source.stop()
