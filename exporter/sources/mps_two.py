"""Reads a control daemon of protocol 2, which every driver speaks: 3 commands a cycle, and now and then all settings.

Every command is written to the daemon's own log, which nobody may rotate, and every limit takes a command per device.
So servers and clients are asked for in each cycle; shares and limits when the daemon, its servers, their clients or the
limits in their log have changed, and otherwise every 30 s. A limit holds for clients that connect after it was set, so
those of a cycle in which a client came are the ones that matter.

With one server and 8 GPUs that is 3 commands a cycle and 18 more with the settings.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import MpsClient, MpsDaemon, MpsServer, PinnedLimit, ServerStatus
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_commands import Command
from exporter.sources.mps_control import DaemonGoneError

SETTINGS_AGE = 30.0  # seconds

_Limits = Mapping[int, PinnedLimit | None]


@dataclass(frozen=True, slots=True)
class _Share:
    """A share and the limits of a scope: the default, or a server. `errors` are about single devices."""

    ratio: float | Failure
    pinned: _Limits | Failure
    errors: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class _Settings:
    """Shares and limits, by server; the default is under None."""

    about: tuple[object, ...]  # what they were read for
    read_at: float
    shares: Mapping[int | None, _Share]


class ProtocolTwo:
    """Reads one daemon. One for each daemon that starts. `settings_age` is in seconds; with 0 all is read each time.

    `ask` gives it a command, and raises DaemonGoneError when it does not answer. `uid_of` is the user of a server's
    process, None where it can't be told.
    """

    def __init__(
        self,
        ask: Callable[[Command], str | Failure],
        *,
        uid_of: Callable[[int], int | None],
        clock: Clock,
        settings_age: float = SETTINGS_AGE,
    ) -> None:
        self._settings_age = settings_age
        self._ask = ask
        self._uid_of = uid_of
        self._clock = clock
        self._tells_status = True
        self._settings: _Settings | None = None

    def read(self, devices: Sequence[str] | None, *, count: int, logged: Callable[[int], object]) -> MpsDaemon:
        """The daemon now.

        Args:
            devices: The UUIDs of its ordinals; None where they can't be told.
            count: How many ordinals there are in that case.
            logged: What the log of a server says of its limits, by pid. Shares and limits are read again when that
                has changed.

        Raises:
            DaemonGoneError: It does not answer, or not any more.
        """
        text = self._ask(mps_commands.server_list())
        listed = text if isinstance(text, Failure) else mps_text.pids(text)
        if isinstance(listed, Failure):
            raise DaemonGoneError(listed)
        found = {pid: self._state(pid) for pid in listed}
        present = {pid: state for pid, state in found.items() if state is not None}
        ordinals = range(min(mps_commands.ORDINALS, len(devices) if devices is not None else count))
        shares = self._current(present, ordinals, logged)
        servers = tuple(self._server(pid, state, shares[pid], devices) for pid, state in present.items())
        default = shares[None]
        return MpsDaemon(
            protocol=2,
            servers=servers,
            ratio=None if isinstance(default.ratio, Failure) else default.ratio,
            pinned=MappingProxyType({}) if isinstance(default.pinned, Failure) else default.pinned,
            errors=tuple(
                dict.fromkeys(
                    problem
                    for problem in (
                        default.ratio,
                        default.pinned,
                        *(e for share in shares.values() for e in share.errors),
                    )
                    if isinstance(problem, Failure)
                )
            ),
        )

    def _state(self, pid: int) -> tuple[ServerStatus, tuple[int, ...] | Failure] | None:
        """A server's status and its clients' pids. None: it has gone since it was listed."""
        status = ServerStatus.UNKNOWN
        if self._tells_status:
            answer = self._ask(mps_commands.server_status(pid))
            if isinstance(answer, str):
                status = mps_text.status(answer)
            elif answer.reason is Reason.NOT_FOUND:
                return None
            elif answer.reason is Reason.UNKNOWN_COMMAND:
                self._tells_status = False
        text = self._ask(mps_commands.client_list(pid))
        clients = text if isinstance(text, Failure) else mps_text.pids(text)
        if isinstance(clients, Failure) and clients.reason is Reason.NOT_FOUND:
            return None
        return status, clients

    def _current(
        self,
        servers: Mapping[int, tuple[ServerStatus, tuple[int, ...] | Failure]],
        ordinals: Sequence[int],
        logged: Callable[[int], object],
    ) -> Mapping[int | None, _Share]:
        """Shares and limits for these servers and clients."""
        about = (ordinals, tuple((pid, state[1], logged(pid)) for pid, state in servers.items()))
        now = self._clock.monotonic()
        known = self._settings
        if known is not None and known.about == about and now - known.read_at < self._settings_age:
            return known.shares
        shares: dict[int | None, _Share] = {
            None: self._share(mps_commands.default_percentage(), mps_commands.default_limit, ordinals)
        }
        for pid in servers:
            shares[pid] = self._share(
                mps_commands.percentage(pid), functools.partial(mps_commands.limit, pid), ordinals
            )
        whole = not any(isinstance(share.ratio, Failure) or share.errors for share in shares.values())
        self._settings = _Settings(about, now, shares) if whole else None
        return shares

    def _share(self, percentage: Command, limit: Callable[[int], Command], ordinals: Sequence[int]) -> _Share:
        text = self._ask(percentage)
        ratio = text if isinstance(text, Failure) else mps_text.ratio(text)
        if isinstance(ratio, Failure):
            return _Share(ratio, pinned=ratio)  # a server that does not respond has no limits to tell either
        limits: dict[int, PinnedLimit | None] = {}
        errors: list[Failure] = []
        for ordinal in ordinals:
            answer = self._ask(limit(ordinal))
            pinned = answer if isinstance(answer, Failure) else mps_text.pinned(answer)
            if isinstance(pinned, Failure):
                errors.append(Failure(pinned.reason, f"device {ordinal}: {pinned.detail}"))
            else:
                limits[ordinal] = pinned
        return _Share(
            ratio,
            pinned=errors[0] if errors and not limits else MappingProxyType(limits),
            errors=tuple(errors),
        )

    def _server(
        self,
        pid: int,
        state: tuple[ServerStatus, tuple[int, ...] | Failure],
        share: _Share,
        devices: Sequence[str] | None,
    ) -> MpsServer:
        status, clients = state
        uid = self._uid_of(pid)
        return MpsServer(
            name="" if uid is None else f"uid_{uid}",
            pid=pid,
            uid=uid,
            status=status,
            clients=clients if isinstance(clients, Failure) else tuple(MpsClient(client) for client in clients),
            ratio=share.ratio,
            pinned=share.pinned,
            devices=None if devices is None else tuple(devices),
        )
