"""What the real control daemons of 535 and 550 do without a GPU, and the simulated ones just the same."""

import os
import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from tests.mps.conftest import Said

NOBODY = 65534
NO_DAEMON = Said(1, "", "Cannot find MPS control daemon process\n")
LIMIT = "default_device_pinned_mem_limit"
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


@pytest.fixture
def running(control):
    control.start()
    return control


def test_without_a_daemon_every_call_fails(control):
    assert control.call() == NO_DAEMON
    assert control.call(text="get_server_list\n") == NO_DAEMON
    assert control.call("get_server_list") == NO_DAEMON


def test_files_of_a_running_daemon(running):
    files = {path.name: path.lstat().st_mode for path in running.pipe.iterdir()}
    pid_file = files.pop("nvidia-cuda-mps-control.pid", None)
    assert {name: oct(stat.S_IMODE(mode)) for name, mode in files.items()} == {
        "control": "0o666",
        "control_privileged": "0o755",
        "control_lock": "0o666",
        "log": "0o777",
    }
    assert stat.S_ISSOCK(files["control"])
    assert stat.S_ISSOCK(files["control_privileged"])
    assert stat.S_ISFIFO(files["log"])
    if running.major == 535:  # has no pid file
        assert pid_file is None
    else:
        assert (running.pipe / "nvidia-cuda-mps-control.pid").read_text() == str(running.pid())
    for name in ("control.log", "server.log"):
        assert (running.log / name).exists()
    for part in ("Starting control daemon using socket", "To connect CUDA applications to this daemon"):
        assert part in running.control_log


def test_a_second_start_is_refused(running):
    assert running.call("-d") == Said(1, "An instance of this daemon is already running\n")
    assert len(running.running()) == 1


def test_a_daemon_is_in_a_session_of_its_own_and_a_child_of_nobody_here(running):
    parent = Path(f"/proc/{running.pid()}/stat").read_text().rpartition(")")[2].split()[1]
    assert os.getsid(running.pid()) != os.getsid(0)
    assert int(parent) != os.getpid()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("25", "25.0"),
        ("33.3", "33.3"),
        ("33.333333", "33.3"),
        ("12.55", "12.6"),
        ("12.45", "12.4"),
        ("99.99", "100.0"),
        ("100", "100.0"),
        ("0.04", "0.0"),
        ("1e1", "10.0"),
        ("0x20", "32.0"),
        ("50%", "50.0"),
        ("40 50", "40.0"),
        *((refused, "71.0") for refused in ("0", "-1", "100.04", "101", "abc", "", "nan", "inf")),
    ],
)
def test_percentages_are_rounded_and_out_of_range_shows_the_old_one(shared, given, shown):
    assert shared.say("set_default_active_thread_percentage 71") == "71.0\n"
    assert shared.say(f"set_default_active_thread_percentage {given}") == f"{shown}\n"
    assert shared.say("get_default_active_thread_percentage") == f"{shown}\n"


def test_a_refused_percentage_is_told_to_the_log_only(running):
    running.say("set_default_active_thread_percentage 400")
    assert "Invalid percentage, expected between (0.0, 100.0]" in running.control_log


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("512M", "512M"),
        ("512MB", "512M"),
        ("10g", "10G"),
        ("1024K", "1G"),
        ("5k", "5M"),
        ("5T", "5M"),
        ("1073741824", "1048576G"),
        ("1.5G", "1M"),
        ("-1M", "17179869183G"),
        ("-1G", "17179869183G"),
        ("99999999999999999999M", "17179869183G"),
        ("17592186044416M", ""),
        ("0M", ""),
        ("0G", ""),
        ("", ""),
        ("G", ""),
        ("abc", ""),
        ("0x10M", ""),
        ("+5G", "5G"),
        ("3 G", "3M"),
        ("3G extra", "3G"),
        ("010M", "10M"),
        ("1e3M", "1M"),
        ("1023M", "1023M"),
        ("1024M", "1G"),
        ("1025M", "1G"),
        ("2047M", "1G"),
        ("4606M", "4G"),
        ("1048576M", "1024G"),
    ],
)
def test_how_a_limit_is_read(shared, value, shown):
    shared.say(f"set_{LIMIT} 0 7G")
    assert shared.say(f"set_{LIMIT} 0 {value}") == ""
    assert shared.say(f"get_{LIMIT} 0") == (f"{shown}\n" if shown else "")


@pytest.mark.parametrize(
    ("device", "zero", "one"),
    [
        ("0=2G", "", "5G"),
        ("GPU-11111111-2222-3333-4444-555555555555 3G", "", "5G"),
        ("abc 3G", "", "5G"),
        ("0x1 3G", "", "5G"),
        ("0.5 3G", "", "5G"),
        ("1 3G", "7G", "3G"),
        ("1abc 3G", "7G", ""),
        ("01 3G", "7G", "3G"),
        ("4294967296 3G", "3G", "5G"),
        ("-1 3G", "7G", "5G"),
        ("32 3G", "7G", "5G"),
        ("33 3G", "7G", "5G"),
        ("", "", "5G"),
    ],
)
def test_which_device_a_limit_is_of(shared, device, zero, one):
    shared.say(f"set_{LIMIT} 0 7G")
    shared.say(f"set_{LIMIT} 1 5G")
    assert shared.say(f"set_{LIMIT} {device}") == ""
    assert [shared.say(f"get_{LIMIT} {place}").strip() for place in (0, 1)] == [zero, one]
    assert shared.say(f"get_{LIMIT} 32") == ""


@pytest.mark.parametrize(("device", "shown"), [("", "7G"), ("abc", "7G"), ("0x1", "7G"), ("1abc", "5G"), ("-1", "")])
def test_which_device_is_asked_for(shared, device, shown):
    shared.say(f"set_{LIMIT} 0 7G")
    shared.say(f"set_{LIMIT} 1 5G")
    assert shared.say(f"get_{LIMIT} {device}").strip() == shown


def test_the_last_ordinal(running):
    running.say(f"set_{LIMIT} 31 1G")
    assert running.say(f"get_{LIMIT} 31") == "1G\n"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("get_server_list", ""),
        ("get_client_list", "Server 0 not found\n"),
        ("get_client_list 1234", "Server 1234 not found\n"),
        ("get_client_list abc", "Server 0 not found\n"),
        ("get_device_client_list", ""),
        ("get_device_client_list 1234", "Server 1234 not found\n"),
        ("get_active_thread_percentage 1234", "Server 1234 not found\n"),
        ("set_active_thread_percentage 1234 50", "Server 1234 not found\n"),
        ("get_device_pinned_mem_limit 1234 0", "Server 1234 not found\n"),
        ("set_device_pinned_mem_limit 1234 0 1G", "Server 1234 not found\n"),
        ("terminate_client 1 2", "Server 1 not found\nServer 1 not found!\n1\n"),
        ("terminate_client", "Server 0 not found\nServer 0 not found!\n1\n"),
        ("shutdown_server 1 -f", "Server 1 not found\n"),
        ("ps", "Server not found\n"),
        ("ps 12", "Server not found\n"),
        ("ps -p 1234", "Server 1234 not found\nServer 1234 not found\n\n"),
        ("start_server", "A user id (UID) is required to start a new server\n"),
        ("start_server -uid", "A user id (UID) is required to start a new server\n"),
        ("start_server -uid abc", "A user id (UID) is required to start a new server\n"),
        ("set_default_client_priority 2", "Invalid priority value - must be 0 or 1!\n"),
        ("foo bar", 'Unknown command "foo"\n'),
        ("", 'Unknown command ""\n'),
        ("help", 'Unknown command "help"\n'),
        ("lspart", 'Unknown command "lspart"\n'),
        ("GET_SERVER_LIST", 'Unknown command "GET_SERVER_LIST"\n'),
        (" get_default_client_priority  x", "0\n"),
    ],
)
def test_answers_without_a_server(shared, command, answer):
    assert shared.say(command) == answer


def test_server_status_came_with_550(shared):
    if shared.major == 535:
        assert shared.say("get_server_status 1234") == 'Unknown command "get_server_status"\n'
    else:
        assert shared.say("get_server_status 1234") == "Server 1234 not found\n"
        assert shared.say("get_server_status") == "A server PID is required\n"


def test_priority(running):
    assert running.say("set_default_client_priority 1") == ""
    assert running.say("get_default_client_priority") == "1\n"


def test_a_server_is_started_behind_the_back_and_its_end_is_only_logged(running):
    assert running.say(f"start_server -uid {os.getuid()}") == ""
    running.eventually(lambda: "exited with status 1" in running.control_log)
    assert "Starting new server" in running.control_log
    assert running.say("get_server_list") == ""


def test_several_commands_in_one_call_are_answered_in_one_stream(running):
    text = "get_default_active_thread_percentage\nfoo\nset_default_client_priority 0\nget_default_client_priority"
    assert running.call(text=text) == Said(0, '100.0\nUnknown command "foo"\n0\n')


@pytest.mark.parametrize("arguments", ["get_server_list", "server list", "-p 3 server list", "-p 3 -h", "-v", "-d -M"])
def test_other_arguments_are_ignored_and_standard_input_is_read(running, arguments):
    words = arguments.split()
    assert running.call(*words) == Said(0)
    assert running.call(*words, text="get_default_client_priority\n") == Said(0, "0\n")
    running.eventually(lambda: len(running.running()) == 1)


def test_help_is_a_banner_without_options(control):
    said = control.call("-h")
    assert said.code == 0
    assert said.out.startswith("CUDA MPS Control for Linux/Unix")
    assert "namespace" not in said.out


def test_the_log_tells_commands_and_answers(running):
    running.say("get_default_active_thread_percentage")
    running.say(f"get_{LIMIT} 0")
    running.say(f"set_{LIMIT} 40 1G")
    for part in ("NEW UI", "Cmd:get_default_active_thread_percentage", "100.0", "UI closed", "Invalid device ordinal!"):
        assert part in running.control_log
    assert "No default pinned memory limit set for the device!" in running.control_log


def test_the_environment_gives_defaults(control):
    control.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="40", CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G")
    assert control.say("get_default_active_thread_percentage") == "40.0\n"
    assert control.say(f"get_{LIMIT} 0") == ""


def test_an_environment_out_of_range_counts_for_nothing(control):
    control.start(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="400")
    assert control.say("get_default_active_thread_percentage") == "100.0\n"


def test_quit_leaves_the_sockets_and_a_restart_knows_nothing(running):
    running.say("set_default_active_thread_percentage 20")
    running.say(f"set_{LIMIT} 0 1G")
    assert running.call(text="quit\n") == Said(0)
    running.eventually(lambda: not running.running())
    assert {path.name for path in running.pipe.iterdir()} == {"control", "control_privileged", "control_lock"}
    assert running.call(text="get_server_list\n") == NO_DAEMON
    running.start()
    assert running.say("get_default_active_thread_percentage") == "100.0\n"
    assert running.say(f"get_{LIMIT} 0") == ""


def test_quit_with_a_time(running):
    assert running.call(text="quit -t 5\n") == Said(0)
    running.eventually(lambda: not running.running())
    assert "quit command issued with timeout of 5" in running.control_log


def test_a_killed_daemon_leaves_everything_and_the_next_does_not_mind(running):
    running.say("set_default_active_thread_percentage 20")
    before = {path.name for path in running.pipe.iterdir()}
    running.kill()
    assert {path.name for path in running.pipe.iterdir()} == before
    assert running.call(text="get_server_list\n") == NO_DAEMON
    running.start()
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_a_stopped_daemon_keeps_every_call_waiting(running):
    os.kill(running.pid(), signal.SIGSTOP)
    assert running.call(text="get_server_list\n", timeout=0.5) == Said(None)
    os.kill(running.pid(), signal.SIGCONT)
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_a_connection_that_says_nothing_stalls_everybody(running):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as idle:
        idle.connect(str(running.pipe / "control"))
        running.eventually(lambda: running.call(text="get_server_list\n", timeout=0.5) == Said(None))
    assert running.say("get_default_active_thread_percentage") == "100.0\n"
    assert "User did not send valid credentials" in running.control_log


def test_a_call_with_an_open_standard_input_costs_the_others_their_commands(running):
    if not running.real:
        running.fault(overlap=True)
        running.say("get_server_list")
    with subprocess.Popen(
        [running.executable], env=running.environ(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        holder.stdin.write(b"get_default_active_thread_percentage\n")
        holder.stdin.flush()
        running.eventually(lambda: "Cmd:get_default_active_thread_percentage" in running.control_log)
        for _ in range(2):
            said = running.call(text="set_default_active_thread_percentage 20\n")
            assert said.code in (0, 1)
            assert said.out == ""
            assert said.error in ("", "Cannot send command to MPS control daemon process\n")
        assert holder.communicate()[0] == b"100.0\n"
    assert running.say("get_default_active_thread_percentage") == "100.0\n"


def test_a_missing_pipe_directory_is_made_but_not_its_parents(control):
    missing = control.root / "x"
    assert control.call("-d", environ={"CUDA_MPS_PIPE_DIRECTORY": str(missing / "y")}) == Said(
        1, f"Cannot access CUDA_MPS_PIPE_DIRECTORY={missing / 'y'}\n"
    )
    assert not missing.exists()
    assert control.call("-d", environ={"CUDA_MPS_PIPE_DIRECTORY": str(missing)}) == Said(0)
    assert missing.is_dir()


def test_the_path_of_the_longer_socket_limits_the_pipe_directory(control):
    def of(length):
        path = control.root / ("q" * (length - len(str(control.root)) - 1))
        path.mkdir()
        return {"CUDA_MPS_PIPE_DIRECTORY": str(path)}

    assert control.call("-d", environ=of(88)) == Said(1)
    assert not control.running()
    fits = of(87)
    assert control.call("-d", environ=fits) == Said(0)
    control.eventually(lambda: control.call(text="get_server_list\n", environ=fits) == Said(0))


def test_an_unwritable_log_directory_is_a_warning(control):
    said = control.call("-d", environ={"CUDA_MPS_LOG_DIRECTORY": "/proc/1"})
    assert said == Said(0, "Warning: Failed writing log files to directory [/proc/1]. No logs will be available.\n")
    control.eventually(lambda: control.call(text="get_server_list\n") == Said(0))


def test_root_gets_by_without_the_public_socket(running):
    (running.pipe / "control").unlink()
    if os.getuid() == 0:
        assert running.say("get_default_client_priority") == "0\n"
        assert running.call(text="get_server_list\n", uid=NOBODY) == NO_DAEMON
    else:
        assert running.call(text="get_server_list\n") == NO_DAEMON


def test_in_the_foreground_the_log_goes_to_standard_output(control):
    with subprocess.Popen(
        [control.executable, "-f"], env=control.environ(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as daemon:
        control.eventually(lambda: control.call(text="get_server_list\n").code == 0)
        daemon.terminate()
        assert "Starting control daemon using socket" in daemon.stdout.read()
    assert daemon.returncode == -signal.SIGTERM
    assert "control_privileged" in {path.name for path in control.pipe.iterdir()}


@root_only
def test_what_others_may_not(running):
    def by_nobody(command):
        return running.say(command, uid=NOBODY)

    assert by_nobody("get_default_active_thread_percentage") == "100.0\n"
    assert by_nobody("ps") == "Server not found\n"
    assert by_nobody("quit") == "Not enough privilege to execute quit command\n"
    settings = {
        "set_default_active_thread_percentage 20": "20.0\n",
        f"set_{LIMIT} 0 1G": "",
        "set_default_client_priority 1": "",
    }
    refused = (
        f"Insufficient privileges for UID {NOBODY}. "
        "Control deamon settings can only be modified by the user started it or by the root user.\n"
    )
    for command, answer in settings.items():  # 535 lets everybody
        assert by_nobody(command) == (answer if running.major == 535 else refused)
    more = "" if running.major == 535 else ". Only the root user may start server for another user."
    assert by_nobody("start_server -uid 0") == f"Insufficient privileges for UID {NOBODY}{more}\n"
    assert by_nobody(f"start_server -uid {NOBODY}") == ""


@root_only
def test_whoever_started_it_may_set(control):
    for folder in (control.root, control.pipe, control.log):
        folder.chmod(0o777)
    assert control.call("-d", uid=NOBODY) == Said(0)
    control.eventually(lambda: control.call(text="get_server_list\n").code == 0)
    assert control.say("set_default_active_thread_percentage 30", uid=NOBODY) == "30.0\n"
    assert control.say("quit", uid=NOBODY - 1) == "Not enough privilege to execute quit command\n"
    assert control.say("quit", uid=NOBODY) == ""
    control.eventually(lambda: not control.running())
