"""Namespaces and clients of protocol 3 on the simulated daemon: done when its lists show it, and never by force."""

import os

import pytest

from enforcer.mechanisms.mps_telling import Telling
from enforcer.mechanisms.mps_v3 import terminate_client
from enforcer.model import CloseDoor, EnsureNamespace, OpenDoor, RemoveNamespace, TerminateClient
from enforcer.outcomes import Done, Pending
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.mps_control import MpsControl
from simulator.mps import world as worlds
from tests.mechanisms.conftest import POD, UID, wait_until

NAME = "j_" + UID.replace("-", "_")


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


@pytest.fixture
def three(node):
    node.set(driver="615.71.09")
    node.start("-p", "3", "-m")
    node.say("server", "create", "shared")
    return node


@pytest.fixture
def apply(three, mechanisms_of):
    return mechanisms_of(binary=three.binary).apply


def ensure(node, mebibytes=4606, percentage=30, *, server="shared", name=NAME):
    return EnsureNamespace(str(node.pipe), server, name, mebibytes, percentage)


def remove(node, name=NAME):
    return RemoveNamespace(str(node.pipe), "shared", name)


def terminate(node, pid):
    return TerminateClient(str(node.pipe), 3, None, pid, POD)


def rows(node):
    """Name, limit and share of each namespace, as the command prints them."""
    text = node.say("namespace", "list", "--format=csv,noheader")
    return {cells[0]: (cells[3], cells[4]) for line in text.splitlines() if (cells := line.split(","))}


def join(node, *pids, name=NAME):
    """Programs that use the namespace, and are clients when this returns."""
    node.connect(*pids, pipe=node.pipe / "shared" / name)
    wait_until(lambda: all(node.held(pid) for pid in pids))


def fake(script):
    """The terms of a stand-in for the control command."""
    return Telling(MpsControl(script, "/run/mps", deadline=13.0, clock=Clock()), seconds=1.0, clock=Clock())


def test_a_namespace_is_made_changed_and_removed(three, apply):
    for mebibytes, percentage in ((4606, 30), (4606, 30), (512, 30), (8192, 100)):
        assert isinstance(apply(ensure(three, mebibytes, percentage)), Done)
        limit, share = rows(three)[NAME]
        assert float(share) == percentage
        assert limit == (f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M")
    assert isinstance(apply(remove(three)), Done)
    assert NAME not in rows(three)
    assert isinstance(apply(remove(three)), Done)


def test_a_namespace_that_somebody_left_without_limits_gets_them(three, apply):
    three.say("namespace", "create", NAME, "--server=shared")
    assert isinstance(apply(ensure(three)), Done)
    assert rows(three)[NAME] == ("4606M", "30.00")


def test_no_other_namespace_is_touched(three, apply):
    three.say("namespace", "create", "other", "--server=shared")
    before = rows(three)["other"]
    apply(ensure(three))
    apply(remove(three))
    assert rows(three) == {"default": rows(three)["default"], "other": before}


def test_values_that_clients_hold_stay_and_are_pending(three, apply, monkeypatch):
    apply(ensure(three))
    join(three, 51023)
    outcome = apply(ensure(three, 4606, 60))
    if isinstance(outcome, Done):  # a daemon that lets a share be changed under clients; they keep what they have
        assert three.held(51023)["percentage"] == 30
    else:
        assert isinstance(outcome, Pending)
        assert rows(three)[NAME] == ("4606M", "30.00")


def test_a_namespace_with_clients_is_not_removed(three, apply):
    apply(ensure(three))
    join(three, 51023, 51024)
    outcome = apply(remove(three))
    assert isinstance(outcome, Pending)
    assert "2 clients" in outcome.why
    assert NAME in rows(three)
    assert three.held(51023)
    three.connect()
    wait_until(lambda: not three.held(51023))
    assert isinstance(apply(remove(three)), Done)


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_commands_that_are_lost_are_told_again(three, apply, lost):
    three.fault(lose=lost)
    outcome = apply(ensure(three))
    assert isinstance(outcome, Done) or reason(outcome) in (Reason.COMMAND_LOST, Reason.MALFORMED)
    three.fault()
    found = rows(three).get(NAME)
    if isinstance(outcome, Done):
        assert found == ("4606M", "30.00")
    else:
        assert found != ("4606M", "30.00")
        assert found is None or NAME in outcome.detail  # nothing was begun, or it is said what was left
    assert isinstance(apply(ensure(three)), Done)


def test_a_server_that_is_not_there(three, apply):
    outcome = apply(ensure(three, server="nobody"))
    assert reason(outcome) is Reason.COMMAND_LOST
    assert "Server nobody not found" in outcome.detail
    assert NAME not in rows(three)


def test_a_daemon_that_hangs_or_has_gone(three, apply):
    three.fault(hang=True)
    assert reason(apply(ensure(three))) is Reason.DAEMON_WEDGED
    assert reason(apply(remove(three))) is Reason.DAEMON_WEDGED
    three.fault()
    three.kill()
    for action in (ensure(three), remove(three), terminate(three, 51023)):
        assert reason(apply(action)) is Reason.DAEMON_NOT_RUNNING


@pytest.mark.parametrize(
    "action",
    [
        EnsureNamespace("/run/mps", "shared", "a b", 1, 1),
        EnsureNamespace("/run/mps", "shared", "a;quit", 1, 1),
        EnsureNamespace("/run/mps", "shared\nquit", "a", 1, 1),
        EnsureNamespace("/run/mps", "shared", "a", 0, 1),
        EnsureNamespace("/run/mps", "shared", "a", -1, 1),
        EnsureNamespace("/run/mps", "shared", "a", 1, 0),
        EnsureNamespace("/run/mps", "shared", "a", 1, 101),
        RemoveNamespace("/run/mps", "shared", "--force"),
        TerminateClient("/run/mps", 3, None, 0, POD),
        TerminateClient("/run/mps", 2, None, 5, POD),
        TerminateClient("/run/mps", 2, 5, -1, POD),
    ],
)
def test_what_no_command_is_made_from_is_malformed(mechanisms_of, action):
    assert reason(mechanisms_of(binary="/bin/false").apply(action)) is Reason.MALFORMED


# What no simulated daemon does: it is played by a script.

HEADER = "name,server,server-status,pinned-memory-limit,active-thread-percentage,client-priority,pipe-directory"


def test_a_daemon_that_takes_all_and_does_nothing(script, mechanisms_of):
    binary = script(f'case "$*" in *"namespace list"*) echo "{HEADER}";; esac')
    outcome = mechanisms_of(binary=binary).apply(EnsureNamespace("/run/mps", "shared", NAME, 512, 10))
    assert reason(outcome) is Reason.COMMAND_LOST
    assert "3 times" in outcome.detail


@pytest.mark.parametrize(
    ("limit", "share", "right"),
    [
        ("4G", "30.00", True),  # 4606M, cut to whole GiB
        ("4606M", "30.00", True),
        ("5G", "30.00", False),
        ("-", "30.00", False),
        ("4G", "-", False),
        ("4G", "29.00", False),
        ("4.5G", "30.00", False),
    ],
)
def test_what_is_read_back_decides(script, mechanisms_of, limit, share, right):
    row = f"{NAME},shared,Ready,{limit},{share},0,/run/mps/shared/{NAME}"
    clients = "pid,server,device,namespace,cmd"
    binary = script(
        f'case "$*" in *"namespace list"*) echo "{HEADER}"; echo "{row}";; *"client list"*) echo "{clients}";; esac'
    )
    outcome = mechanisms_of(binary=binary).apply(EnsureNamespace("/run/mps", "shared", NAME, 4606, 30))
    if right:
        assert isinstance(outcome, Done)
    else:
        assert reason(outcome) is Reason.COMMAND_LOST
        assert NAME in outcome.detail


def test_a_refusal_while_clients_are_in_is_pending(script, mechanisms_of):
    row = f"{NAME},shared,Ready,4606M,10.00,0,/run/mps/shared/{NAME}"
    client = f"51023,shared,0,{NAME},python"
    binary = script(
        f'case "$*" in *"namespace list"*) echo "{HEADER}"; echo "{row}";; '
        f'*"client list"*) echo "pid,server,device,namespace,cmd"; echo "{client}";; '
        '*) echo "clients are attached" >&2; exit 1;; esac'
    )
    outcome = mechanisms_of(binary=binary).apply(EnsureNamespace("/run/mps", "shared", NAME, 4606, 30))
    assert isinstance(outcome, Pending)
    assert "10 %" in outcome.why


def test_a_client_is_ended_and_no_other(three, apply):
    apply(ensure(three))
    join(three, 51023, 51024)
    assert isinstance(apply(terminate(three, 51023)), Done)
    assert three.held(51023) is None
    assert three.held(51024)
    assert worlds.terminated(three.root / "world") == {51023}
    outcome = apply(terminate(three, 51023))
    assert isinstance(outcome, Done)
    assert worlds.terminated(three.root / "world") == {51023}  # nothing is told to end what is not there


def test_a_client_that_does_not_end_is_not_said_to_have(script):
    client = f"51023,shared,0,{NAME},python"
    binary = script(f'case "$*" in *"client list"*) echo "pid,server,device,namespace,cmd"; echo "{client}";; esac')
    outcome = terminate_client(TerminateClient("/run/mps", 3, None, 51023, POD), fake(binary))
    assert reason(outcome) is Reason.TIMEOUT
    assert "do not kill" in outcome.detail


def test_doors_are_opened_and_their_records_say_where_they_lead(three, mechanisms_of):
    mechanisms = mechanisms_of(binary=three.binary)
    directory = str(three.pipe / "shared" / NAME)
    assert reason(mechanisms.apply(OpenDoor(UID, "train", directory))) is Reason.MISSING
    assert mechanisms.records().doors == {(UID, "train"): ""}  # it is noted, and leads nowhere
    mechanisms.apply(ensure(three))
    assert isinstance(mechanisms.apply(OpenDoor(UID, "train", directory)), Done)
    assert mechanisms_of(binary=three.binary).records().doors == {(UID, "train"): directory}
    assert (three.pipe / ".doors" / UID / "train" / "control").is_socket()
    assert isinstance(mechanisms.apply(CloseDoor(UID, "train")), Done)
    assert mechanisms.records().doors == {}
    assert isinstance(mechanisms.apply(CloseDoor(UID, "train")), Done)
    assert not os.path.lexists(three.pipe / ".doors" / UID)


def test_a_door_to_another_daemon_leaves_none_behind(three, mechanisms_of, short_tmp):
    mechanisms = mechanisms_of(binary=three.binary)
    mechanisms.apply(ensure(three))
    mechanisms.apply(OpenDoor(UID, "train", str(three.pipe / "shared" / NAME)))
    other = short_tmp / "other" / "shared" / "j_1"
    other.mkdir(parents=True)
    (short_tmp / "other").chmod(0o755)
    assert isinstance(mechanisms.apply(OpenDoor(UID, "train", str(other))), Done)
    assert mechanisms.records().doors == {(UID, "train"): str(other)}
    assert not os.path.lexists(three.pipe / ".doors" / UID)
