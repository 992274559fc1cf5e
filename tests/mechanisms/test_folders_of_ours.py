"""Folders of ours: whole files, no links, no owners but us."""

import os
import stat

import pytest

from enforcer.mechanisms.folders import Folder
from exporter.errors import Failure, Reason

NOBODY = 65534


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


@pytest.fixture
def folder(short_tmp):
    return Folder(str(short_tmp / "a" / "b"))


def test_what_is_written_is_read(folder):
    assert folder.read("one", most=10) is None
    assert folder.names() == ()
    assert folder.write("one", b"first") is None
    assert folder.write("one", b"second") is None
    assert folder.read("one", most=6) == b"second"
    assert folder.names() == ("one",)
    assert folder.remove("one") is None
    assert folder.remove("one") is None
    assert folder.names() == ()


def test_modes_do_not_depend_on_the_umask(short_tmp):
    before = os.umask(0o077)
    try:
        Folder(str(short_tmp / "x" / "open"), mode=0o755, file_mode=0o644).write("f", b"")
    finally:
        os.umask(before)
    before = os.umask(0)
    try:
        Folder(str(short_tmp / "y" / "shut")).write("f", b"")
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((short_tmp / path).stat().st_mode)
        for path in ("x", "x/open", "x/open/f", "y", "y/shut", "y/shut/f")
    ]
    assert modes == [0o755, 0o755, 0o644, 0o755, 0o700, 0o600]


def test_a_file_that_is_too_large_is_not_read(folder):
    folder.write("one", b"12345")
    assert reason(folder.read("one", most=4)) is Reason.TOO_LARGE


def test_what_a_crash_left_is_no_file_and_does_not_stand_in_the_way(folder, short_tmp):
    folder.write("one", b"whole")
    (short_tmp / "a/b/.one.new").write_bytes(b"ha")
    assert folder.names() == ("one",)
    assert folder.write("one", b"again") is None
    assert os.listdir(short_tmp / "a/b") == ["one"]


def test_a_link_is_neither_read_nor_written_through(folder, short_tmp):
    folder.write("other", b"")
    secret = short_tmp / "secret"
    secret.write_bytes(b"mine")
    (short_tmp / "a/b/one").symlink_to(secret)
    (short_tmp / "a/b/.one.new").symlink_to(secret)
    assert reason(folder.read("one", most=10)) is Reason.UNREADABLE
    assert folder.write("one", b"ours") is None
    assert secret.read_bytes() == b"mine"
    assert folder.read("one", most=10) == b"ours"


def test_a_folder_that_is_a_link_is_not_used(short_tmp):
    (short_tmp / "elsewhere").mkdir(mode=0o700)
    (short_tmp / "link").symlink_to(short_tmp / "elsewhere")
    folder = Folder(str(short_tmp / "link"))
    assert reason(folder.write("one", b"")) is Reason.UNWRITABLE
    assert reason(folder.names()) is Reason.UNREADABLE
    assert os.listdir(short_tmp / "elsewhere") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_somebody_elses_is_not_used(folder, short_tmp):
    folder.write("one", b"true")
    os.chown(short_tmp / "a/b/one", NOBODY, NOBODY)
    assert reason(folder.read("one", most=10)) is Reason.FOREIGN
    os.chown(short_tmp / "a/b", NOBODY, NOBODY)
    assert reason(folder.read("two", most=10)) is Reason.FOREIGN
    assert reason(folder.write("two", b"")) is Reason.FOREIGN
    assert reason(folder.remove("one")) is Reason.FOREIGN
    assert reason(folder.names()) is Reason.FOREIGN
    assert os.listdir(short_tmp / "a/b") == ["one"]


def test_what_others_may_write_to_is_not_used(folder, short_tmp):
    folder.write("one", b"true")
    (short_tmp / "a/b/one").chmod(0o666)
    assert reason(folder.read("one", most=10)) is Reason.FOREIGN
    (short_tmp / "a/b").chmod(0o777)
    assert reason(folder.write("two", b"")) is Reason.FOREIGN


def test_a_pipe_is_not_waited_for(folder, short_tmp):
    folder.write("other", b"")
    os.mkfifo(short_tmp / "a/b/one", 0o600)
    assert reason(folder.read("one", most=10)) is Reason.FOREIGN


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "x\0y", "x" * 201, "x\n", "-x"])
def test_a_name_that_is_no_file_here_is_refused(folder, name):
    with pytest.raises(ValueError, match="no name"):
        folder.write(name, b"")
    with pytest.raises(ValueError, match="no name"):
        folder.read(name, most=1)


def test_a_full_disk_leaves_what_was_there(folder, monkeypatch):
    folder.write("one", b"old")

    def full(descriptor, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    problem = folder.write("one", b"new")
    monkeypatch.undo()
    assert reason(problem) is Reason.UNWRITABLE
    assert "No space left" in problem.detail
    assert folder.read("one", most=10) == b"old"


def test_a_place_that_is_a_file_is_told(short_tmp):
    (short_tmp / "file").write_bytes(b"")
    assert reason(Folder(str(short_tmp / "file")).write("one", b"")) is Reason.UNWRITABLE
    assert reason(Folder(str(short_tmp / "file" / "below")).write("one", b"")) is Reason.UNWRITABLE


def test_more_files_than_there_can_be_are_too_many(folder, monkeypatch):
    for number in range(4):
        folder.write(str(number), b"")
    monkeypatch.setattr("enforcer.mechanisms.folders._MOST_NAMES", 3)
    assert reason(folder.names()) is Reason.TOO_LARGE
