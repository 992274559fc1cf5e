"""`podgpu top` as a program: on a terminal with keys, size and signals, and for programs that read it."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from simulator.processes import exporter_environment, exporter_flags

pytestmark = pytest.mark.whole

GOLDEN = Path(__file__).parent / "golden"
PODGPU = [sys.executable, "-m", "exporter", "top"]
PATIENCE = 20.0
_SEQUENCE = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")


def run(*arguments, **variables):
    return subprocess.run(
        [*PODGPU, *arguments],
        env={**os.environ, "COLUMNS": "120", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def node(make):
    return make("annotations")


@pytest.fixture
def served(node):
    node.start_exporter()
    return node, f"http://{node.address}/metrics"


def node_flags(node):
    return [flag for flag in exporter_flags(node.paths, address=":0") if not flag.startswith("--web.")]


class OnTerminal:
    """The program on a pseudo-terminal: what it shows now, and keys to press."""

    def __init__(self, *arguments, size=(100, 24), program=PODGPU, **variables):
        self._main, self._side = pty.openpty()
        self.resize(size, tell=False)
        self.mode = termios.tcgetattr(self._side)
        self._received = ""
        self.process = subprocess.Popen(
            [*program, *arguments],
            stdin=self._side,
            stdout=self._side,
            stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm", **variables},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, size, *, tell=True):
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self._size = size
        if tell:
            os.kill(self.process.pid, signal.SIGWINCH)

    def press(self, text):
        os.write(self._main, text.encode())

    @property
    def raw(self):
        while select.select([self._main], [], [], 0)[0]:
            try:
                self._received += os.read(self._main, 65536).decode(errors="replace")
            except OSError:  # Linux says so when the other side has closed
                break
        return self._received

    def screen(self):
        """The last frame that was drawn to its end, as lines."""
        frames = self.raw.split("\x1b[H")[1:]
        done = [frame.partition("\x1b[J")[0] for frame in frames if "\x1b[J" in frame]
        return [_SEQUENCE.sub("", line).rstrip("\r") for line in done[-1].split("\n")] if done else []

    def until(self, holds):
        until = time.monotonic() + PATIENCE
        while not holds(screen := self.screen()):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < until, screen
            time.sleep(0.02)
        return screen

    def names(self):
        return [line.split()[0] for line in self.screen()[2:-1] if line.startswith("  ") and "/" in line]

    def ends(self):
        """Its exit code; the terminal is as it was before."""
        code = self.process.wait(PATIENCE)
        assert self.raw.endswith("\x1b[?25h\x1b[?1049l"), self.raw[-200:]
        assert termios.tcgetattr(self._side) == self.mode
        assert self.process.stderr.read() == b""
        return code

    def hang_up(self):
        for end in (self._main, self._side):
            os.close(end)
        self._main = self._side = os.open(os.devnull, os.O_RDWR)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        for end in {self._main, self._side}:
            os.close(end)


@pytest.fixture
def on_terminal():
    started = []

    def start(*arguments, **options):
        started.append(OnTerminal(*arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


# --- on a terminal ------------------------------------------------------------------------------------------------


def test_keys_sort_filter_and_quit(served, on_terminal):
    _, url = served
    top = on_terminal(f"--url={url}", "--interval=500ms", size=(130, 24))
    top.until(lambda screen: any("team-a/train-0/trainer" in line for line in screen))
    assert top.names()[:2] == ["team-a/train-0/trainer", "team-a/serve-7d9f-x1/server"]
    top.press("n")
    top.until(lambda screen: "by name" in screen[0])
    assert top.names()[0] == "team-a/serve-7d9f-x1/server"
    top.press("/TYPO")
    top.until(lambda screen: screen[-1].startswith("/TYPO_") and "1 container" in screen[0])
    assert top.names() == ["team-b/typo-0/main"]
    top.press("\r\x1b")
    top.until(lambda screen: "4 containers" in screen[0])
    assert any("\x1b[31;1m  team-a/train-0/trainer" in line for line in top.raw.split("\r\n"))  # it is over its cap
    top.press("q")
    assert top.ends() == 0


def test_a_changed_size_is_drawn_anew_and_scrolled(served, on_terminal):
    _, url = served
    top = on_terminal(f"--url={url}", size=(100, 24))
    top.until(lambda screen: len(screen) == 24 and any("(free)" in line for line in screen))
    top.resize((60, 7))
    screen = top.until(lambda screen: len(screen) == 7)
    assert max(map(len, screen)) <= 60
    assert "more lines" in screen[-1]
    assert not any("(free)" in line for line in screen)
    top.press("\x1b[F")
    top.until(lambda screen: any("(free)" in line for line in screen))
    top.press("q")
    assert top.ends() == 0


@pytest.mark.parametrize("how", ["ctrl-c", "sigterm", "sighup"])
def test_whatever_ends_it_the_terminal_is_as_before(served, on_terminal, how):
    top = on_terminal(f"--url={served[1]}")
    top.until(lambda screen: len(screen) == 24)
    if how == "ctrl-c":
        top.press("\x03")
    else:
        top.process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGHUP)
    assert top.ends() == 0


def test_a_terminal_that_goes_ends_it(served, on_terminal):
    top = on_terminal(f"--url={served[1]}", "--interval=100ms")
    top.until(lambda screen: len(screen) == 24)
    top.hang_up()
    assert top.process.wait(PATIENCE) == 0
    assert top.process.stderr.read() == b""


def test_a_program_that_sleeps_gives_the_terminal_back(served, on_terminal):
    top = on_terminal(f"--url={served[1]}")
    top.until(lambda screen: len(screen) == 24)
    top.press("\x1a")
    _, status = os.waitpid(top.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert top.raw.endswith("\x1b[?25h\x1b[?1049l")
    before = len(top.raw)
    top.process.send_signal(signal.SIGCONT)
    top.until(lambda _: "\x1b[?1049h" in top.raw[before:] and "\x1b[J" in top.raw[before:])
    top.press("q")
    assert top.ends() == 0


def test_no_colours_where_they_are_not_wanted(served, on_terminal):
    top = on_terminal(f"--url={served[1]}", NO_COLOR="1")
    top.until(lambda screen: any("train-0" in line for line in screen))
    assert not re.search(r"\x1b\[[0-9;]*m", top.raw)


def test_an_exporter_that_goes_away_takes_its_numbers_along_and_comes_back(served, on_terminal):
    node, url = served
    top = on_terminal(f"--url={url}", "--interval=200ms")
    top.until(lambda _: len(top.names()) == 4)
    node.processes.stop(node.exporter)
    top.until(lambda screen: "refused" in screen[2] and not top.names())
    node.start_exporter()
    top.until(lambda _: len(top.names()) == 4)
    top.press("q")
    assert top.ends() == 0


def test_live_from_the_node_itself(make, on_terminal):
    node = make("mixed")
    top = on_terminal("--node", "--interval=300ms", *node_flags(node), **exporter_environment(node.paths))
    top.until(lambda screen: len(top.names()) == 7 and "this node" in screen[0])
    node.node.advance(30)
    top.until(lambda _: len(top.names()) == 8)
    top.press("q")
    assert top.ends() == 0


def test_the_demo_is_top_on_a_simulated_node(tmp_path, on_terminal):
    demo = on_terminal(program=[*PODGPU[:-1], "demo"], size=(130, 24), TMPDIR=str(tmp_path))
    demo.until(lambda _: "research/llm-train-0/trainer" in demo.names())
    demo.press("q")
    assert demo.process.wait(PATIENCE) == 0
    assert list(tmp_path.iterdir()) == []


# --- for programs -------------------------------------------------------------------------------------------------


def test_once_and_json_are_the_golden_ones(served, request):
    _, url = served
    text = run(f"--url={url}", "--once")
    assert (text.returncode, text.stderr) == (0, "")
    stable = re.sub(r"\d+ s ago", "N s ago", text.stdout).replace(url, "URL")
    told = run(f"--url={url}", "--json", "--sort=cap", "--namespace=team-a")
    assert (told.returncode, told.stderr) == (0, "")
    found = json.loads(told.stdout)
    assert found.pop("timestamp") > 1e9
    shown = json.dumps(found, indent=2) + "\n"
    for name, content in (("top.txt", stable), ("top.json", shown)):
        if request.config.getoption("--write-golden"):
            (GOLDEN / name).write_text(content)
        assert content == (GOLDEN / name).read_text(), f"{name}: if it should differ, run pytest with --write-golden"


def test_once_from_the_node_is_what_its_exporter_shows(served):
    node, url = served
    environment = exporter_environment(node.paths)
    of_node = run("--node", "--json", *node_flags(node), **environment)
    assert of_node.returncode == 0, of_node.stderr
    of_page = json.loads(run(f"--url={url}", "--json").stdout)
    found = json.loads(of_node.stdout)
    for one in (found, of_page):
        del one["timestamp"]
        for gpu in one["gpus"]:  # one cycle has no window of utilization before it
            for container in gpu["containers"]:
                del container["sm_utilization_ratio"]
    assert found == of_page


def test_without_a_terminal_it_prints_once(served):
    result = run(f"--url={served[1]}")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "team-a/train-0/trainer" in result.stdout


def test_ascii_where_nothing_else_can_be_written(served):
    assert run(f"--url={served[1]}", "--once", PYTHONIOENCODING="ascii").stdout.isascii()


def test_an_exporter_that_is_not_there_is_one_line():
    result = run("--url=http://127.0.0.1:1/metrics", "--once")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("podgpu top: http://127.0.0.1:1/metrics: ")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--path.procfs=/proc"], "--path.procfs: needs --node"),
        (["--node", "--url=http://x/"], "--url: can't be used with --node"),
        (["--sort=colour"], "--sort"),
        (["--interval=soon", "--once"], "--interval"),
        (["--url=nonsense"], "--url"),
        (["--nosuch"], "--nosuch"),
    ],
)
def test_a_wrong_flag_is_one_line(arguments, named):
    result = run(*arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert result.stderr.count("\n") == 1
