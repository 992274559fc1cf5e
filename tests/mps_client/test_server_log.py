"""Exact limits and those under which clients connected, from a server's log."""

import os

import pytest

from exporter.errors import Reason
from exporter.model import MpsClient, MpsServer, PinnedLimit, ServerStatus
from exporter.sources.mps_daemon import with_log
from exporter.sources.mps_log import Logged, ServerLog

MIB, GIB = 1024**2, 1024**3
FIVE = 5 * GIB


def line(text, server=48201, word="Server"):
    return f"[2026-11-29 17:36:04.616 {word} {server}] {text}\n"


def limit(amount, device=0, **options):
    return line(f"Device pinned memory limit for device {device} set to {amount:#x} bytes", **options)


def client(pid, **options):
    return line(f"Client {{PID: {pid}, Context ID: 0}} connected", **options)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "server.log"


def append(path, *lines):
    with path.open("a") as file:
        file.writelines(lines)


def test_what_a_log_tells(path):
    append(
        path,
        line("CUDA MPS Server for Linux/Unix. Binary version: 13000", word="Other"),
        line("Creating server context on device 0 (Tesla T4)"),
        line("Active Threads Percentage set to 33.0"),
        limit(FIVE),
        limit(GIB, device=1),
        client(7),
        limit(4606 * MIB),
        client(8),
        line("Receive command failed, assuming client exit"),
    )
    told = ServerLog(str(path)).read(48201)
    assert told.limits == {0: 4606 * MIB, 1: GIB}
    assert told.clients == {7: {0: FIVE, 1: GIB}, 8: {0: 4606 * MIB, 1: GIB}}


def test_a_log_is_read_on_and_a_line_may_be_half_written(path):
    log = ServerLog(str(path))
    whole = limit(FIVE) + client(7)
    for end in range(len(whole)):
        append(path, whole[end])
        log.read(48201)
    assert log.read(48201).clients == {7: {0: FIVE}}


def test_servers_before_this_one_do_not_count(path):
    append(path, limit(GIB, server=1), client(7, server=1), client(8))
    told = ServerLog(str(path)).read(48201)
    assert (told.limits, told.clients) == ({}, {})


def test_a_client_before_any_limit_that_was_read_tells_nothing(path):
    append(path, client(7), limit(FIVE), client(8))
    assert ServerLog(str(path)).read(48201).clients == {8: {0: FIVE}}


def test_a_pid_that_connects_again_has_the_later_limit(path):
    append(path, limit(FIVE), client(7), limit(GIB), client(7))
    assert ServerLog(str(path)).read(48201).clients == {7: {0: GIB}}


@pytest.mark.parametrize("how", ["rotated", "truncated", "gone"])
def test_a_log_that_begins_anew(path, how):
    log = ServerLog(str(path))
    append(path, line("x" * 200), limit(FIVE), client(7))
    log.read(48201)
    if how == "rotated":
        path.rename(path.with_suffix(".1"))
    elif how == "truncated":
        os.truncate(path, 0)
    else:
        path.unlink()
        assert log.read(48201).reason is Reason.MISSING
    append(path, limit(GIB), client(8))
    told = log.read(48201)
    assert told.clients == {8: {0: GIB}}


def test_reading_is_bounded_and_what_was_skipped_is_not_guessed(path):
    log = ServerLog(str(path))
    append(path, limit(FIVE), client(7))
    log.read(48201)
    append(path, *(line("x" * 1000) for _ in range(400)), client(8))
    assert log.read(48201).clients == {}
    append(path, limit(GIB), client(9))
    assert log.read(48201).clients == {9: {0: GIB}}


def test_clients_without_end_are_not_all_kept(path):
    append(path, limit(FIVE), *(client(pid) for pid in range(1, 3001)))
    log = ServerLog(str(path))
    log.read(48201)
    append(path, *(client(pid) for pid in range(3001, 6001)))
    clients = log.read(48201).clients
    assert len(clients) == 4096
    assert 6000 in clients
    assert 1 not in clients


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_not_a_file_is_not_read(path, tmp_path, kind):
    if kind == "link":
        (tmp_path / "other").write_text(limit(FIVE))
        path.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert ServerLog(str(path)).read(48201).reason is Reason.UNREADABLE


def test_lines_that_only_look_alike(path):
    append(
        path,
        "no prefix Device pinned memory limit for device 0 set to 0x1 bytes\n",
        line("Device pinned memory limit for device 0 set to 0x1 bytes or so"),
        line("Device pinned memory limit for device GPU-1 set to 0x1 bytes"),
        "[" + "x" * 100000 + "\n",
        "\0\xff\n",
    )
    told = ServerLog(str(path)).read(48201)
    assert (told.limits, told.clients) == ({}, {})


# What it adds to what the daemon shows.


def server(shown, *clients):
    return MpsServer("uid_0", pid=48201, uid=0, status=ServerStatus.ACTIVE, clients=clients, pinned=shown)


def test_a_limit_that_agrees_becomes_exact():
    shown = server({0: PinnedLimit(4 * GIB, below=5 * GIB), 1: None}, MpsClient(7), MpsClient(8))
    found = with_log(shown, Logged({0: 4606 * MIB}, clients={7: {0: GIB}}))
    assert found.pinned == {0: PinnedLimit(4606 * MIB, below=4607 * MIB), 1: None}
    assert found.clients == (MpsClient(7, pinned={0: GIB}), MpsClient(8))


@pytest.mark.parametrize("amount", [4 * GIB - 1, 5 * GIB])
def test_a_log_that_missed_a_change_is_not_believed(amount):
    shown = server({0: PinnedLimit(4 * GIB, below=5 * GIB)}, MpsClient(7))
    assert with_log(shown, Logged({0: amount}, clients={7: {0: amount}})) == shown
    unset = server({0: None}, MpsClient(7))
    assert with_log(unset, Logged({0: amount}, clients={7: {0: amount}})) == unset
