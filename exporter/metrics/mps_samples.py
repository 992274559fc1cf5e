"""The samples of the MPS control daemons: what each says of itself, its servers and their namespaces.

Guarantees as in `exporter.metrics.samples`; what a daemon could not tell has no series.
"""

from collections.abc import Iterator, Mapping

from exporter.errors import Failure
from exporter.metrics import catalog
from exporter.metrics.catalog import Family
from exporter.metrics.labels import texts
from exporter.model import MpsDaemon, MpsServer, PinnedLimit, ServerStatus

Row = tuple[tuple[str, ...], float]


def mps_samples(daemons: Mapping[str, MpsDaemon | Failure]) -> Iterator[tuple[Family, Row]]:
    """The samples of the daemons by pipe directory."""
    for pipe_directory, daemon in daemons.items():
        labels = texts(pipe_directory)
        yield catalog.MPS_DAEMON_UP, (labels, int(isinstance(daemon, MpsDaemon)))
        if isinstance(daemon, Failure):
            continue
        yield catalog.MPS_DAEMON_INFO, ((*labels, str(daemon.protocol)), 1)
        scope = (*labels, "", "", "default")
        if daemon.ratio is not None:
            yield catalog.MPS_ACTIVE_THREAD_RATIO, (scope, daemon.ratio)
        yield from _pinned(scope, daemon.pinned)
        for server in daemon.servers:
            yield from _server((*labels, *texts(server.name)), server, namespaces=daemon.protocol >= 3)


def _server(labels: tuple[str, ...], server: MpsServer, *, namespaces: bool) -> Iterator[tuple[Family, Row]]:
    yield catalog.MPS_SERVER_INFO, ((*labels, "" if server.uid is None else str(server.uid)), 1)
    for status in ServerStatus:
        yield catalog.MPS_SERVER_STATE, ((*labels, status.value), int(server.status is status))
    if not isinstance(server.clients, Failure):
        yield catalog.MPS_SERVER_CLIENTS, (labels, len(server.clients))
    if namespaces:
        for namespace in server.namespaces:
            scope = (*labels, *texts(namespace.name), "namespace")
            if isinstance(namespace.ratio, float):
                yield catalog.MPS_ACTIVE_THREAD_RATIO, (scope, namespace.ratio)
            if isinstance(namespace.pinned, PinnedLimit):
                yield catalog.MPS_PINNED_MEMORY_LIMIT, ((*scope, ""), namespace.pinned.shown)
        return
    scope = (*labels, "", "server")
    if isinstance(server.ratio, float):
        yield catalog.MPS_ACTIVE_THREAD_RATIO, (scope, server.ratio)
    if not isinstance(server.pinned, Failure):
        yield from _pinned(scope, server.pinned)


def _pinned(scope: tuple[str, ...], limits: Mapping[int, PinnedLimit | None]) -> Iterator[tuple[Family, Row]]:
    for ordinal, limit in limits.items():
        if limit is not None:
            yield catalog.MPS_PINNED_MEMORY_LIMIT, ((*scope, str(ordinal)), limit.shown)
