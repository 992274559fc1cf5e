"""The daemon's log files, with the lines of the real ones as far as somebody may read them."""

import sys
import time
from pathlib import Path
from typing import TextIO


class Logs:
    """control.log and the servers' logs in a folder. None: they can't be written, or go to standard output."""

    def __init__(self, folder: Path | None, *, pid: int, foreground: bool = False) -> None:
        self._folder = folder
        self._pid = pid
        self._control: TextIO | None = sys.stdout if foreground else None
        if folder is not None:
            (folder / "server.log").open("a").close()
            if not foreground:
                self._control = (folder / "control.log").open("a", buffering=1)

    @property
    def files(self) -> list[int]:
        """The descriptors to keep open."""
        return [] if self._control is None else [self._control.fileno()]

    def belong_to(self, pid: int) -> None:
        """Go on as another process."""
        self._pid = pid

    def control(self, text: str) -> None:
        """One or more lines of the control daemon."""
        if self._control is not None:
            for line in text.splitlines() or [""]:
                self._control.write(_line("Control", self._pid, line))
            self._control.flush()

    def server(self, pid: int, text: str, *, name: str = "") -> None:
        """A line of a server; each named server (protocol 3) has a file of its own."""
        if self._folder is None:
            return
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        with (folder / "server.log").open("a") as log:
            log.write(_line("Server", pid, text))


def _line(who: str, pid: int, text: str) -> str:
    now = time.time()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
    return f"[{stamp}.{int(now * 1000) % 1000:03} {who} {pid:5}] {text}\n"
