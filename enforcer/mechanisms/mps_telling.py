"""Telling an MPS daemon something until it shows, within a time; shared by both protocols.

Daemons lose commands, some without a trace. So what was told is looked for, and told again, a few times at most. A
daemon that does not answer is not asked on.
"""

import time

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.mps_commands import Command
from exporter.sources.mps_control import DEADLINE, MpsControl

TRIES = 3  # of a change that does not show
SETTING = 10.0  # seconds for all commands of one change
ENDING = 10.0  # seconds until a client has to be gone; work that it has on the GPU is waited for

_PAUSE = 0.05  # seconds between two looks at a list
_NO_ANSWER = frozenset(
    {
        Reason.DAEMON_NOT_RUNNING,
        Reason.DAEMON_WEDGED,
        Reason.TIMEOUT,
        Reason.MISSING,
        Reason.NO_PERMISSION,
        Reason.UNREADABLE,
    }
)


class Telling:
    """One daemon, for one action of at most `seconds`. `control` needs a deadline that is no shorter."""

    def __init__(self, control: MpsControl, *, seconds: float, clock: Clock) -> None:
        self._control = control
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def ask(self, command: Command, *, seconds: float = DEADLINE) -> str | Failure:
        """The answer to one command, within so many seconds, or what is left of the action's."""
        return self._control.ask(command, until=min(self._until, self._clock.monotonic() + seconds))

    def again(self) -> bool:
        """Wait a moment. False: the time is over."""
        left = self._until - self._clock.monotonic()
        if left <= 0:
            return False
        time.sleep(min(_PAUSE, left))
        return True


def is_silent(answer: object) -> bool:
    """Whether an answer is that there will be none: the daemon has gone, hangs, or may not be talked to."""
    return isinstance(answer, Failure) and answer.reason in _NO_ANSWER


def not_ended(pid: int, said: str | Failure) -> Failure:
    """Why a client that was to be ended is still there, and what must not be done about it."""
    reason = said.reason if isinstance(said, Failure) else Reason.TIMEOUT
    detail = said.detail if isinstance(said, Failure) else "the daemon still lists it"
    return Failure(
        reason, f"client {pid} was not ended: {detail}; do not kill it, which can take all clients of the GPU with it"
    )
