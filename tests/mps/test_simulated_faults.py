"""What the simulated control daemon does with a world around it, and how it goes wrong when it is told to."""

import os
import signal
import subprocess

import pytest

from simulator.mps import registration, world
from tests.mps.conftest import Said

MIB = 1 << 20
GPUS = (
    world.Gpu(0, "GPU-aaaaaaaa-1111-2222-3333-444444444444", "00000000:17:00.0", "NVIDIA A100", 80 << 30),
    world.Gpu(1, "GPU-bbbbbbbb-1111-2222-3333-444444444444", "00000000:18:00.0", "NVIDIA A100", 80 << 30),
)
LIMIT = "default_device_pinned_mem_limit"


def around(*clients, driver="550.163.01", servers=(4100, 4101)):
    return world.World(driver, gpus=GPUS, clients=clients, server_pids=servers)


def would_be(control, pid, *, devices=(0,), uid=0, **environ):
    return world.WouldBe(pid, uid, f"python3 job{pid}.py --fast", str(control.pipe), devices, environ)


@pytest.fixture
def running(simulated):
    control = simulated(around())
    control.start()
    return control


def become(control, *clients, **more):
    world.write(control.root / "world.json", around(*clients, **more))


def held(control):
    return world.held(control.root / "world.json", control.pid())


def test_a_client_gets_a_server_and_keeps_what_was_in_force(running):
    running.say("set_default_active_thread_percentage 25")
    running.say(f"set_{LIMIT} 0 4606M")
    become(running, would_be(running, 4000))
    assert running.say("get_server_list") == "4100\n"
    assert running.say("get_client_list 4100") == "4000\n"
    assert running.say("get_server_status 4100") == "ACTIVE\n"
    running.say("set_active_thread_percentage 4100 50")
    running.say("set_device_pinned_mem_limit 4100 0 1023M")
    become(running, would_be(running, 4000), would_be(running, 4001))
    assert running.say("get_client_list 4100") == "4000\n4001\n"
    assert running.say("get_device_pinned_mem_limit 4100 0") == "1023M\n"
    assert running.say("get_active_thread_percentage 4100") == "50.0\n"
    found = held(running)
    assert (found[4000]["percentage"], found[4000]["limits"]) == (25.0, {"0": 4606 * MIB})
    assert (found[4001]["percentage"], found[4001]["limits"]) == (50.0, {"0": 1023 * MIB})


def test_the_environment_of_a_client_can_only_lower(running):
    running.say("set_default_active_thread_percentage 25")
    running.say(f"set_{LIMIT} 0 4G")
    less = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "10", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M"}
    more = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "90", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=9G"}
    become(running, would_be(running, 4000, **less), would_be(running, 4001, **more))
    running.say("get_server_list")
    found = held(running)
    assert (found[4000]["percentage"], found[4000]["limits"]["0"]) == (10.0, 1024 * MIB)
    assert (found[4001]["percentage"], found[4001]["limits"]["0"]) == (25.0, 4096 * MIB)


def test_ordinals_are_those_of_the_daemons_own_devices(simulated):
    control = simulated(around())
    control.start(CUDA_VISIBLE_DEVICES=GPUS[1].uuid)
    control.say(f"set_{LIMIT} 0 2G")
    become(control, would_be(control, 4000, devices=(1,)), would_be(control, 4001, devices=(0,)))
    assert control.say("get_client_list 4100") == "4000\n"  # the other one's GPU is not the daemon's
    assert held(control)[4000]["limits"] == {"1": 2048 * MIB}


def test_the_table_of_clients(running):
    become(running, would_be(running, 4000))
    header, row = running.say("ps").splitlines()
    assert header.split() == ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]
    assert row.split() == ["4000", "0", "4100", "GPU-aaaaaaaa-1111-2222", "4026531836", "python3"]
    assert running.say("ps -p 4100").splitlines()[1] == row


def test_terminating_a_client_tells_the_node_and_it_stays_away(running):
    become(running, would_be(running, 4000), would_be(running, 4001))
    assert running.say("terminate_client 4100 4000").splitlines()[-1] == "0"
    assert running.say("terminate_client 4100 4000").splitlines()[-1] == "1"
    assert world.terminated(running.root / "world.json") == {4000}
    become(running, would_be(running, 4000), would_be(running, 4001), servers=(4100,))
    assert running.say("get_client_list 4100") == "4001\n"


def test_another_user_waits_until_the_first_has_gone(running):
    become(running, would_be(running, 4000, uid=1000), would_be(running, 4001, uid=2000))
    assert running.say("get_client_list 4100") == "4000\n"
    assert "NEW CLIENT 4001 from user 2000: Server is not ready, push client to pending list" in running.control_log
    become(running, would_be(running, 4001, uid=2000))
    (server,) = running.say("get_server_list").split()
    assert running.say(f"get_client_list {server}") == "4001\n"


def test_without_a_server_process_to_take_servers_exit_as_they_start(simulated):
    control = simulated(around(servers=()))
    control.start()
    become(control, would_be(control, 4000), servers=())
    assert control.say("get_server_list") == ""
    assert "exited with status 1" in control.control_log


def test_a_server_that_the_driver_lost_is_gone_with_its_clients(running):
    become(running, would_be(running, 4000))
    assert running.say("get_server_list") == "4100\n"
    become(running, would_be(running, 4000), servers=(4101,))
    assert running.say("get_server_list") == ""
    assert "Server encountered a fatal exception. Shutting down" in running.control_log


def test_two_daemons_never_take_the_same_server_process(simulated):
    first = simulated(around())
    second = simulated(around())
    second.environment = first.environment
    for control in (first, second):
        control.start()
    become(first, would_be(first, 4000), would_be(second, 4001))
    assert {first.say("get_server_list"), second.say("get_server_list")} == {"4100\n", "4101\n"}


def test_the_servers_log_tells_exact_values(running):
    running.say("set_default_active_thread_percentage 33")
    running.say(f"set_{LIMIT} 0 4606M")
    become(running, would_be(running, 4000))
    running.say("set_device_pinned_mem_limit 4100 1 5G")
    become(running)
    running.say("get_server_list")
    log = (running.log / "server.log").read_text()
    for line in (
        "Creating server context on device 0 (NVIDIA A100)",
        "Active Threads Percentage set to 33.0",
        f"Device pinned memory limit for device 0 set to {4606 * MIB:#x} bytes",
        "Device pinned memory limit for device 1 set to 0x140000000 bytes",
        "Client {PID: 4000, Context ID: 0} connected",
        "Receive command failed, assuming client exit",
    ):
        assert line in log


def test_quit_waits_for_clients_unless_it_has_a_time(running):
    become(running, would_be(running, 4000))
    assert running.say("get_client_list 4100") == "4000\n"
    with subprocess.Popen([running.executable], env=running.environ(), stdin=subprocess.PIPE) as quitting:
        quitting.stdin.write(b"quit\n")
        quitting.stdin.flush()
        running.eventually(lambda: "Cmd:quit" in running.control_log)
        assert running.running()
        become(running)
        quitting.communicate()
    running.eventually(lambda: not running.running())
    running.start()
    become(running, would_be(running, 4000))
    running.say("get_server_list")
    assert running.say("quit -t 0") == ""
    running.eventually(lambda: not running.running())


# Faults


def test_hanging(running):
    running.fault(hang=True)
    running.eventually(lambda: running.call(text="get_server_list\n", timeout=0.5) == Said(None))
    running.fault()
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_refusing(running):
    running.fault(refuse=True)
    running.eventually(
        lambda: (
            running.call(text="get_server_list\n") == Said(1, "", "Cannot send command to MPS control daemon process\n")
        )
    )


def test_a_fault_may_be_one_daemons(running):
    running.fault(refuse=True, pipe_directory="/elsewhere")
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_losing_the_next_commands(running):
    running.fault(lose=2)
    for _ in range(2):
        assert running.say("set_default_active_thread_percentage 20") == ""
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_every_second_call_that_overlaps_is_lost_with_exit_code_0(running):
    running.fault(overlap=True, delay=0.3)
    calls = [
        subprocess.Popen(
            [running.executable],
            env=running.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(5)
    ]
    for call in calls:
        call.stdin.write(b"get_default_active_thread_percentage\n")
        call.stdin.close()
        call.stdin = None
    ended = sorted((call.communicate()[0], call.returncode) for call in calls)
    assert ended == [(b"", 0), (b"", 0), (b"", 1), (b"", 1), (b"100.0\n", 0)]


def test_states_of_a_server(running):
    become(running, would_be(running, 4000))
    assert running.say("get_server_status 4100") == "ACTIVE\n"
    for state in ("INITIALIZING", "FAULT"):
        running.fault(server_state=state)
        assert running.say("get_server_status 4100") == f"{state}\n"


def test_a_server_that_exits_at_its_start(running):
    running.fault(server_exits=True)
    running.say("start_server -uid 0")
    running.eventually(lambda: "exited with status 1" in running.control_log)
    assert running.say("get_server_list") == ""


# In the node's procfs


def test_a_daemon_is_in_the_simulated_procfs_while_it_lives(simulated):
    control = simulated(around())
    procfs = control.root / "proc"
    procfs.mkdir()
    control.environment[registration.ENVIRONMENT] = str(procfs)
    control.start()
    shown = procfs / str(1_000_000 + control.pid())
    assert (shown / "cmdline").read_bytes() == b"nvidia-cuda-mps-control\0-d\0"
    assert (shown / "comm").read_text() == "nvidia-cuda-mps\n"
    assert f"CUDA_MPS_PIPE_DIRECTORY={control.pipe}".encode() in (shown / "environ").read_bytes().split(b"\0")
    assert (control.pipe / "nvidia-cuda-mps-control.pid").read_text() == shown.name
    control.say("quit")
    control.eventually(lambda: not shown.exists())


@pytest.mark.parametrize(("number", "leaves"), [(signal.SIGTERM, False), (signal.SIGKILL, True)])
def test_a_daemon_that_was_killed_is_cleared_away(simulated, number, leaves):
    control = simulated(around())
    procfs = control.root / "proc"
    procfs.mkdir()
    control.environment[registration.ENVIRONMENT] = str(procfs)
    control.start()
    os.kill(control.pid(), number)
    control.eventually(lambda: not control.running())
    control.eventually(lambda: bool(list(procfs.iterdir())) == leaves)
    registration.dead(procfs)
    assert not list(procfs.iterdir())
