"""Control daemons of our own: started, made ready before anybody comes, taken over, started anew, never killed."""

import os
import stat
import subprocess
from pathlib import Path

import pynvml
import pytest

from enforcer.mechanisms.compute_modes import ComputeModes
from enforcer.mechanisms.daemon_start import ManagedGpu, configuration_three
from enforcer.mechanisms.folders import Folder
from enforcer.mechanisms.gpu_calls import GpuCalls
from enforcer.mechanisms.managed_daemon import ManagedDaemons
from enforcer.outcomes import Done, Pending
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Device, MpsDaemon
from exporter.sources.library_use import LibraryUse
from exporter.sources.mps import MpsSource
from simulator.mps import registration
from simulator.nvml import state
from simulator.nvml.state import Fault
from tests.mechanisms.conftest import BOOT, GIB, GPUS, SERVERS, wait_until
from tests.memory_limits.conftest import device
from tests.mps.conftest import _of_kind as control_of

DEFAULT, PROHIBITED, EXCLUSIVE = 0, 2, 3
MANAGED = tuple(ManagedGpu(gpu.index, gpu.uuid, gpu.memory) for gpu in GPUS)
TWO, THREE = "550.163.01", "615.71.09"


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


class Jumping:
    """A clock that runs, and that can be set forward."""

    def __init__(self):
        self.ahead = 0.0
        real = Clock()
        self.clock = Clock(lambda: real.monotonic() + self.ahead, real.unix, real.boottime)


class Enforcer:
    """What the enforcer has of its daemons; a new one is the enforcer after a restart."""

    def __init__(self, node, *, exclusive=False, patience=10.0):
        self.node = node
        self.time = Jumping()
        state_folder = Folder(str(node.root / "state"))
        self.calls = GpuCalls(deadline=5.0, clock=self.time.clock, use=LibraryUse())
        self.daemons = ManagedDaemons(
            binary=node.binary,
            state=state_folder,
            modes=ComputeModes(state_folder, boot=BOOT, calls=self.calls),
            procfs=node.procfs.root,
            clock=self.time.clock,
            exclusive=exclusive,
            patience=patience,
            pipes=str(node.pipe),
            logs=str(node.root / "logs"),
        )

    def keep(self, gpus=MANAGED, seen=None):
        major = int(self.node.world.driver.split(".")[0])
        return self.daemons.keep(gpus, driver_major=major, seen=seen or {})

    def only(self, gpus=MANAGED[:1], **options):
        (outcome,) = self.keep(gpus, **options).values()
        return outcome


@pytest.fixture
def enforcer(node):
    return Enforcer(node)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def pipe_of(node, number=None):
    return node.pipe if number is None else node.pipe / str(number)


def all_done(outcomes):
    assert all(isinstance(outcome, Done) for outcome in outcomes.values()), outcomes
    return list(outcomes)


@pytest.mark.parametrize("driver", ["535.261.03", TWO])
def test_protocol_2_has_a_daemon_for_each_gpu_with_a_server_and_the_whole_of_it(node, enforcer, driver):
    node.set(driver=driver)
    assert all_done(enforcer.keep()) == [str(pipe_of(node, 0)), str(pipe_of(node, 1))]
    assert len(node.daemons()) == 2
    for number, gpu in enumerate(GPUS):
        pipe = pipe_of(node, number)
        assert node.say(text="get_default_device_pinned_mem_limit 0\n", pipe=pipe).strip() == "80G"
        assert node.say(text="get_default_active_thread_percentage\n", pipe=pipe).strip() == "100.0"
        assert node.say(text="get_server_list\n", pipe=pipe).strip() == str(SERVERS[number])
        assert [mode(path) for path in (pipe.parent, pipe, node.root / "logs" / str(number))] == [0o755] * 3
        node.connect(51023 + number, pipe=pipe, gpu=number)
        held = wait_until(lambda pid=51023 + number: node.held(pid))
        assert held["limits"] == {str(gpu.index): 80 * GIB}
        node.connect()


def test_ordinals_are_those_of_the_one_gpu(node, enforcer):
    enforcer.keep()
    devices = [Device(gpu.index, uuid=gpu.uuid, name=gpu.name) for gpu in GPUS]
    source = MpsSource([f"{node.pipe}/*"], binary=node.binary, procfs=node.procfs.root, deadline=10.0, clock=Clock())
    daemons = source.read(devices).value.daemons
    source.stop()
    assert {path: [server.devices for server in daemon.servers] for path, daemon in daemons.items()} == {
        str(pipe_of(node, number)): [(gpu.uuid,)] for number, gpu in enumerate(GPUS)
    }


def test_protocol_3_has_one_daemon_whose_default_namespace_is_of_no_use(node, enforcer):
    node.set(driver=THREE)
    assert all_done(enforcer.keep()) == [str(node.pipe)]
    (row,) = node.say("namespace", "list", "--format=csv,noheader").splitlines()
    assert row.startswith("default,shared,Ready,256M,1.00,")
    (server,) = node.say("server", "list", "--format=csv,noheader").splitlines()
    assert f"{GPUS[0].uuid},{GPUS[1].uuid}" in server
    assert mode(node.pipe) == 0o755
    assert (node.root / "state/mps.toml").read_bytes() == configuration_three(MANAGED)
    assert mode(node.root / "state/mps.toml") == 0o600


def test_a_driver_of_615_whose_command_knows_only_protocol_2(node, enforcer):
    outcomes = enforcer.daemons.keep(MANAGED[:1], driver_major=615, seen={})
    assert all_done(outcomes) == [str(pipe_of(node, 0))]


@pytest.mark.parametrize("driver", [TWO, THREE])
def test_all_is_well_costs_no_command(node, enforcer, driver):
    node.set(driver=driver)
    enforcer.keep()
    logs = list((node.root / "logs").rglob("control.log"))
    before = {path: path.stat().st_size for path in logs}
    assert before
    all_done(enforcer.keep())
    assert {path: path.stat().st_size for path in logs} == before


@pytest.mark.parametrize("driver", ["535.261.03", TWO, THREE])
def test_a_restarted_enforcer_takes_its_daemons_over_with_their_clients(node, enforcer, driver):
    node.set(driver=driver)
    enforcer.keep()
    running = node.daemons()
    pipe = node.pipe if driver == THREE else pipe_of(node, 0)
    node.connect(51023, pipe=pipe / "shared" if driver == THREE else pipe)
    wait_until(lambda: node.held(51023))
    all_done(Enforcer(node).keep())
    assert node.daemons() == running
    assert node.held(51023)


@pytest.mark.parametrize("driver", [TWO, THREE])
def test_one_that_has_gone_is_started_anew_after_a_pause_that_grows(node, enforcer, driver):
    node.set(driver=driver)
    enforcer.only()
    for pause in (1, 2, 4, 8):
        node.kill()
        outcome = enforcer.only()
        assert isinstance(outcome, Pending)
        assert node.daemons() == []
        enforcer.time.ahead += pause - 0.5
        assert isinstance(enforcer.only(), Pending)
        enforcer.time.ahead += 0.5
        assert isinstance(enforcer.only(), Done)
        assert len(node.daemons()) == 1


def test_one_that_ran_for_long_is_started_anew_soon(node, enforcer):
    enforcer.only()
    for _ in range(3):
        enforcer.time.ahead += 40
        node.kill()
        assert isinstance(enforcer.only(), Pending)
        enforcer.time.ahead += 1
        assert isinstance(enforcer.only(), Done)


def test_the_pause_has_an_end(node, enforcer):
    (node.root / "bin/nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")
    paused = []
    for _ in range(9):
        begun = enforcer.time.ahead
        while isinstance(enforcer.only(), Pending):
            enforcer.time.ahead += 0.5
        paused.append(enforcer.time.ahead - begun)
    assert paused[0] == 0
    assert max(paused) <= 60.5
    assert paused[-1] >= 59


@pytest.mark.parametrize("driver", [TWO, THREE])
def test_nobody_else_comes_in_before_it_is_ready(node, driver):
    enforcer = Enforcer(node, patience=2.0)
    node.set(driver=driver)
    node.fault(server_exits=True)
    outcome = enforcer.only()
    assert reason(outcome) is (Reason.NOT_FOUND if driver == THREE else Reason.TIMEOUT)
    assert "log tells why" in outcome.detail
    pipe = node.pipe if driver == THREE else pipe_of(node, 0)
    assert mode(pipe) == 0o700
    node.fault()
    enforcer.time.ahead += 1
    assert isinstance(enforcer.only(), Done)
    assert mode(pipe) == 0o755


def test_a_daemon_without_a_server_gets_one_again(node, enforcer):
    enforcer.only()
    node.say(text=f"shutdown_server {SERVERS[0]}\n", pipe=pipe_of(node, 0))
    assert node.say(text="get_server_list\n", pipe=pipe_of(node, 0)) == ""
    seen = {str(pipe_of(node, 0)): MpsDaemon(2)}
    assert isinstance(enforcer.only(seen=seen), Done)
    assert node.say(text="get_server_list\n", pipe=pipe_of(node, 0)).strip() == str(SERVERS[0])


def test_a_daemon_of_protocol_3_without_its_server_is_started_anew_when_nobody_is_in(node):
    enforcer = Enforcer(node, patience=2.0)
    node.set(driver=THREE)
    enforcer.only()
    first = node.daemons()
    node.say("server", "create", "other")
    node.connect(51023, pipe=node.pipe / "other")
    wait_until(lambda: node.held(51023))
    node.say("server", "delete", "shared")
    seen = {str(node.pipe): MpsDaemon(3)}
    assert reason(enforcer.only(seen=seen)) is Reason.NOT_FOUND
    assert node.held(51023)
    assert node.daemons() == first
    node.connect()
    wait_until(lambda: not node.held(51023))
    enforcer.time.ahead += 1
    assert reason(enforcer.only(seen=seen)) is Reason.NOT_FOUND
    assert node.daemons() == []
    enforcer.time.ahead += 3
    assert isinstance(enforcer.only(), Done)
    assert len(node.daemons()) == 1


@pytest.mark.parametrize("own", ["log", "gpu", "options"])
def test_a_foreign_daemon_in_our_directory_is_left_alone(node, enforcer, own):
    """One that differs from ours in one thing only."""
    pipe, logs = pipe_of(node, 0), node.root / "logs/0"
    for folder in (pipe, logs):
        folder.mkdir(parents=True)
    environment = {
        **os.environ,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": GPUS[1 if own == "gpu" else 0].uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(node.root / "bin" if own == "log" else logs),
    }
    node.set(driver=THREE if own == "options" else TWO)
    options = ["-m", "-d"] if own == "options" else ["-d"]
    subprocess.run([node.binary, *options], env=environment, check=True, timeout=20, stdin=subprocess.DEVNULL)
    node.set(driver=TWO)
    running, before = node.daemons(), mode(pipe)
    for _ in range(2):
        assert reason(enforcer.only()) is Reason.FOREIGN
        assert node.daemons() == running
    assert mode(pipe) == before
    assert node.say(text="get_default_device_pinned_mem_limit 0\n", pipe=pipe) == ""
    (stopped,) = enforcer.daemons.stop().values()
    assert reason(stopped) is Reason.FOREIGN
    assert node.daemons() == running


def test_a_daemon_whose_process_is_not_seen_is_not_started_over(node, enforcer, monkeypatch):
    with monkeypatch.context() as hidden:
        hidden.delenv(registration.ENVIRONMENT)
        pipe_of(node, 0).mkdir(parents=True)
        node.start(pipe=pipe_of(node, 0))
    pid = int((pipe_of(node, 0) / "nvidia-cuda-mps-control.pid").read_text())
    try:
        outcome = enforcer.only()
        assert reason(outcome) is Reason.FOREIGN
        assert "pid namespace" in outcome.detail
        assert node.daemons() == []
    finally:
        os.kill(pid, 9)
    wait_until(lambda: not _lives(pid))
    enforcer.time.ahead += 1
    assert isinstance(enforcer.only(), Done)


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_daemon_that_hangs_is_neither_killed_nor_started_over(node, enforcer):
    enforcer.only()
    running = node.daemons()
    node.fault(hang=True)
    restarted = Enforcer(node)
    assert reason(restarted.only()) is Reason.DAEMON_WEDGED
    assert node.daemons() == running
    (stopped,) = restarted.daemons.stop().values()
    assert reason(stopped) is Reason.DAEMON_WEDGED
    assert node.daemons() == running


@pytest.mark.parametrize("driver", [TWO, THREE])
def test_stop_ends_an_idle_daemon_and_leaves_one_with_clients(node, enforcer, driver):
    node.set(driver=driver)
    enforcer.only()
    pipe = node.pipe if driver == THREE else pipe_of(node, 0)
    node.connect(51023, pipe=pipe / "shared" if driver == THREE else pipe)
    wait_until(lambda: node.held(51023))
    (outcome,) = enforcer.daemons.stop().values()
    assert isinstance(outcome, Pending)
    assert "1 clients" in outcome.why
    assert len(node.daemons()) == 1
    assert node.held(51023)
    assert mode(pipe) == 0o755
    node.connect()
    wait_until(lambda: not node.held(51023))
    (outcome,) = enforcer.daemons.stop().values()
    assert isinstance(outcome, Done), outcome
    assert node.daemons() == []
    (outcome,) = enforcer.daemons.stop().values()
    assert isinstance(outcome, Done)


def test_no_command_is_told(node, enforcer):
    Path(node.binary).unlink()
    assert reason(enforcer.only()) is Reason.MISSING
    assert (
        "nvidia-cuda-mps-control"
        in enforcer.daemons.keep(MANAGED[:1], driver_major=615, seen={})[str(node.pipe)].detail
    )


def test_what_the_command_says_when_it_does_not_start_is_told(node, enforcer, script):
    absent = "Cannot find MPS control daemon process"
    played = script(f'case "$1" in -d) echo "Cannot write there"; exit 1;; *) echo "{absent}" >&2;; esac')
    os.replace(played, node.binary)
    outcome = enforcer.only()
    assert reason(outcome) is Reason.DAEMON_NOT_RUNNING
    assert outcome.detail.endswith("Cannot write there")


def test_a_pipe_directory_that_somebody_made_is_not_used(node, enforcer, short_tmp):
    (short_tmp / "victim").mkdir(mode=0o755)
    node.pipe.mkdir()
    pipe_of(node, 0).symlink_to(short_tmp / "victim")
    assert isinstance(enforcer.only(), Failure)
    assert os.listdir(short_tmp / "victim") == []
    assert node.daemons() == []


def test_no_gpus_no_daemons(node, enforcer):
    assert enforcer.keep(()) == {}
    assert node.daemons() == []


@pytest.fixture(params=["real-535", "real-550"])
def real(request):
    with control_of(request.param) as found:
        yield found


def of_real(real):
    clock, folder = Clock(), Folder(str(real.root / "state"))
    modes = ComputeModes(folder, boot=BOOT, calls=GpuCalls(deadline=5.0, clock=clock, use=LibraryUse()))
    return ManagedDaemons(
        binary=str(real.executable),
        state=folder,
        modes=modes,
        procfs=Path("/proc"),
        clock=clock,
        patience=3.0,
        pipes=str(real.root / "m"),
        logs=str(real.root / "logs"),
    )


def test_a_real_daemon_is_started_set_and_taken_over_and_without_a_gpu_not_ready(real):
    pipe = real.root / "m/0"
    for daemons in (of_real(real), of_real(real)):
        (outcome,) = daemons.keep(MANAGED[:1], driver_major=real.major, seen={}).values()
        assert reason(outcome) is Reason.TIMEOUT
        assert "no server has come up" in outcome.detail
        pid = real.pid()  # one, and the same
        assert mode(pipe) == 0o700
        shown = real.call(
            text="get_default_device_pinned_mem_limit 0\n", environ={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
        )
        assert shown.out == "80G\n"
    assert real.running() == {pid}
    (outcome,) = daemons.stop().values()
    assert isinstance(outcome, Done), outcome
    assert real.running() == set()


# Compute modes, on the simulated driver library.


@pytest.fixture
def driver(machine_of, node):
    """A driver with the GPUs that the daemons have."""
    machine = machine_of(state.LimitsBackend.OFF)

    def write(*faults, modes=(DEFAULT, PROHIBITED)):
        gpus = tuple(
            state.Gpu(
                gpu.uuid,
                memory=state.Memory(80 * GIB),
                pci_bus_id=device(gpu.index).pci_bus_id,
                compute_mode=modes[gpu.index],
            )
            for gpu in GPUS
        )
        state.write(machine.directory / "state", state.State(gpus, faults=faults))

    write()
    return write


def modes_now():
    return [pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)) for gpu in GPUS]


def test_compute_modes_are_claimed_and_given_back(node, driver):
    enforcer = Enforcer(node, exclusive=True)
    all_done(enforcer.keep())
    assert modes_now() == [EXCLUSIVE, EXCLUSIVE]
    all_done(enforcer.keep())
    restarted = Enforcer(node, exclusive=True)
    all_done(restarted.keep())
    all_done(restarted.daemons.stop())
    assert modes_now() == [DEFAULT, PROHIBITED]
    assert not [name for name in os.listdir(node.root / "state") if name.startswith("compute-mode")]


def test_compute_modes_are_given_back_when_they_are_not_wanted_any_more(node, driver):
    all_done(Enforcer(node, exclusive=True).keep())
    all_done(Enforcer(node).keep())
    assert modes_now() == [DEFAULT, PROHIBITED]


def test_compute_modes_are_left_alone_unless_asked_for(node, driver):
    all_done(Enforcer(node).keep())
    assert modes_now() == [DEFAULT, PROHIBITED]


def test_compute_modes_stay_while_a_daemon_has_clients(node, driver):
    enforcer = Enforcer(node, exclusive=True)
    enforcer.keep()
    node.connect(51023, pipe=pipe_of(node, 0))
    wait_until(lambda: node.held(51023))
    enforcer.daemons.stop()
    assert modes_now() == [EXCLUSIVE, PROHIBITED]


def test_a_mode_that_was_exclusive_before_stays(node, driver):
    driver(modes=(EXCLUSIVE, DEFAULT))
    enforcer = Enforcer(node, exclusive=True)
    enforcer.keep()
    enforcer.daemons.stop()
    assert modes_now() == [EXCLUSIVE, DEFAULT]


def test_a_mode_that_can_not_be_set_is_told_and_the_daemon_runs(node, driver):
    driver(Fault("nvmlDeviceSetComputeMode", code=4, gpu=0))
    outcomes = Enforcer(node, exclusive=True).keep()
    assert reason(outcomes[str(pipe_of(node, 0))]) is Reason.NO_PERMISSION
    assert isinstance(outcomes[str(pipe_of(node, 1))], Done)
    assert len(node.daemons()) == 2


def test_a_driver_that_says_yes_and_keeps_its_mode_is_not_believed(node, driver, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlDeviceSetComputeMode", lambda handle, wanted: None)
    outcomes = Enforcer(node, exclusive=True).keep()
    assert reason(outcomes[str(pipe_of(node, 0))]) is Reason.INCONSISTENT


def test_no_mode_is_changed_without_a_record(node, driver):
    folder = node.root / "state"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    outcomes = Enforcer(node, exclusive=True).keep()
    assert {reason(outcome) for outcome in outcomes.values()} == {Reason.FOREIGN}
    assert modes_now() == [DEFAULT, PROHIBITED]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"boot": "x"}', b'{"boot": "%s", "mode": 9}' % BOOT.encode()])
def test_a_torn_record_of_a_mode_changes_nothing(node, driver, content):
    enforcer = Enforcer(node, exclusive=True)
    enforcer.keep()
    path = node.root / "state" / f"compute-mode.{GPUS[0].uuid}"
    path.write_bytes(content)
    outcome = enforcer.daemons.stop()[str(pipe_of(node, 0))]
    assert reason(outcome) is Reason.MALFORMED
    assert modes_now()[0] == EXCLUSIVE


def test_a_record_of_an_earlier_boot_is_none(node, driver):
    enforcer = Enforcer(node, exclusive=True)
    enforcer.keep()
    path = node.root / "state" / f"compute-mode.{GPUS[0].uuid}"
    path.write_bytes(path.read_bytes().replace(BOOT.encode(), b"earlier"))
    assert isinstance(enforcer.daemons.stop()[str(pipe_of(node, 0))], Done)
    assert modes_now() == [EXCLUSIVE, PROHIBITED]
