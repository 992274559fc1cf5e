"""What the enforcer keeps on disk: all of it comes back, and what is not surely ours is never "nothing"."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.mechanisms.names import is_container, is_pod_uid
from enforcer.mechanisms.records import RecordStore
from enforcer.model import Level, Records, Start
from exporter.errors import Failure, Reason
from exporter.model import ContainerRef
from tests.mechanisms.conftest import BOOT, MIB, UID

OTHER = "0a1b2c3d-0000-4000-8000-000000000002"
STATIC = "0123456789abcdef0123456789abcdef"
CONTAINER = Level(ContainerRef(UID, "c" * 64), "GPU-a")
POD = Level(ContainerRef(UID), "GPU-a")


@pytest.fixture
def store(short_tmp):
    return RecordStore(str(short_tmp / "state"), boot=BOOT)


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


def again(short_tmp, boot=BOOT):
    return RecordStore(str(short_tmp / "state"), boot=boot).read()


def test_nothing_was_recorded(store):
    assert store.read() == Records()


def test_everything_comes_back_after_a_restart(store, short_tmp):
    start = Start(OTHER, 12.5, {0: 81920, 3: 4606}, 33.3)
    assert store.note_limit(POD, None) is None
    assert store.note_limit(CONTAINER, 5 * MIB) is None
    assert store.note_door(UID, "train", "/run/mps/shared/j_1") is None
    assert store.note_door(STATIC, "side", "/run/mps/shared/j_2") is None
    assert store.begin_start("/run/mps", start) is None
    assert again(short_tmp) == Records(
        limits={POD: None, CONTAINER: 5 * MIB},
        doors={(UID, "train"): "/run/mps/shared/j_1", (STATIC, "side"): "/run/mps/shared/j_2"},
        starts={"/run/mps": start},
    )


def test_what_a_cgroup_had_first_is_what_it_gets_back(store):
    store.note_limit(POD, None)
    store.note_limit(POD, 7 * MIB)
    assert store.read().limits == {POD: None}


def test_what_was_undone_is_forgotten_and_leaves_no_file(store, short_tmp):
    store.note_limit(POD, None)
    store.note_door(UID, "train", "/run/mps/shared/j_1")
    store.begin_start("/run/mps", Start(UID, 1.0, {}, 100.0))
    store.forget_limit(POD)
    assert store.read().doors == {(UID, "train"): "/run/mps/shared/j_1"}
    assert store.forget_door(UID, "train") is None
    assert store.end_start("/run/mps") is None
    assert store.read() == Records()
    assert os.listdir(short_tmp / "state/pods") == os.listdir(short_tmp / "state/starts") == []


def test_a_pod_is_dropped_and_no_other(store):
    store.note_limit(POD, None)
    other = Level(ContainerRef(OTHER), "GPU-a")
    store.note_limit(other, None)
    assert store.drop(UID) is None
    assert store.drop(UID) is None
    assert store.read().limits == {other: None}


def test_records_of_an_earlier_boot_are_none(store, short_tmp):
    store.note_limit(POD, None)
    store.begin_start("/run/mps", Start(UID, 1.0, {}, 100.0))
    assert again(short_tmp, boot="another") == Records()
    assert os.listdir(short_tmp / "state/pods") == []


def _torn(content):
    return content[: len(content) // 2]


def _changed(**changes):
    return lambda content: json.dumps({**json.loads(content), **changes}).encode()


@pytest.mark.parametrize(
    "spoil",
    [
        _torn,
        lambda _: b"",
        lambda _: b"[]",
        lambda _: b"null",
        lambda _: b"\xff\xfe",
        lambda _: b"[" * 100_000,
        _changed(version=2),
        _changed(boot=None),
        _changed(uid=OTHER),
        _changed(uid=None),
        _changed(limits={}),
        _changed(limits=[{"container_id": "", "gpu": "GPU-a", "before": "1"}]),
        _changed(limits=[{"container_id": "", "gpu": "GPU-a", "before": -1}]),
        _changed(limits=[{"container_id": "", "gpu": "GPU-a", "before": True}]),
        _changed(limits=[{"container_id": 1, "gpu": "GPU-a", "before": None}]),
        _changed(doors=[]),
        _changed(doors={"../x": "/run"}),
        _changed(doors={"train": 1}),
    ],
)
def test_a_spoilt_record_is_a_failure_and_is_left(store, short_tmp, spoil):
    store.note_limit(POD, None)
    path = short_tmp / "state/pods" / f"{UID}.json"
    path.write_bytes(spoil(path.read_bytes()))
    spoilt = path.read_bytes()
    assert reason(store.read()) is Reason.MALFORMED
    assert UID in store.read().detail
    assert reason(store.note_limit(CONTAINER, None)) is Reason.MALFORMED  # or the limit of the pod would be forgotten
    assert reason(store.forget_limit(POD)) is Reason.MALFORMED
    assert path.read_bytes() == spoilt


@pytest.mark.parametrize("spoil", [_torn, _changed(usual={"x": 1}), _changed(usual=[]), _changed(pipe_directory="/x")])
def test_a_spoilt_start_is_a_failure(store, short_tmp, spoil):
    store.begin_start("/run/mps", Start(UID, 1.0, {0: 1}, 100.0))
    (path,) = (short_tmp / "state/starts").iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    assert reason(store.read()) is Reason.MALFORMED


@pytest.mark.parametrize("name", ["notes.txt", "x.json", f"{UID}.json.bak", f"{OTHER}.json"])
def test_a_foreign_file_is_a_failure(store, short_tmp, name):
    store.note_limit(POD, None)
    folder = short_tmp / "state/pods"
    (folder / name).write_bytes((folder / f"{UID}.json").read_bytes())
    (folder / name).chmod(0o600)
    assert reason(store.read()) is Reason.MALFORMED


def test_a_linked_or_huge_record_is_a_failure(store, short_tmp):
    store.note_limit(POD, None)
    path = short_tmp / "state/pods" / f"{UID}.json"
    path.rename(short_tmp / "elsewhere")
    path.symlink_to(short_tmp / "elsewhere")
    assert isinstance(store.read(), Failure)
    path.unlink()
    path.write_bytes(b" " * (256 << 10) + b"{}")
    path.chmod(0o600)
    assert reason(store.read()) is Reason.TOO_LARGE


@pytest.mark.parametrize(
    "uid", ["", "..", "../../etc/passwd", f"{UID}/..", UID + "\n", "x" * 32, f".{UID}", UID + "\0"]
)
def test_a_hostile_uid_reaches_no_file(store, short_tmp, uid):
    assert reason(store.note_limit(Level(ContainerRef(uid), "GPU-a"), None)) is Reason.MALFORMED
    assert reason(store.note_door(uid, "train", "/run/x")) is Reason.MALFORMED
    assert reason(store.begin_start("/run/x", Start(uid, 1.0, {}, 100.0))) is Reason.MALFORMED
    assert reason(store.drop(uid)) is Reason.MALFORMED
    assert not (short_tmp / "state").exists()


@pytest.mark.parametrize("container", ["", "..", "a/b", "A", "x" * 64, "a\n", "-a", "a-", ".new"])
def test_a_hostile_container_reaches_no_file(store, short_tmp, container):
    assert reason(store.note_door(UID, container, "/run/x")) is Reason.MALFORMED
    assert not (short_tmp / "state").exists()


@given(st.text(max_size=70))
def test_what_passes_for_a_name_is_one_plain_segment(text):
    for passes in (is_pod_uid, is_container):
        if passes(text):
            assert text
            assert text.isascii()
            assert not set(text) - set("0123456789abcdefghijklmnopqrstuvwxyzABCDEF-")


@given(st.binary(max_size=300))
def test_no_content_is_taken_for_nothing(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    (folder / "pods").mkdir(mode=0o700)
    path = folder / "pods" / f"{UID}.json"
    path.write_bytes(content)
    path.chmod(0o600)
    assert isinstance(RecordStore(str(folder), boot=BOOT).read(), Failure)
