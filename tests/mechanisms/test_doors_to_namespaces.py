"""Doors: a container's link to its namespace's pipe directory, safe from whatever else is in the way."""

import os
import stat

import pytest

from enforcer.mechanisms.doors import close_door, leads_to, open_door
from enforcer.outcomes import Done
from exporter.errors import Failure, Reason
from tests.mechanisms.conftest import UID

OTHER = "0a1b2c3d-0000-4000-8000-000000000002"


@pytest.fixture
def pipe(short_tmp):
    """A daemon's pipe directory, with two namespaces."""
    for name in ("j_1", "j_2"):
        (short_tmp / "mps/server" / name).mkdir(parents=True)
        (short_tmp / "mps/server" / name / "control").touch()
    (short_tmp / "mps").chmod(0o755)
    return short_tmp / "mps"


def to(pipe, name="j_1"):
    return str(pipe / "server" / name)


def reason(outcome):
    assert isinstance(outcome, Failure), outcome
    return outcome.reason


def test_a_door_leads_to_the_namespace_within_the_volume(pipe):
    assert isinstance(open_door(UID, "train", to(pipe)), Done)
    door = pipe / ".doors" / UID / "train"
    assert os.readlink(door) == "../../server/j_1"
    assert (door / "control").exists()
    assert door.resolve().is_relative_to(pipe)
    assert leads_to(UID, "train", to(pipe)) == to(pipe)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (door.parent, door.parent.parent)] == [0o755, 0o755]


def test_a_door_works_from_wherever_the_volume_is_mounted(pipe, short_tmp):
    open_door(UID, "train", to(pipe))
    pipe.rename(short_tmp / "elsewhere")
    assert (short_tmp / "elsewhere/.doors" / UID / "train/control").exists()


def test_a_door_is_replaced_and_the_same_again(pipe):
    open_door(UID, "train", to(pipe))
    assert isinstance(open_door(UID, "train", to(pipe)), Done)
    assert isinstance(open_door(UID, "train", to(pipe, "j_2")), Done)
    assert leads_to(UID, "train", to(pipe, "j_2")) == to(pipe, "j_2")
    assert leads_to(UID, "train", to(pipe)) == to(pipe, "j_2")  # where it leads, whatever was recorded
    assert os.listdir(pipe / ".doors" / UID) == ["train"]


def test_a_door_is_closed_and_no_other(pipe):
    open_door(UID, "train", to(pipe))
    open_door(UID, "side", to(pipe, "j_2"))
    open_door(OTHER, "train", to(pipe, "j_2"))
    assert isinstance(close_door(UID, "train", to(pipe)), Done)
    assert os.listdir(pipe / ".doors" / UID) == ["side"]
    assert leads_to(UID, "train", to(pipe)) == ""
    assert isinstance(close_door(UID, "side", to(pipe)), Done)
    assert os.listdir(pipe / ".doors") == [OTHER]
    assert isinstance(close_door(UID, "side", to(pipe)), Done)


def test_a_door_is_closed_whose_namespace_has_gone(pipe):
    open_door(UID, "train", to(pipe))
    (pipe / "server/j_1/control").unlink()
    (pipe / "server/j_1").rmdir()
    assert isinstance(close_door(UID, "train", to(pipe)), Done)
    assert not os.path.lexists(pipe / ".doors" / UID)


def test_no_door_to_a_namespace_that_is_not_there(pipe):
    assert reason(open_door(UID, "train", to(pipe, "j_3"))) is Reason.MISSING
    assert leads_to(UID, "train", to(pipe, "j_3")) == ""
    assert not (pipe / ".doors").exists()


def test_the_empty_folder_that_the_kubelet_made_is_replaced(pipe):
    (pipe / ".doors" / UID / "train").mkdir(parents=True, mode=0o750)
    assert isinstance(open_door(UID, "train", to(pipe)), Done)
    assert (pipe / ".doors" / UID / "train").is_symlink()


@pytest.mark.parametrize("make", ["mkdir", "touch"])
def test_what_somebody_put_there_is_left(pipe, make):
    open_door(OTHER, "train", to(pipe))
    place = pipe / ".doors" / UID / "train"
    if make == "mkdir":
        place.mkdir(parents=True)
        (place / "data").touch()
        assert reason(open_door(UID, "train", to(pipe))) is Reason.UNWRITABLE
        assert (place / "data").exists()
    else:
        place.parent.mkdir()
        place.touch()
    close_door(UID, "train", to(pipe))
    assert place.exists()


@pytest.mark.parametrize("at", [".doors", f".doors/{UID}"])
def test_a_link_in_the_way_is_not_followed(pipe, short_tmp, at):
    (short_tmp / "victim").mkdir()
    (pipe / at).parent.mkdir(exist_ok=True)
    (pipe / at).symlink_to(short_tmp / "victim")
    assert isinstance(open_door(UID, "train", to(pipe)), Failure)
    assert isinstance(close_door(UID, "train", to(pipe)), Failure)
    assert os.listdir(short_tmp / "victim") == []


@pytest.mark.parametrize("at", [".", ".doors", f".doors/{UID}"])
def test_a_folder_that_others_may_write_to_is_not_used(pipe, at):
    open_door(UID, "train", to(pipe))
    (pipe / at).chmod(0o777)
    assert reason(open_door(UID, "train", to(pipe, "j_2"))) is Reason.FOREIGN
    assert reason(close_door(UID, "train", to(pipe))) is Reason.FOREIGN
    (pipe / at).chmod(0o755)
    assert leads_to(UID, "train", to(pipe)) == to(pipe)


@pytest.mark.parametrize(
    ("uid", "container", "directory"),
    [
        ("../../x", "train", "/run/mps/server/j_1"),
        (UID, "../x", "/run/mps/server/j_1"),
        (UID, ".new", "/run/mps/server/j_1"),
        (UID, "train", "server/j_1"),
        (UID, "train", "/j_1"),
        (UID, "train", "/run/mps/server/.."),
        (UID, "train", "/run/../mps/server/j_1"),
        (UID, "train", "/run/mps/sha red/j_1"),
        (UID, "train", "/run/mps/server/j_1/"),
        (UID, "train", "/run/mps/server/j_1\n"),
    ],
)
def test_hostile_names(uid, container, directory):
    assert reason(open_door(uid, container, directory)) is Reason.MALFORMED
    assert reason(close_door(uid, container, directory)) is Reason.MALFORMED
    assert leads_to(uid, container, directory) == ""
