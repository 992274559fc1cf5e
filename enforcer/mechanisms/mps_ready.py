"""Makes a daemon of ours ready, and tells whether it is idle.

A daemon is ready when it has a server, and whoever connects to that without being told where gets next to nothing
(protocol 3), or what everybody gets (protocol 2, in which jobs are given less one after the other).
"""

from typing import Final

from enforcer.mechanisms.daemon_start import DEFAULT_MEBIBYTES, DEFAULT_SHARE, SERVER, Daemon
from enforcer.mechanisms.mps_telling import Telling
from enforcer.mechanisms.mps_v2 import set_defaults
from enforcer.mechanisms.mps_v3 import ensure_namespace
from enforcer.model import MIB, EnsureNamespace
from enforcer.outcomes import Done, Outcome
from exporter.errors import Failure, Reason
from exporter.model import ServerStatus
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_commands import Command

#: Ends a daemon of either protocol once its clients have left; it takes no new ones. For an idle one of ours alone.
END: Final = Command(("quit",), changes=True)

_EVERYTHING = 100.0  # percent
_ROOT = 0


def two(daemon: Daemon, telling: Telling) -> Outcome:
    """Protocol 2: the whole GPU for the next server, read back, and a server that is up."""
    outcome = set_defaults(telling, ordinal=0, mebibytes=daemon.gpus[0].capacity // MIB, percentage=_EVERYTHING)
    if not isinstance(outcome, Done):
        return outcome
    asked = False
    while True:
        text = telling.ask(mps_commands.server_list())
        servers = text if isinstance(text, Failure) else mps_text.pids(text)
        if isinstance(servers, Failure) and servers.reason is not Reason.TIMEOUT:
            return servers
        if isinstance(servers, tuple) and servers and _is_up(servers[0], telling):
            return Done(f"server {servers[0]} is up")
        if servers == () and not asked:
            answer = telling.ask(mps_commands.start_server(_ROOT))
            if isinstance(answer, Failure):
                return answer
            asked = True
        if not telling.again():
            return Failure(Reason.TIMEOUT, f"no server has come up; {daemon.log_directory}/control.log tells why")


def three(daemon: Daemon, telling: Telling) -> Outcome:
    """Protocol 3: the server is up, and its default namespace is too small to be of use.

    NOT_FOUND: the server has gone, and only a daemon that starts makes it.
    """
    gone = False
    while True:
        text = telling.ask(mps_commands.servers())
        rows = text if isinstance(text, Failure) else mps_text.servers(text)
        if isinstance(rows, Failure) and rows.reason is not Reason.TIMEOUT:
            return rows
        states = [row.status for row in rows if row.name == SERVER] if isinstance(rows, tuple) else None
        gone = states == [] or (states is None and gone)
        if states is not None and ServerStatus.ACTIVE in states:
            return ensure_namespace(
                EnsureNamespace(daemon.pipe_directory, SERVER, "default", DEFAULT_MEBIBYTES, DEFAULT_SHARE), telling
            )
        if not telling.again():
            why = f"{daemon.log_directory}/{SERVER}/server.log tells why"
            return Failure(Reason.NOT_FOUND if gone else Reason.TIMEOUT, f"server {SERVER} is not up; {why}")


def clients(daemon: Daemon, telling: Telling) -> int | Failure:
    """How many clients a daemon's servers have."""
    if daemon.protocol == 3:
        text = telling.ask(mps_commands.clients())
        rows = text if isinstance(text, Failure) else mps_text.clients(text)
        return rows if isinstance(rows, Failure) else len({row.pid for row in rows})
    text = telling.ask(mps_commands.server_list())
    servers = text if isinstance(text, Failure) else mps_text.pids(text)
    if isinstance(servers, Failure):
        return servers
    count = 0
    for server in servers:
        text = telling.ask(mps_commands.client_list(server))
        listed = text if isinstance(text, Failure) else mps_text.pids(text)
        if isinstance(listed, Failure):
            return listed
        count += len(listed)
    return count


def _is_up(server: int, telling: Telling) -> bool:
    """Whether a server takes clients; drivers of the 535 generation do not tell, so there one that is listed does."""
    answer = telling.ask(mps_commands.server_status(server))
    if isinstance(answer, Failure):
        return answer.reason is Reason.UNKNOWN_COMMAND
    return mps_text.status(answer) is ServerStatus.ACTIVE
