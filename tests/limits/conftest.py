"""Daemons, clients and what was read of them, built from the little that a test is about."""

import pytest

from exporter.caps_in_force import Evidence
from exporter.memberships import Memberships
from exporter.model import (
    ClientEnvironment,
    MpsClient,
    MpsDaemon,
    MpsNamespace,
    MpsReading,
    MpsServer,
    PinnedLimit,
    ServerStatus,
)
from tests.builders import GIB, U1

NOTHING_SET = ClientEnvironment()


def server(*clients, namespaces=(), devices=(U1,), ratio=None, pinned=None, name="shared"):
    return MpsServer(
        name,
        pid=900,
        uid=0,
        status=ServerStatus.ACTIVE,
        clients=clients if not clients or isinstance(clients[0], MpsClient) else clients[0],
        ratio=ratio,
        pinned=pinned if pinned is not None else {},
        namespaces=tuple(namespaces),
        devices=devices,
    )


def namespace(name, gib=None, ratio=None):
    return MpsNamespace(name, ratio=ratio, pinned=PinnedLimit.exactly(round(gib * GIB)) if gib is not None else None)


def reading(*servers, protocol=3, **failed):
    daemons = {"/run/mps": MpsDaemon(protocol, servers=tuple(servers))}
    return MpsReading(daemons | failed)


@pytest.fixture
def v3():
    """Evidence of a container whose clients are in namespaces of protocol 3, written pid=namespace."""

    def of(clients, namespaces, *, pids=None, used=GIB, environments=None, own=frozenset(), held=(U1,), broken=None):
        members = [MpsClient(pid, "0", name) for pid, name in clients.items()]
        found = reading(server(*members, namespaces=namespaces))
        if broken is not None:
            found = MpsReading({**found.daemons, "/run/other": broken})
        return Evidence(
            gpu_uuid=U1,
            pids=tuple(pids if pids is not None else clients),
            used=used,
            memberships=Memberships(found),
            environments=environments if environments is not None else dict.fromkeys(clients, NOTHING_SET),
            namespaces=frozenset(own),
            held=held,
        )

    return of


@pytest.fixture
def v2():
    """Evidence of a container with clients of a server of protocol 2, written pid=latched GiB (None: not known)."""

    def of(clients, *, pinned=None, devices=(U1,), environments=None, used=GIB):
        members = [
            MpsClient(pid, pinned=None if gib is None else {0: round(gib * GIB)} if gib else {})
            for pid, gib in clients.items()
        ]
        found = reading(server(*members, pinned=pinned, devices=devices), protocol=2)
        return Evidence(
            gpu_uuid=U1,
            pids=tuple(clients),
            used=used,
            memberships=Memberships(found),
            environments=environments if environments is not None else dict.fromkeys(clients, NOTHING_SET),
            held=(U1,),
        )

    return of


@pytest.fixture
def bare():
    """Evidence of a container on a node without MPS."""

    def of(memory=None, *, pids=(7,), used=GIB):
        return Evidence(gpu_uuid=U1, pids=tuple(pids), used=used, memory=memory)

    return of
