"""When it is certain that a pod without a listed MPS client has none."""

import pytest

from enforcer.clients import all_known, clients_of
from enforcer.model import Client, Seen
from exporter.errors import Failure, Reason
from exporter.model import (
    ContainerRef,
    MpsClient,
    MpsDaemon,
    MpsReading,
    MpsServer,
    Place,
    ProcessReading,
    Reading,
    ServerStatus,
)
from tests.overruns.conftest import GPU, PIPE, pod

POD = Place(ContainerRef(pod().uid, "0" * 64))
HOST = Place()
LOST = Place(reason=Reason.CGROUP_UNREADABLE)
WEDGED = Failure(Reason.DAEMON_WEDGED, "no answer")


def reading(*pids, clients=None, **daemons):
    told = tuple(MpsClient(pid, "0") for pid in pids) if clients is None else clients
    server = MpsServer("s", 77, 0, ServerStatus.ACTIVE, told, devices=(GPU,))
    return Reading("mps", MpsReading({PIPE: MpsDaemon(2, servers=(server,)), **daemons}))


@pytest.mark.parametrize(
    ("mps", "places", "known"),
    [
        (None, {}, True),  # there is no daemon
        (reading(), {}, True),
        (reading(11, 12), {11: POD, 12: HOST}, True),
        (reading(11), {}, False),  # it has no memory yet, or its GPU could not be read
        (reading(11), {11: LOST}, False),
        (reading(11), None, False),  # /proc could not be read
        (reading(clients=WEDGED), {}, False),
        (reading(**{"/other": WEDGED}), {}, False),
        (Reading("mps", Failure(Reason.TIMEOUT, "no answer")), {}, False),
    ],
    ids=["no-daemon", "no-client", "placed", "no-place", "lost", "no-proc", "server", "daemon", "source"],
)
def test_whose_every_client_is(mps, places, known):
    assert all_known(mps, None if places is None else ProcessReading(places)) is known


def test_the_newest_come_first_and_those_of_unknown_age_last():
    clients = {pid: Client(pid, pod().uid, "main", started) for pid, started in ((1, 5.0), (2, None), (3, 9.0))}
    seen = Seen(frozenset({pod().uid}), {}, daemons=reading(1, 2, 3).value.daemons, clients=clients)
    assert [ending.pid for ending in clients_of(seen, all_clients=True).of(pod())] == [3, 1, 2]
    assert clients_of(seen, all_clients=True).of(pod(1)) == []
