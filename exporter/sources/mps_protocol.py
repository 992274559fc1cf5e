"""Which protocol a daemon speaks, which no exit code and no version number tells.

Drivers before 615 take every argument for a question on standard input and answer "" with exit code 0. So the command
is first asked, away from any daemon, whether its help knows of protocol 3 at all, once for each file that it is; only
then is a daemon asked for protocol 3's list of servers, and only a header line counts. Everything else has to prove
that it speaks protocol 2.
"""

import os
import shutil
import threading

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_control import MpsControl, run

_NOWHERE = "/proc/nonexistent"  # a pipe directory that can't exist: help needs no daemon, and must not disturb one


class ProtocolThree:
    """Whether the control command knows protocol 3. Shared by all pipe directories."""

    def __init__(self, binary: str, *, clock: Clock) -> None:
        self._binary = binary
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[int, ...], bool] = {}  # of the file that the command is at present

    def known(self, *, until: float) -> bool | Failure:
        """By its help. `until` is monotonic."""
        identity = self._file()
        if not self._lock.acquire(timeout=max(0.0, until - self._clock.monotonic())):
            return Failure(Reason.TIMEOUT, f"{self._binary}: its help has not come in time")
        try:
            if identity not in self._known:
                said = run(self._binary, ("-p", "3", "-h"), _NOWHERE, until=until, clock=self._clock)
                if isinstance(said, Failure):
                    return said
                text = said.out + said.err
                self._known = {identity: "namespace" in text and "server" in text}
            return self._known[identity]
        finally:
            self._lock.release()

    def _file(self) -> tuple[int, ...]:
        try:
            status = os.stat(shutil.which(self._binary) or "")
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_mtime_ns


def protocol(control: MpsControl, three: ProtocolThree, *, until: float) -> int | Failure:
    """The protocol of the daemon behind `control`: 2 or 3."""
    known = three.known(until=until)
    if isinstance(known, Failure):
        return known
    if known:
        listed = control.ask(mps_commands.servers(), until=until)
        if isinstance(listed, str) and mps_text.is_server_list(listed):
            return 3
    answer = control.ask(mps_commands.default_percentage(), until=until)
    if isinstance(answer, Failure):
        return answer
    share = mps_text.ratio(answer)
    return share if isinstance(share, Failure) else 2
