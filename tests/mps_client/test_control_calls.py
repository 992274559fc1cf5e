"""One call: what is run, what its output means, and that it ends."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources import mps_commands
from exporter.sources.mps_control import MpsControl

# The share is asked for as a witness; here it is always answered.
ANSWERING = """
printf '%s|' "$CUDA_MPS_PIPE_DIRECTORY" "$@" >> {log}; echo >> {log}
while read -r line; do
    echo "$line" >> {log}
    case "$line" in
        get_default_active_thread_percentage) echo 100.0 ;;
        {cases}
    esac
done
"""


@pytest.fixture
def answering(script, short_tmp):
    return lambda cases: script(ANSWERING.format(cases=cases, log=short_tmp / "told"))


def control(binary, short_tmp, **options):
    (short_tmp / "pipe").mkdir(exist_ok=True)
    return MpsControl(binary, str(short_tmp / "pipe"), clock=Clock(), **{"deadline": 5.0, **options})


def told(short_tmp):
    return (short_tmp / "told").read_text().splitlines()


def test_a_question_and_its_witness(answering, short_tmp):
    binary = answering('"get_default_device_pinned_mem_limit 0") echo 4G ;;')
    assert control(binary, short_tmp).ask(mps_commands.default_limit(0)) == "4G"
    assert control(binary, short_tmp).ask(mps_commands.default_limit(1)) == ""
    assert told(short_tmp)[1:3] == ["get_default_device_pinned_mem_limit 0", "get_default_active_thread_percentage"]


def test_what_a_server_is_asked_is_enclosed_by_its_share(answering, short_tmp):
    binary = answering(
        '"get_active_thread_percentage 7") echo 50.0 ;; "get_client_list 7") echo 70; echo 71 ;; '
        '"get_client_list 8") echo 80 ;; get_server_list) echo 7 ;;'
    )
    asked = control(binary, short_tmp)
    assert asked.ask(mps_commands.client_list(7)) == "70\n71"
    assert asked.ask(mps_commands.limit(7, 0)) == ""
    assert asked.ask(mps_commands.server_list()) == "7"
    for command in (mps_commands.client_list(8), mps_commands.limit(8, 0), mps_commands.percentage(8)):
        assert asked.ask(command).reason is Reason.BUSY


def test_the_environment_has_nothing_of_mps_but_the_directory(script, short_tmp, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PROTOCOL_VERSION", "3")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/elsewhere")
    monkeypatch.setenv("KEPT", "1")
    binary = script(f"env > {short_tmp}/env; cat > /dev/null; echo 100.0")
    control(binary, short_tmp).ask(mps_commands.default_percentage())
    lines = (short_tmp / "env").read_text().splitlines()
    assert [line for line in lines if "CUDA_MPS" in line] == [f"CUDA_MPS_PIPE_DIRECTORY={short_tmp}/pipe"]
    assert "KEPT=1" in lines


def test_arguments_of_protocol_3_and_no_standard_input(script, short_tmp):
    binary = script(f'echo "$@" > {short_tmp}/told; cat >> {short_tmp}/told; echo name,pid,status')
    assert control(binary, short_tmp).ask(mps_commands.servers()) == "name,pid,status"
    assert told(short_tmp) == ["-p 3 server list --format=csv"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("echo Cannot find MPS control daemon process >&2; exit 1", Reason.DAEMON_NOT_RUNNING),
        ("echo Cannot find MPS control daemon process; exit 0", Reason.DAEMON_NOT_RUNNING),
        ("echo Cannot send command to MPS control daemon process >&2; exit 1", Reason.COMMAND_LOST),
        ("echo Cannot send command to MPS control daemon process >&2; exit 0", Reason.COMMAND_LOST),
        ("exit 0", Reason.COMMAND_LOST),
        ("exit 1", Reason.COMMAND_LOST),
        ("echo Insufficient privileges for UID 65534.; echo 100.0", Reason.NO_PERMISSION),
        ('echo "Unknown command \\"x\\""; echo 100.0', Reason.UNKNOWN_COMMAND),
        ("echo Server 7 not found; echo Server 7 not found; echo Server 7 not found; echo 100.0", Reason.NOT_FOUND),
        ("echo 'Server 7 is <busy>'; echo 100.0", Reason.BUSY),
        ("echo error while loading shared libraries >&2; exit 127", Reason.MALFORMED),
        ("echo something else", Reason.MALFORMED),
        ("yes", Reason.TOO_LARGE),
    ],
)
def test_what_went_wrong_is_told_by_the_text(script, short_tmp, body, reason):
    for command in (mps_commands.limit(7, 0), mps_commands.percentage(7)):
        answer = control(script(body), short_tmp).ask(command)
        assert isinstance(answer, Failure)
        assert answer.reason is reason
        assert "\n" not in answer.detail


def test_the_exit_code_is_not_looked_at(script, short_tmp):
    assert control(script("echo 40.0; echo 40.0; exit 1"), short_tmp).ask(mps_commands.default_percentage()) == "40.0"


def test_a_lost_command_is_given_again_twice(script, short_tmp):
    binary = script(
        f"echo x >> {short_tmp}/told; test $(wc -l < {short_tmp}/told) -gt $LOST && echo 100.0 && echo 100.0"
    )
    for lost, answered in ((2, True), (3, False)):
        (short_tmp / "told").unlink(missing_ok=True)
        os.environ["LOST"] = str(lost)
        try:
            answer = control(binary, short_tmp).ask(mps_commands.default_percentage())
        finally:
            del os.environ["LOST"]
        assert (answer == "100.0") is answered
        assert len(told(short_tmp)) == 3
        if not answered:
            assert answer.reason is Reason.COMMAND_LOST


def test_other_failures_are_not_asked_again(script, short_tmp):
    binary = script(f"echo x >> {short_tmp}/told; echo Cannot find MPS control daemon process >&2; exit 1")
    control(binary, short_tmp).ask(mps_commands.default_percentage())
    assert len(told(short_tmp)) == 1


def test_a_hanging_call_is_ended_with_all_that_it_started(script, short_tmp):
    binary = script(f"sleep 1000 & echo $! > {short_tmp}/child; echo $$ >> {short_tmp}/child; wait")
    begun = time.monotonic()
    answer = control(binary, short_tmp, deadline=0.7).ask(mps_commands.default_percentage())
    assert answer.reason is Reason.DAEMON_WEDGED
    assert time.monotonic() - begun < 5
    for pid in (short_tmp / "child").read_text().split():
        deadline = time.monotonic() + 10
        while (path := Path(f"/proc/{pid}/stat")).exists() and path.read_text().split(") ")[1][0] != "Z":
            assert time.monotonic() < deadline


def test_a_child_that_leaves_its_output_to_others_is_not_waited_for(script, short_tmp):
    answer = control(script("sleep 1000 & exit 0"), short_tmp, deadline=0.7).ask(mps_commands.default_percentage())
    assert answer.reason is Reason.DAEMON_WEDGED


def test_too_short_a_rest_of_a_deadline_accuses_nobody(script, short_tmp):
    asked = control(script("sleep 1000"), short_tmp)
    answer = asked.ask(mps_commands.default_percentage(), until=time.monotonic() + 0.05)
    assert answer.reason is Reason.TIMEOUT
    assert asked.ask(mps_commands.default_percentage(), until=time.monotonic() - 1).reason is Reason.TIMEOUT


def test_lost_commands_are_repeated_within_the_deadline_only(script, short_tmp):
    binary = script("sleep 0.4; exit 0")
    begun = time.monotonic()
    answer = control(binary, short_tmp, deadline=0.6).ask(mps_commands.default_percentage())
    assert answer.reason in (Reason.TIMEOUT, Reason.COMMAND_LOST)
    assert time.monotonic() - begun < 5


def test_a_command_that_is_not_there(short_tmp):
    for binary in ("nvidia-cuda-mps-nothing", "/nonexistent/nvidia-cuda-mps-control"):
        answer = control(binary, short_tmp).ask(mps_commands.server_list())
        assert answer.reason is Reason.MISSING
        assert "NVIDIA_DRIVER_CAPABILITIES" in answer.detail
        assert "--mps.control" in answer.detail


def test_a_command_that_can_not_be_run(short_tmp):
    path = short_tmp / "nvidia-cuda-mps-control"
    path.write_bytes(b"\x7fELF but not really")
    path.chmod(0o755)
    assert control(str(path), short_tmp).ask(mps_commands.server_list()).reason is Reason.UNREADABLE
    path.write_text("#!/nonexistent/interpreter\n")
    assert control(str(path), short_tmp).ask(mps_commands.server_list()).reason is Reason.MISSING


AS_NOBODY = """
import os, sys
from exporter.clock import Clock
from exporter.sources import mps_commands
from exporter.sources.mps_control import MpsControl
os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(MpsControl(sys.argv[1], sys.argv[2], clock=Clock()).ask(mps_commands.server_list()))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_directory_that_may_not_be_searched(script, short_tmp):
    binary = script("echo Cannot find MPS control daemon process >&2; exit 1")
    (short_tmp / "closed" / "pipe").mkdir(parents=True)
    short_tmp.chmod(0o755)
    (short_tmp / "closed").chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, binary, str(short_tmp / "closed" / "pipe")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("no_permission: ")


def test_a_path_too_long_for_a_socket_is_reached_all_the_same(script, short_tmp):
    deep = short_tmp / ("d" * 90) / "pipe"
    deep.mkdir(parents=True)
    folder = os.open(deep, os.O_PATH)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"/proc/self/fd/{folder}/control")
    os.close(folder)
    binary = script('test -S "$CUDA_MPS_PIPE_DIRECTORY/control" && echo 100.0; echo 100.0; cat > /dev/null')
    asked = MpsControl(binary, str(deep), clock=Clock())
    assert asked.ask(mps_commands.default_percentage()) == "100.0"
    server.close()
    asked = MpsControl(binary, str(deep) + "x", clock=Clock())
    assert asked.ask(mps_commands.default_percentage()).reason is Reason.MISSING


def test_no_descriptors_and_no_zombies_are_left(script, short_tmp):
    asked = control(script("echo 100.0; echo 100.0; cat > /dev/null"), short_tmp)
    asked.ask(mps_commands.default_percentage())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asked.ask(mps_commands.default_percentage())
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
