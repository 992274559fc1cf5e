"""The limits and clients of an MPS server of protocol 2.

Setting a limit prints nothing, whether it worked or not, and a share that was refused prints the one in force. So both
are asked for afterwards. The daemon shows whole GiB, rounded down: what it shows has to be what it would show of the
limit that was set.
"""

from collections.abc import Callable
from typing import TypeVar

from enforcer.mechanisms.mps_telling import ENDING, TRIES, Telling, is_silent, not_ended
from enforcer.model import SetServer, TerminateClient
from enforcer.outcomes import Done, Outcome
from enforcer.plan_namespaces import shows
from exporter.errors import Failure, Reason
from exporter.model import PinnedLimit
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_commands import Command

T = TypeVar("T")

_ROUNDED = 0.06  # percent; daemons keep one decimal
_IN_VAIN = frozenset({Reason.NOT_FOUND, Reason.BUSY})  # what is said of a server that has gone, or hangs
_SUCCESS = "0"  # the CUDA result that terminate_client prints last


def set_server(action: SetServer, daemon: Telling) -> Outcome:
    """Set what a server gives to its next clients on a GPU. Raises ValueError on values that can't be."""
    return set_values(
        daemon,
        limit=mps_commands.set_limit(action.server, action.ordinal, action.mebibytes),
        shown_limit=mps_commands.limit(action.server, action.ordinal),
        share=mps_commands.set_percentage(action.server, action.percentage),
        shown_share=mps_commands.percentage(action.server),
        mebibytes=action.mebibytes,
        percentage=action.percentage,
    )


def set_defaults(daemon: Telling, *, ordinal: int, mebibytes: int, percentage: float) -> Outcome:
    """Set what the daemon's next server starts with on a GPU. Raises ValueError on values that can't be."""
    return set_values(
        daemon,
        limit=mps_commands.set_default_limit(ordinal, mebibytes),
        shown_limit=mps_commands.default_limit(ordinal),
        share=mps_commands.set_default_percentage(percentage),
        shown_share=mps_commands.default_percentage(),
        mebibytes=mebibytes,
        percentage=percentage,
    )


def set_values(
    daemon: Telling,
    *,
    limit: Command,
    shown_limit: Command,
    share: Command,
    shown_share: Command,
    mebibytes: int,
    percentage: float,
) -> Outcome:
    """Give the two commands that set a limit (MiB) and a share (percent) until the two questions show them."""
    found = ""
    for _ in range(TRIES):
        answers = [daemon.ask(command) for command in (limit, share, shown_limit, shown_share)]
        for answer in answers:
            if isinstance(answer, Failure) and (is_silent(answer) or answer.reason in _IN_VAIN):
                return answer
        pinned, ratio = _read(answers[2], mps_text.pinned), _read(answers[3], mps_text.ratio)
        right = isinstance(pinned, PinnedLimit) and shows(pinned, mebibytes)
        if right and isinstance(ratio, float) and abs(ratio * 100 - percentage) < _ROUNDED:
            return Done(f"{mebibytes} MiB, {percentage:.1f} % for clients that connect from now on")
        found = f"{_shown(pinned)} and {_share_shown(ratio)}"
    return Failure(
        Reason.COMMAND_LOST, f"the daemon shows {found}, after {mebibytes} MiB and {percentage:.1f} % were set"
    )


def terminate_client(action: TerminateClient, daemon: Telling) -> Outcome:
    """End a client, and wait until it is listed no more. Raises ValueError on pids that can't be."""
    if action.server is None:
        raise ValueError("a client of protocol 2 is ended through its server, and none is named")
    command, listing = mps_commands.terminate_client(action.server, action.pid), mps_commands.client_list(action.server)
    said: str | Failure | None = None
    while True:
        clients = _read(daemon.ask(listing), mps_text.pids)
        if isinstance(clients, Failure) and clients.reason is Reason.NOT_FOUND:
            return Done(f"server {action.server} has gone, and its clients with it")
        if not isinstance(clients, Failure) and action.pid not in clients:
            return Done(f"client {action.pid} has been ended" if said is not None else f"no client {action.pid}")
        if said is None:
            if isinstance(clients, Failure):
                return clients
            said = _result(daemon.ask(command, seconds=ENDING))
        elif isinstance(said, Failure) or not daemon.again():
            return not_ended(action.pid, said)


def _read(answer: str | Failure, parse: Callable[[str], T | Failure]) -> T | Failure:
    return answer if isinstance(answer, Failure) else parse(answer)


def _result(answer: str | Failure) -> str | Failure:
    """What terminate_client printed, if its last line says that it worked."""
    if isinstance(answer, Failure):
        return answer
    last = answer.strip().rpartition("\n")[2].strip()
    return answer if last == _SUCCESS else Failure(Reason.DRIVER_ERROR, f"CUDA result {mps_text.shown(last) or 'none'}")


def _shown(limit: PinnedLimit | Failure | None) -> str:
    return (
        f"{limit.shown >> 20} MiB" if isinstance(limit, PinnedLimit) else f"no limit ({limit})" if limit else "no limit"
    )


def _share_shown(ratio: float | Failure) -> str:
    return f"{ratio * 100:.1f} %" if isinstance(ratio, float) else f"no share ({ratio})"
