"""Restarts of daemons and servers, counted over snapshots."""

from exporter.accounting import account, opened
from exporter.errors import Failure, Reason
from exporter.model import MpsDaemon, MpsServer, ServerStatus, Snapshot

PIPE = "/run/mps"


def daemon(started, *pids, pid=5):
    servers = tuple(MpsServer(f"s{pid}", pid, 0, ServerStatus.ACTIVE) for pid in pids)
    return MpsDaemon(2, pid=pid, started=started, servers=servers)


def starts(*answers):
    totals = opened()
    for answer in answers:
        totals = account(totals, Snapshot(1.0, None, (), (), (), {}, mps={PIPE: answer}))
    found = totals.mps[PIPE]
    return found.daemons, found.servers


GONE = Failure(Reason.DAEMON_NOT_RUNNING)


def test_those_that_were_there_first_are_not_counted():
    assert starts(daemon(100, 7, 8)) == (0, 0)


def test_a_daemon_that_is_another_process_has_started():
    assert starts(daemon(100), daemon(200)) == (1, 0)
    assert starts(daemon(100), GONE, daemon(200)) == (1, 0)
    assert starts(daemon(100), GONE, daemon(100)) == (0, 0)
    assert starts(GONE, daemon(100)) == (0, 0)


def test_a_daemon_whose_process_is_not_seen_is_not_taken_for_another():
    assert starts(daemon(100), daemon(None, pid=None), daemon(100), daemon(200)) == (1, 0)


def test_servers_that_appear():
    assert starts(daemon(100), daemon(100, 7), daemon(100, 7, 8), daemon(100, 8), daemon(100, 7)) == (0, 3)


def test_a_pipe_directory_that_is_gone_is_forgotten():
    totals = account(opened(), Snapshot(1.0, None, (), (), (), {}, mps={PIPE: daemon(100)}))
    assert account(totals, Snapshot(2.0, None, (), (), (), {})).mps == {}
