"""`podgpu gate`: the command of an init container that holds a pod back until its caps were read back.

It waits for the receipt that the enforcer of this node writes. A receipt counts if only its owner (root) can have
written it, in this boot of the machine, for this very pod. It needs neither the driver nor the API server, and loads no
library for them: it stands in the way of every start.

It does not check that the caps hold. That is what the receipt says, and what the exporter shows.
"""

import argparse
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from enforcer.boot import boot_id
from enforcer.mechanisms.names import is_pod_uid
from enforcer.receipt import MOST, RECEIPTS, Receipt, file_name, parse
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.settings import SettingsError, duration
from exporter.sources.regular_files import read_regular

POLL = 0.2  # seconds
SAY_EVERY = 10.0  # seconds

_PROG = "podgpu gate"
_VARIABLE = "PODGPU_POD_UID"
_ADVICE = (
    "look at this pod's events (kubectl describe pod), and whether podgpu's enforcer runs on this node in mode enforce "
    "with its receipts mounted here"
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message} (see {_PROG} --help)")


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Wait. Returns the exit code: 0 with a receipt, 1 without one by the deadline. Raises SettingsError."""
    given = _parser().parse_args(list(arguments))
    uid = given.pod_uid if given.pod_uid is not None else environment.get(_VARIABLE, "")
    if not is_pod_uid(uid):
        raise SettingsError(f"--pod-uid: takes the pod's uid (metadata.uid by the downward API), not {uid!r}")
    try:
        deadline = duration(given.deadline)
    except ValueError as error:
        raise SettingsError(f"--deadline: {error}, not {given.deadline!r}") from None
    if not given.owner.isascii() or not given.owner.isdigit():
        raise SettingsError(f"--owner: takes the number of a user, not {given.owner!r}")
    boot = boot_id()
    if isinstance(boot, Failure):
        _say(str(boot))
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the first process of a container has no default for it
    return wait(
        lambda: find(given.receipts, uid, owner=int(given.owner), boot=boot),
        deadline=deadline,
        clock=Clock(),
        sleep=time.sleep,
        say=_say,
    )


def wait(
    look: Callable[[], Receipt | Failure],
    *,
    deadline: float,
    clock: Clock,
    sleep: Callable[[float], None],
    say: Callable[[str], None],
) -> int:
    """Look until there is a receipt, or for `deadline` seconds, and say how it stands every 10 s. The exit code."""
    begun = clock.monotonic()
    said = begun
    while True:
        found = look()
        now = clock.monotonic()
        if isinstance(found, Receipt):
            whose = f"of {', '.join(found.containers)} were read back" if found.containers else "are none"
            say(f"open after {now - begun:.1f} s: the caps {whose}")
            return 0
        if now - begun >= deadline:
            say(f"still shut after {now - begun:.0f} s: {found.detail}; {_ADVICE}")
            return 1
        if now - said >= SAY_EVERY:
            said = now
            say(f"waiting for {now - begun:.0f} s of {deadline:.0f} s: {found.detail}")
        sleep(min(POLL, max(0.0, begun + deadline - now)))


def find(receipts: str, uid: str, *, owner: int, boot: str) -> Receipt | Failure:
    """The pod's receipt, if it is to be believed; else why not, in words for whoever waits."""
    try:
        folder = os.stat(receipts)
    except OSError as error:
        return Failure(Reason.MISSING, f"{receipts}: {error.strerror}")
    if not _is_of(folder, owner):
        return Failure(Reason.FOREIGN, f"{receipts} can be written to by others than user {owner}")
    path = f"{receipts}/{file_name(uid)}"
    content = read_regular(path, most=MOST)
    if isinstance(content, Failure):
        missing = content.reason is Reason.MISSING
        return Failure(content.reason, f"there is no receipt {path} yet" if missing else content.detail)
    if not _is_of(content.status, owner):
        return Failure(Reason.FOREIGN, f"{path} can have been written by others than user {owner}")
    receipt = parse(content.data)
    if isinstance(receipt, Failure):
        return Failure(receipt.reason, f"{path}: {receipt.detail}")
    if receipt.uid != uid:
        return Failure(Reason.FOREIGN, f"{path} is the receipt of another pod")
    if receipt.boot != boot:
        return Failure(Reason.FOREIGN, f"{path} is of another boot of this machine")
    return receipt


def _say(line: str) -> None:
    print(f"{_PROG}: {line}", file=sys.stderr, flush=True)


def _is_of(status: os.stat_result, owner: int) -> bool:
    """Whether only the owner can write to it."""
    return status.st_uid == owner and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _parser() -> argparse.ArgumentParser:
    found = _Parser(
        prog=_PROG,
        description="Waits until the caps of a pod were read back. Exit code 0: they were; 1: not by the deadline.",
        allow_abbrev=False,
    )
    found.add_argument("--pod-uid", metavar="UID", help=f"the pod's uid [{_VARIABLE}]")
    found.add_argument("--deadline", default="5m", metavar="DURATION", help="how long to wait (default: 5m)")
    found.add_argument(
        "--receipts", default=RECEIPTS, metavar="DIR", help=f"where the enforcer's receipts are (default: {RECEIPTS})"
    )
    found.add_argument(
        "--owner", default="0", metavar="USER", help="the number of the user whose receipts count (default: 0, root)"
    )
    return found
