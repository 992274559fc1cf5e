"""Receipts, and the gate that waits for them: only the enforcer's word of this boot about this pod opens it."""

import json
import os
import signal
import subprocess
import sys

import pytest

from enforcer.boot import boot_id
from enforcer.gate import find, wait
from enforcer.mechanisms.receipts import Receipts
from enforcer.model import PodId, WriteReceipt
from enforcer.outcomes import Done
from enforcer.receipt import Receipt, parse
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from tests.mechanisms.conftest import BOOT, POD, UID, Time, wait_until

OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
ME = os.geteuid()


@pytest.fixture
def place(short_tmp):
    return short_tmp / "receipts"


def receipts(place, *, boot=BOOT, now=None):
    return Receipts(str(place), boot=boot, clock=(now or Time()).clock)


def look(place, *, uid=UID, owner=ME, boot=BOOT):
    return find(str(place), uid, owner=owner, boot=boot)


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


def test_a_receipt_opens_the_gate_and_is_the_record(place):
    written = receipts(place)
    assert written.read() == {}
    outcome = written.write(WriteReceipt(POD, ("side", "train")))
    assert isinstance(outcome, Done)
    assert "side, train" in outcome.detail
    assert written.read() == {UID: 1000.0}
    assert look(place) == Receipt("team", "train", UID, ("side", "train"), BOOT, applied=1000.0, written=1.8e9 + 1000)
    modes = [path.stat().st_mode & 0o777 for path in (place, place / f"{UID}.json")]
    assert modes == [0o755, 0o644]


def test_a_receipt_that_is_dropped_is_gone(place):
    written = receipts(place)
    written.write(WriteReceipt(POD, ("train",)))
    assert written.drop(UID) is None
    assert written.drop(UID) is None
    assert written.read() == {}
    assert reason(look(place)) is Reason.MISSING


def test_a_receipt_of_an_earlier_boot_counts_nowhere(place):
    receipts(place, boot="earlier").write(WriteReceipt(POD, ("train",)))
    assert receipts(place).read() == {}
    assert "another boot" in look(place).detail


def test_the_receipt_of_another_pod_under_this_name(place):
    written = receipts(place)
    written.write(WriteReceipt(PodId("team", "x", OTHER), ("train",)))
    (place / f"{OTHER}.json").rename(place / f"{UID}.json")
    assert reason(look(place)) is Reason.FOREIGN
    assert reason(written.read()) is Reason.FOREIGN


@pytest.mark.parametrize("name", ["notes", "x.json", f"{UID}.txt"])
def test_what_is_no_receipt_makes_all_unknown(place, name):
    written = receipts(place)
    written.write(WriteReceipt(POD, ("train",)))
    (place / name).write_bytes(b"")
    assert reason(written.read()) is Reason.FOREIGN


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"version": 2}', b'{"version": 1}', b"[" * 50_000],
)
def test_a_torn_receipt_opens_nothing(place, content):
    written = receipts(place)
    written.write(WriteReceipt(POD, ("train",)))
    (place / f"{UID}.json").write_bytes(content)
    assert reason(look(place)) is Reason.MALFORMED
    assert reason(written.read()) is Reason.MALFORMED


@pytest.mark.parametrize("change", [{"containers": "train"}, {"containers": [1]}, {"boot": 1}, {"version": 2}])
def test_a_receipt_of_another_form_is_none(place, change):
    receipts(place).write(WriteReceipt(POD, ("train",)))
    said = json.loads((place / f"{UID}.json").read_bytes())
    assert reason(parse(json.dumps({**said, **change}).encode())) is Reason.MALFORMED


def test_only_the_owners_receipt_counts(place):
    receipts(place).write(WriteReceipt(POD, ("train",)))
    assert reason(look(place, owner=ME + 1)) is Reason.FOREIGN
    (place / f"{UID}.json").chmod(0o666)
    assert reason(look(place)) is Reason.FOREIGN
    (place / f"{UID}.json").chmod(0o644)
    assert isinstance(look(place), Receipt)
    place.chmod(0o777)
    assert reason(look(place)) is Reason.FOREIGN


def test_a_link_to_a_receipt_is_none(place):
    receipts(place).write(WriteReceipt(POD, ("train",)))
    (place / f"{UID}.json").rename(place.parent / "elsewhere")
    (place / f"{UID}.json").symlink_to(place.parent / "elsewhere")
    assert isinstance(look(place), Failure)


def test_a_hostile_uid_writes_nothing(place):
    written = receipts(place)
    assert reason(written.write(WriteReceipt(PodId("team", "x", "../../evil"), ()))) is Reason.MALFORMED
    assert reason(written.drop("../../evil")) is Reason.MALFORMED
    assert not place.exists()


def waited(answers, *, deadline=300.0):
    """The gate's exit code, what it said, and for how long it waited, with the clock in our hands."""
    now, said = Time(), []
    begun = now.now
    code = wait(lambda: answers(now.now - begun), deadline=deadline, clock=now.clock, sleep=now.sleep, say=said.append)
    return code, said, now.now - begun


RECEIPT = Receipt("team", "train", UID, ("train",), BOOT, applied=1.0, written=2.0)
NOT_YET = Failure(Reason.MISSING, "there is no receipt yet")


def test_the_gate_opens_at_once():
    code, said, seconds = waited(lambda _: RECEIPT)
    assert (code, seconds) == (0, 0.0)
    assert said == ["open after 0.0 s: the caps of train were read back"]


def test_the_gate_opens_when_the_receipt_comes_and_says_how_it_stands():
    code, said, seconds = waited(lambda after: RECEIPT if after >= 25 else NOT_YET)
    assert code == 0
    assert 25 <= seconds < 25.3
    assert [line.partition(" s of")[0] for line in said[:-1]] == ["waiting for 10", "waiting for 20"]
    assert "there is no receipt yet" in said[0]


def test_the_gate_gives_up_at_its_deadline_and_says_what_to_look_at():
    code, said, seconds = waited(lambda _: NOT_YET, deadline=30.0)
    assert code == 1
    assert seconds == pytest.approx(30.0)
    assert "there is no receipt yet" in said[-1]
    assert "kubectl describe pod" in said[-1]


def gate(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "exporter", "gate", *arguments],
        env={"PATH": "/usr/bin:/bin", **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process):
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def test_the_command_opens_for_a_receipt_that_comes_while_it_waits(place):
    boot = boot_id()
    assert isinstance(boot, str)
    process = gate(f"--receipts={place}", f"--owner={ME}", PODGPU_POD_UID=UID)
    written = Receipts(str(place), boot=boot, clock=Clock())
    assert isinstance(written.write(WriteReceipt(POD, ("train",))), Done)
    code, said = ended(process)
    assert code == 0, said
    assert said.startswith("podgpu gate: open after")


def test_the_command_gives_up(place):
    code, said = ended(gate(f"--receipts={place}", "--deadline=300ms", f"--pod-uid={UID}"))
    assert code == 1
    assert len(said.splitlines()) == 1
    assert "still shut" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--pod-uid"),
        (("--pod-uid=../x",), "--pod-uid"),
        ((f"--pod-uid={UID}", "--deadline=soon"), "--deadline"),
        ((f"--pod-uid={UID}", "--owner=root"), "--owner"),
        ((f"--pod-uid={UID}", "--nonsense"), "--nonsense"),
    ],
)
def test_a_wrong_flag_is_one_line_and_exit_code_2(arguments, says):
    code, said = ended(gate(*arguments))
    assert code == 2
    assert len(said.splitlines()) == 1
    assert says in said


def test_the_command_ends_when_the_pod_does(place):
    process = gate(f"--receipts={place}", f"--pod-uid={UID}")
    signals = f"/proc/{process.pid}/status"

    def handles_it():
        with open(signals) as status:
            caught = next(line for line in status if line.startswith("SigCgt"))
        return int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1

    wait_until(handles_it)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 1


def test_the_gate_loads_no_driver_and_no_grpc():
    program = (
        "import sys; import enforcer.gate; "
        "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'pynvml', 'google', 'yaml')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_a_boot_id_that_is_none(short_tmp):
    assert reason(boot_id(short_tmp / "missing")) is Reason.UNREADABLE
    (short_tmp / "boot").write_text("../../x\n")
    assert reason(boot_id(short_tmp / "boot")) is Reason.MALFORMED
