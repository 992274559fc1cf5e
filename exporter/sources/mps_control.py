"""Gives commands to an MPS control daemon, one at a time, and says what became of each.

The control command takes the daemon's pipe directory from its environment and one command from its standard input
(protocol 2) or its arguments (protocol 3). Each call is a process of its own, because several answers in one could not
be told apart. Its exit code is not looked at.

No answer is also what a daemon gives to a question for a limit that is not set, to one that it lost because somebody
else asked at the same moment, and to one for a server that does not respond. With protocol 2 the three are told apart
by witnesses: questions of the same call that are never answered with nothing. A daemon serves a call whole or not at
all, so without the last witness the command was lost. What a server was asked is enclosed by questions for its share;
if one of these has no answer, the server is busy.

Guarantees: an answer by the deadline, waiting for others and repeating lost commands included; standard input is always
closed, since the command waits for its end for ever; no child outlives its call; nothing but a `Command` is passed on.
"""

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_commands import Command
from exporter.sources.mps_lock import alone

DEADLINE = 3.0  # seconds
_REPEATS = 2
_PATIENCE = 0.5  # seconds; after less it can't be told whether the daemon is stuck or this machine is slow
_PAUSE = 0.02  # seconds; calls that begin 10 ms apart have never been seen to meet
_MOST_OUTPUT = 1 << 20  # bytes
_LONGEST_SOCKET = 107  # bytes of a socket's path, as the kernel has it
_REAPED_WITHIN = 0.2  # seconds from a kill to the end of a child, unless the kernel holds it
_WITNESS = mps_commands.default_percentage()


class DaemonGoneError(Exception):
    """A daemon does not answer, or not any more: for those who read it in several commands, all of them are void."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Said:
    """What the command printed, on its standard output and error."""

    out: str
    err: str


class MpsControl:
    """The daemon behind one pipe directory. For use by any number of threads and processes at once.

    `deadline` is in seconds, for one command with all that it takes.
    """

    def __init__(self, binary: str, pipe_directory: str, *, deadline: float = DEADLINE, clock: Clock) -> None:
        self.pipe_directory = pipe_directory
        self._binary = binary
        self._deadline = deadline
        self._clock = clock

    def ask(self, command: Command, *, until: float | None = None) -> str | Failure:
        """Give a command; its answer, or why there is none. `until` (monotonic) may end it before the deadline does."""
        now = self._clock.monotonic()
        until = now + self._deadline if until is None else min(until, now + self._deadline)
        for attempt in range(1 + _REPEATS):
            if attempt:
                time.sleep(max(0.0, min(_PAUSE * attempt, until - self._clock.monotonic())))
            answer = self._once(command, until)
            if not isinstance(answer, Failure) or answer.reason is not Reason.COMMAND_LOST:
                break
        return answer

    def _once(self, command: Command, until: float) -> str | Failure:
        with alone(self.pipe_directory, until=until, clock=self._clock) as held:
            if not held:
                return Failure(Reason.TIMEOUT, f"{self.pipe_directory}: another call has not ended in time")
            said = self._run(command, until)
        if isinstance(said, Failure):
            return said
        answer = mps_text.refusal(said.err) or _answer(command, said)
        if isinstance(answer, Failure):
            return self._explained(answer)
        return answer

    def _run(self, command: Command, until: float) -> Said | Failure:
        if command.protocol == 3:
            return run(self._binary, ("-p", "3", *command.words), self.pipe_directory, until=until, clock=self._clock)
        around = [mps_commands.percentage(command.server)] if command.server is not None and not command.speaks else []
        text = "".join(f"{line}\n" for line in (*around, command, *around, _WITNESS))
        return run(self._binary, (), self.pipe_directory, text=text, until=until, clock=self._clock)

    def _explained(self, problem: Failure) -> Failure:
        """Name the directory, and tell one that may not be looked into from one without a daemon: the command can't."""
        if problem.reason is Reason.DAEMON_NOT_RUNNING:
            try:
                os.stat(os.path.join(self.pipe_directory, "control"))
            except PermissionError as error:
                return unusable(self.pipe_directory, error)
            except OSError:
                pass  # it is as the command says
        return Failure(problem.reason, f"{self.pipe_directory}: {problem.detail}")


def _answer(command: Command, said: Said) -> str | Failure:
    """The answer to a command in what was said to it and to its witnesses."""
    lines = said.out.strip("\n").split("\n")
    if command.protocol == 2 and isinstance(mps_text.ratio(lines.pop()), Failure):
        return _lost(command, said)
    answer = "\n".join(lines)
    problem = mps_text.refusal(answer)
    if problem is not None:
        return problem
    if command.protocol == 2 and command.server is not None and not command.speaks:
        if len(lines) < 2 or not (mps_text.is_share(lines[0]) and mps_text.is_share(lines[-1])):
            return _busy(command.server)
        return "\n".join(lines[1:-1])
    if answer.strip():
        return answer
    if command.protocol == 3 and said.err.strip():
        return _lost(command, said)  # refused, in words that are not known
    if command.speaks:
        return _lost(command, said) if command.server is None else _busy(command.server)
    return ""


def _busy(server: int) -> Failure:
    return Failure(Reason.BUSY, f"server {server} does not respond to its daemon")


def _lost(command: Command, said: Said) -> Failure:
    other = said.err.strip() or said.out.strip()
    if not other:
        return Failure(Reason.COMMAND_LOST, f"no answer to {command}")
    return mps_text.refusal(other) or Failure(Reason.MALFORMED, f"{command}: {mps_text.shown(other)}")


def run(
    binary: str, arguments: tuple[str, ...], pipe_directory: str, *, text: str = "", until: float, clock: Clock
) -> Said | Failure:
    """Run the control command with its standard input closed after `text`, and end it at `until` (monotonic)."""
    path = shutil.which(binary)
    if path is None:
        return Failure(
            Reason.MISSING,
            f"there is no {binary} here: the container needs NVIDIA_DRIVER_CAPABILITIES with compute, or --mps.control",
        )
    begun = clock.monotonic()
    if begun >= until:
        return Failure(Reason.TIMEOUT, f"{pipe_directory}: no time left")
    with contextlib.ExitStack() as stack:
        kept: tuple[int, ...] = ()
        if len(os.fsencode(os.path.join(pipe_directory, "control_privileged"))) > _LONGEST_SOCKET:
            try:
                kept = (os.open(pipe_directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC),)
            except OSError as error:
                return unusable(pipe_directory, error)
            stack.callback(os.close, kept[0])
            pipe_directory = f"/proc/self/fd/{kept[0]}"
        try:
            child = subprocess.Popen(
                [path, *arguments],
                stdin=subprocess.PIPE if text else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(pipe_directory),
                cwd="/",
                pass_fds=kept,
                start_new_session=True,  # so that whatever it starts itself can be ended with it
            )
        except OSError as error:
            return unusable(path, error)
    try:
        outcome = _converse(child, text, until=until, clock=clock)
    finally:
        _end(child)
    if outcome is not None:
        return outcome
    waited = clock.monotonic() - begun
    reason = Reason.DAEMON_WEDGED if waited >= _PATIENCE else Reason.TIMEOUT
    return Failure(reason, f"{pipe_directory}: the control command has not ended within {waited:.1f} s")


def _converse(child: "subprocess.Popen[bytes]", text: str, *, until: float, clock: Clock) -> Said | Failure | None:
    """Hand over the text, and read until the end of both streams. None: that did not come in time."""
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(text.encode())  # a few bytes: less than a pipe holds
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    streams = {stream.fileno(): bytearray() for stream in (child.stdout, child.stderr) if stream is not None}
    with selectors.DefaultSelector() as selector:
        for descriptor in streams:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = until - clock.monotonic()
            if left <= 0:
                return None
            for key, _ in selector.select(left):
                read = os.read(key.fd, 1 << 16)
                streams[key.fd] += read
                if not read:
                    selector.unregister(key.fd)
                elif len(streams[key.fd]) > _MOST_OUTPUT:
                    return Failure(Reason.TOO_LARGE, "the control command prints without end")
    out, err = (bytes(stream).decode("utf-8", "replace") for stream in streams.values())
    return Said(out, err)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child and all that it started, and reap it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    with contextlib.suppress(subprocess.TimeoutExpired):  # held by the kernel; reaped at a later call
        child.wait(_REAPED_WITHIN)


def _environment(pipe_directory: str) -> dict[str, str]:
    """Our own, with nothing of MPS but the directory: a percentage or a protocol in it would change what is asked."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
    return {**ours, "CUDA_MPS_PIPE_DIRECTORY": pipe_directory}


def unusable(path: str, error: OSError) -> Failure:
    """Why a path is of no use."""
    if isinstance(error, PermissionError):
        return Failure(Reason.NO_PERMISSION, f"{path}: {error.strerror} for user {os.geteuid()}")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Failure(Reason.MISSING, f"{path}: {error.strerror}; or the C library that it needs is not here")
    return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")
