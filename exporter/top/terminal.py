"""The terminal: lines out, keys in. Plain ANSI sequences and termios, so that it needs no terminal database.

Guarantees: whatever ends the program, short of a kill, the terminal is as it was before; Ctrl-Z gives it back while the
program sleeps; a change of its size is noticed; no colours where NO_COLOR is set. A screen is drawn as a whole.
"""

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, Self

from exporter.top.table import ASCII, Glyphs, Line, Style

_ENTER = b"\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
_LEAVE = b"\x1b[?25h\x1b[?1049l"
_COLOURS = {
    Style.TITLE: "7",
    Style.GPU: "1",
    Style.FAINT: "2",
    Style.NEAR: "33",
    Style.OVER: "31;1",
    Style.WRONG: "35;1",
}


class Terminal:
    """The terminal of standard input and output, as a context manager. To be used by the main thread.

    `ended` is set, and a `wait` ends, when a signal asked the program to end.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.ended = False
        self.glyphs = glyphs()
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._coloured = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        # Never closed: a thread that asks for a view may want to wake us after we have left.
        self._woken, self._wake = os.pipe()
        for end in (self._woken, self._wake):
            os.set_blocking(end, False)

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._in)
        wanted = {
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: self._sleep,
            **dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP), self._end),
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in wanted.items()}
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def size(self) -> tuple[int, int]:
        """Columns and lines. Raises EOFError when the terminal is gone."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            raise EOFError from None
        return (found.columns or 80, found.lines or 24)

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        with suppress(BlockingIOError):  # then it is full of what will end the wait
            os.write(self._wake, b".")

    def wait(self, seconds: float) -> bytes:
        """What was typed. Returns also, with nothing, in time, when the size has changed or somebody called `wake`.

        Raises EOFError when the terminal is gone.
        """
        ready, _, _ = select.select([self._in, self._woken], [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in not in ready:
            return b""
        try:
            typed = os.read(self._in, 4096)
        except OSError:
            raise EOFError from None
        if not typed:
            raise EOFError
        return typed

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines, and nothing else. Raises EOFError when the terminal is gone."""
        text = "\r\n".join(f"{self._styled(line)}\x1b[K" for line in lines)
        data = memoryview(f"\x1b[H{text}\x1b[J".encode(sys.stdout.encoding, errors="replace"))
        try:
            while data:
                data = data[os.write(self._out, data) :]
        except OSError:
            raise EOFError from None

    def _styled(self, line: Line) -> str:
        code = _COLOURS.get(line.style) if self._coloured else None
        return line.text if code is None else f"\x1b[{code}m{line.text}\x1b[0m"

    def _take(self) -> None:
        tty.setcbreak(self._in)
        mode = termios.tcgetattr(self._in)
        mode[0] &= ~termios.IXON  # Ctrl-S would stop us in the middle of a write
        termios.tcsetattr(self._in, termios.TCSANOW, mode)
        os.write(self._out, _ENTER)

    def _give_back(self) -> None:
        with suppress(OSError, termios.error):  # then it is gone, and needs nothing back
            os.write(self._out, _LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _resized(self, _number: int, _frame: FrameType | None) -> None:
        self.wake()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.ended = True
        self.wake()

    def _sleep(self, _number: int, _frame: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take()
        self.wake()


def glyphs() -> Glyphs:
    """The characters that standard output can write."""
    wanted = Glyphs()
    try:
        f"{wanted.full}{wanted.empty}{wanted.ellipsis}".encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return ASCII
    return wanted


def columns() -> int:
    """The width for output that no one scrolls: the terminal's, or what COLUMNS says, else 120."""
    return shutil.get_terminal_size((120, 24)).columns
