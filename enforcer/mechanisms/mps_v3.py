"""Namespaces and clients of MPS daemons of protocol 3.

A command that was lost and one that was done look the same, and a refusal is a text that changes from driver to driver.
So the daemon's lists decide: a thing is done when they show it, and is told again, three times at most, while they do
not. A namespace that was just made gives everything until its values are set; one that is left like that is a failure
which says so. Nothing is forced.
"""

from enforcer.mechanisms.mps_telling import ENDING, TRIES, Telling, is_silent, not_ended
from enforcer.model import EnsureNamespace, RemoveNamespace, TerminateClient
from enforcer.outcomes import Done, Outcome, Pending
from enforcer.plan_namespaces import shows
from exporter.errors import Failure, Reason
from exporter.model import PinnedLimit
from exporter.sources import mps_commands, mps_text
from exporter.sources.mps_text import ClientRow, NamespaceRow


def ensure_namespace(action: EnsureNamespace, daemon: Telling) -> Outcome:
    """Make a namespace where it is missing, and set both its values. Raises ValueError on values that can't be."""
    create = mps_commands.create_namespace(action.name, action.server)
    both, limit = (
        mps_commands.set_namespace(action.name, action.server, mebibytes=action.mebibytes, share=share)
        for share in (action.percentage, None)
    )
    row = _namespace(action, daemon)
    if isinstance(row, Failure):
        return row
    refused = ""
    for _ in range(TRIES):
        if isinstance(row, Failure) or (row is not None and _has(row, action)):
            break
        change = limit if row is not None and _has_share(row, action) else both
        for command in (change,) if row is not None else (create, change):
            said = daemon.ask(command)
            if isinstance(said, Failure) and is_silent(said):
                return _unsure(action, said)
            refused = f" ({said.detail})" if isinstance(said, Failure) else refused
        row = _namespace(action, daemon)
    if isinstance(row, Failure):
        return _unsure(action, row)
    if row is not None and _has(row, action):
        return Done(f"namespace {action.name}: {action.mebibytes} MiB, {action.percentage} %")
    if row is None:
        return Failure(
            Reason.COMMAND_LOST, f"namespace {action.name} was made {TRIES} times, and is not there{refused}"
        )
    found = f"namespace {action.name} has {_shown(row)}"
    clients = _clients(daemon)
    if not isinstance(clients, Failure) and _inside(action, clients):
        return Pending(f"{found}, which its clients keep from being changed{refused}")
    return Failure(
        Reason.COMMAND_LOST,
        f"{found}, after {action.mebibytes} MiB and {action.percentage} % were set {TRIES} times{refused}",
    )


def remove_namespace(action: RemoveNamespace, daemon: Telling) -> Outcome:
    """Remove a namespace, unless it has clients. Raises ValueError on a name that can't be."""
    delete = mps_commands.delete_namespace(action.name, action.server)
    for attempt in range(TRIES + 1):
        row = _namespace(action, daemon)
        if isinstance(row, Failure):
            return row
        if row is None:
            return Done(f"no namespace {action.name}")
        clients = _clients(daemon)
        if isinstance(clients, Failure):
            return clients
        if inside := _inside(action, clients):
            return Pending(f"namespace {action.name} has {len(inside)} clients")
        said = daemon.ask(delete) if attempt < TRIES else ""
        if isinstance(said, Failure) and is_silent(said):
            return said
    return Failure(Reason.COMMAND_LOST, f"namespace {action.name} was removed {TRIES} times, and is still there")


def terminate_client(action: TerminateClient, daemon: Telling) -> Outcome:
    """End a client, and wait until it is listed no more. Raises ValueError on a pid that can't be."""
    command = mps_commands.terminate(action.pid)
    said: str | Failure | None = None
    while True:
        clients = _clients(daemon)
        if not isinstance(clients, Failure) and all(client.pid != action.pid for client in clients):
            return Done(f"client {action.pid} has been ended" if said is not None else f"no client {action.pid}")
        if said is None:
            if isinstance(clients, Failure):
                return clients
            said = daemon.ask(command, seconds=ENDING)
        elif isinstance(said, Failure) or not daemon.again():
            return not_ended(action.pid, said)


def _namespace(action: EnsureNamespace | RemoveNamespace, daemon: Telling) -> NamespaceRow | Failure | None:
    text = daemon.ask(mps_commands.namespaces())
    rows = text if isinstance(text, Failure) else mps_text.namespaces(text)
    if isinstance(rows, Failure):
        return rows
    return next((row for row in rows if (row.server, row.name) == (action.server, action.name)), None)


def _clients(daemon: Telling) -> tuple[ClientRow, ...] | Failure:
    text = daemon.ask(mps_commands.clients())
    return text if isinstance(text, Failure) else mps_text.clients(text)


def _inside(action: EnsureNamespace | RemoveNamespace, clients: tuple[ClientRow, ...]) -> list[ClientRow]:
    return [client for client in clients if (client.server, client.namespace) == (action.server, action.name)]


def _has(row: NamespaceRow, action: EnsureNamespace) -> bool:
    limit = isinstance(row.pinned, PinnedLimit) and shows(row.pinned, action.mebibytes)
    return limit and _has_share(row, action)


def _has_share(row: NamespaceRow, action: EnsureNamespace) -> bool:
    return isinstance(row.ratio, float) and round(row.ratio * 100) == action.percentage


def _shown(row: NamespaceRow) -> str:
    limit = f"{row.pinned.shown >> 20} MiB" if isinstance(row.pinned, PinnedLimit) else "no limit that can be read"
    share = f"{row.ratio * 100:.0f} %" if isinstance(row.ratio, float) else "no share that can be read"
    return f"{limit} and {share}"


def _unsure(action: EnsureNamespace, problem: Failure) -> Failure:
    return Failure(problem.reason, f"{problem.detail}; namespace {action.name} may stand there without limits")
