"""The command `podgpu` as a user types it."""

import signal
import subprocess
import sys

import pytest

from simulator.scenario_file import names

PODGPU = [sys.executable, "-m", "exporter"]


def run(*arguments, **options):
    return subprocess.run([*PODGPU, *arguments], capture_output=True, text=True, timeout=60, check=False, **options)


def test_help_and_version():
    assert "exporter" in run("--help").stdout
    assert run("--version").stdout.startswith("podgpu ")
    assert "--web.listen-address" in run("exporter", "--help").stdout
    assert all(name in run("demo", "--help").stdout for name in names())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which command?"),
        (("exprter",), "did you mean exporter?"),
        (("exporter", "--interval=x"), "--interval"),
        (("exporter", "--nonsense"), "--nonsense"),
        (("exporter", "--web.listen-address=nowhere"), "nowhere"),
        (("exporter", "--web.config.file=/no/such/file"), "/no/such/file"),
        (("demo", "--scenario", "nosuch"), "nosuch"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_2(arguments, says):
    result = run(*arguments)
    assert result.returncode == 2
    line = result.stderr.splitlines()[-1]
    assert says in line
    assert line.startswith("podgpu")
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_port_that_is_taken(tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("exporter", f"--web.listen-address={address}")
    assert result.returncode == 2
    assert address in result.stderr.splitlines()[-1]


@pytest.mark.whole
def test_demo_once_prints_a_page_and_leaves_nothing_behind(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    result = run("demo", "--once", "--scenario", "mps", env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("# HELP")
    assert 'podgpu_container_memory_used_bytes{container="server"' in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.whole
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_running_demo_shows_a_table_and_ends_cleanly(tmp_path, number):
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*PODGPU, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        shown = ""
        while "(free)" not in shown:
            line = demo.stdout.readline()
            assert line, demo.stderr.read()
            shown += line
        demo.send_signal(number)
        assert demo.wait(30) == 0
        assert "Traceback" not in demo.stderr.read()
    assert "research/llm-train-0/trainer" in shown
    assert "http://127.0.0.1:" in shown
    assert "GIVEN" in shown
    assert list(tmp_path.iterdir()) == []
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""


@pytest.mark.whole
def test_a_demo_for_some_seconds_ends_by_itself(tmp_path):
    result = run(
        "demo", "--for", "1", "--scenario", "exclusive", env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    )
    assert result.returncode == 0, result.stderr
    assert "research/finetune-0/trainer" in result.stdout


def test_a_policy_file_that_cant_be_used(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("defaults:\n  memory: {default: much}\n")
    result = run("exporter", "--web.listen-address=127.0.0.1:0", f"--caps.policy-file={path}")
    assert result.returncode == 2
    line = result.stderr.splitlines()[-1]
    assert line.startswith("podgpu exporter: ")
    assert f"{path}" in line
    assert "2" in line
