"""Servers of protocol 2 on simulated daemons, and defaults on the real ones: set, and believed when read back."""

import os
from dataclasses import replace

import pytest

from enforcer.mechanisms.mps_telling import Telling
from enforcer.mechanisms.mps_v2 import set_defaults, terminate_client
from enforcer.model import BeginStart, DropRecords, EndStart, EvictPod, SetServer, Start, TerminateClient, WriteReceipt
from enforcer.outcomes import Done
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.sources.mps_control import MpsControl
from simulator.mps import world as worlds
from tests.mechanisms.conftest import POD, SERVERS, UID, Time, wait_until
from tests.mps.conftest import control  # noqa: F401 - a fixture: real and simulated daemons without a GPU

SERVER = SERVERS[0]


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


def telling(binary, pipe="/run/mps", *, seconds=10.0):
    return Telling(MpsControl(str(binary), str(pipe), deadline=seconds, clock=Clock()), seconds=seconds, clock=Clock())


@pytest.fixture(params=["535.261.03", "550.163.01", "615.71.09"])
def two(request, node):
    node.set(driver=request.param)
    node.start()
    node.say(text="start_server -uid 0\n")
    wait_until(lambda: node.say(text="get_server_list\n").strip() == str(SERVER))
    return node


@pytest.fixture
def apply(two, mechanisms_of):
    return mechanisms_of(binary=two.binary).apply


def set_server(node, mebibytes=4606, percentage=33.3, *, server=SERVER, ordinal=0):
    return SetServer(str(node.pipe), server, ordinal, mebibytes, percentage)


def terminate(node, pid, *, server=SERVER):
    return TerminateClient(str(node.pipe), 2, server, pid, POD)


def limit_of(node, ordinal):
    return node.say(text=f"get_device_pinned_mem_limit {SERVER} {ordinal}\n").strip()


def test_the_next_client_gets_what_was_set_and_those_there_keep_what_they_had(two, apply):
    two.connect(51023)
    wait_until(lambda: two.held(51023))
    assert isinstance(apply(set_server(two)), Done)
    two.connect(51023, 51024)
    wait_until(lambda: two.held(51024))
    assert two.held(51023)["limits"] == {"0": None}
    assert two.held(51024)["limits"] == {"0": 4606 << 20}
    assert two.held(51024)["percentage"] == 33.3


@pytest.mark.parametrize("mebibytes", [1, 1023, 1024, 1025, 81920])
def test_a_limit_is_right_though_it_is_shown_cut_off(two, apply, mebibytes):
    assert isinstance(apply(set_server(two, mebibytes, ordinal=1)), Done)
    assert limit_of(two, 1) == (f"{mebibytes >> 10}G" if mebibytes >= 1024 else f"{mebibytes}M")
    assert limit_of(two, 0) == ""


@pytest.mark.parametrize("lost", [1, 2, 3, 5])
def test_commands_that_are_lost_are_told_again(two, apply, lost):
    two.fault(lose=lost)
    outcome = apply(set_server(two))
    two.fault()
    if isinstance(outcome, Done):
        assert limit_of(two, 0) == "4G"
    else:
        assert outcome.reason is Reason.COMMAND_LOST
        assert isinstance(apply(set_server(two)), Done)


def test_a_server_that_has_gone(two, apply):
    assert reason(apply(set_server(two, server=SERVERS[1]))) is Reason.NOT_FOUND
    outcome = apply(terminate(two, 51023, server=SERVERS[1]))
    assert isinstance(outcome, Done)
    assert "has gone" in outcome.detail


def test_a_daemon_that_hangs_or_has_gone(two, apply):
    two.fault(hang=True)
    assert reason(apply(set_server(two))) is Reason.DAEMON_WEDGED
    two.fault()
    two.kill()
    for action in (set_server(two), terminate(two, 51023)):
        assert reason(apply(action)) is Reason.DAEMON_NOT_RUNNING


@pytest.mark.parametrize("change", [{"mebibytes": 0}, {"mebibytes": -1}, {"ordinal": 32}, {"percentage": 0.0}])
def test_what_no_command_is_made_from_is_malformed(mechanisms_of, change):
    action = replace(SetServer("/run/mps", SERVER, 0, 1, 1.0), **change)
    assert reason(mechanisms_of(binary="/bin/false").apply(action)) is Reason.MALFORMED


def test_a_daemon_that_takes_all_and_changes_nothing(script, mechanisms_of):
    binary = script('while read -r word rest; do case "$word" in *percentage) echo 100.0;; esac; done')
    outcome = mechanisms_of(binary=binary).apply(SetServer("/run/mps", SERVER, 0, 4606, 33.3))
    assert reason(outcome) is Reason.COMMAND_LOST
    assert "no limit and 100.0 %" in outcome.detail


def test_a_server_that_does_not_respond_is_busy(script, mechanisms_of):
    binary = script('while read -r word rest; do case "$word" in get_default*) echo 100.0;; esac; done')
    assert reason(mechanisms_of(binary=binary).apply(SetServer("/run/mps", SERVER, 0, 4606, 33.3))) is Reason.BUSY


def test_a_client_is_ended_and_no_other(two, apply):
    two.connect(51023, 51024)
    wait_until(lambda: two.held(51023) and two.held(51024))
    assert isinstance(apply(terminate(two, 51023)), Done)
    assert two.held(51023) is None
    assert two.held(51024)
    assert isinstance(apply(terminate(two, 51023)), Done)
    assert worlds.terminated(two.root / "world") == {51023}


LISTED = 'while read -r word rest; do case "$word" in get_client_list) echo 51023;; get_*) echo 100.0;; {}'


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ('terminate_client) printf "0\\n1\\n";; esac; done', Reason.DRIVER_ERROR),
        ("terminate_client) echo 710;; esac; done", Reason.DRIVER_ERROR),
        ('terminate_client) echo "Insufficient privileges for UID 7.";; esac; done', Reason.NO_PERMISSION),
        ("terminate_client) echo 0;; esac; done", Reason.TIMEOUT),  # success, they say, and it stays
    ],
)
def test_a_client_that_is_still_listed_was_not_ended(script, printed, expected):
    action = TerminateClient("/run/mps", 2, SERVER, 51023, POD)
    outcome = terminate_client(action, telling(script(LISTED.format(printed)), seconds=1.0))
    assert reason(outcome) is expected
    assert "do not kill" in outcome.detail


@pytest.mark.parametrize("mebibytes", [1, 512, 1023, 1024, 1025, 4606, 81920])
def test_defaults_on_real_and_simulated_daemons(control, mebibytes):  # noqa: F811
    control.start()
    daemon = telling(control.executable, control.pipe)
    assert isinstance(set_defaults(daemon, ordinal=0, mebibytes=mebibytes, percentage=33.3), Done)
    shown = control.say("get_default_device_pinned_mem_limit 0").strip()
    assert shown == (f"{mebibytes >> 10}G" if mebibytes >= 1024 else f"{mebibytes}M")
    assert control.say("get_default_active_thread_percentage").strip() == "33.3"


def test_a_start_is_recorded_with_what_is_given_back(mechanisms_of):
    now = Time()
    mechanisms = mechanisms_of(clock=now.clock)
    assert isinstance(mechanisms.apply(BeginStart("/run/mps/0", UID, {0: 81920}, 100.0)), Done)
    now.sleep(5)
    assert mechanisms_of(clock=now.clock).records().starts == {
        "/run/mps/0": Start(UID, 1000.0, usual={0: 81920}, percentage=100.0)
    }
    assert isinstance(mechanisms.apply(EndStart("/run/mps/0")), Done)
    assert isinstance(mechanisms.apply(EndStart("/run/mps/0")), Done)
    assert mechanisms.records().starts == {}


def test_receipts_are_records(mechanisms_of):
    now = Time()
    mechanisms = mechanisms_of(clock=now.clock)
    assert isinstance(mechanisms.apply(WriteReceipt(POD, ("train",))), Done)
    now.sleep(5)
    assert mechanisms_of(clock=now.clock).records().receipts == {UID: 1000.0}
    assert isinstance(mechanisms.apply(DropRecords(UID)), Done)
    assert mechanisms.records().receipts == {}
    assert isinstance(mechanisms.apply(DropRecords(UID)), Done)


def test_eviction_is_somebody_elses(mechanisms_of):
    assert reason(mechanisms_of().apply(EvictPod(POD))) is Reason.NOT_SUPPORTED


def test_a_torn_receipt_makes_all_records_unknown(mechanisms_of, short_tmp):
    mechanisms = mechanisms_of()
    mechanisms.apply(WriteReceipt(POD, ("train",)))
    path = short_tmp / "receipts" / f"{UID}.json"
    path.write_bytes(path.read_bytes()[:-9])
    assert reason(mechanisms.records()) is Reason.MALFORMED
    os.unlink(path)
    assert mechanisms.records().receipts == {}
