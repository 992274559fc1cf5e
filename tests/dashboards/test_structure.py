"""The dashboards are what the builder writes, and what Grafana's own types describe."""

import json
from pathlib import Path

import jsonschema
import pytest

from dashboards.builder import FOLDER, dashboards
from tests.dashboards.boards import BOARDS, panels

SCHEMA = json.loads((Path(__file__).parent / "schema" / "dashboard.schema.json").read_text())
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def test_what_is_committed_is_what_the_builder_writes():
    assert {name: json.dumps(one, indent=2, ensure_ascii=False) + "\n" for name, one in dashboards().items()} == {
        path.name: path.read_text() for path in FOLDER.glob("*.json")
    }, "run `make dashboards`"


@each_board
def test_grafanas_types_describe_it(board):
    errors = [f"{list(error.path)}: {error.message}" for error in _validator().iter_errors(board)]
    assert not errors


def test_the_schema_finds_a_mistake():
    board = json.loads(json.dumps(next(iter(BOARDS.values()))))
    board["panels"][1]["gridPos"]["w"] = "wide"
    assert list(_validator().iter_errors(board))
    del board["panels"][1]["gridPos"], board["schemaVersion"]
    assert any("schemaVersion" in error.message for error in _validator().iter_errors(board))


def _validator():
    return jsonschema.Draft7Validator(SCHEMA)


@each_board
def test_panels_neither_overlap_nor_leave_the_grid(board):
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@each_board
def test_a_file_that_any_grafana_can_take(board):
    assert not {"id", "__inputs", "__requires", "gnetId"} & board.keys()
    assert 39 <= board["schemaVersion"] <= 42
    assert board["uid"].startswith("podgpu-")
    assert board["editable"] is False
    assert "podgpu" in board["tags"]
    assert board["version"] == 1
    assert board["description"]


def test_uids_and_titles_are_unique():
    for key in ("uid", "title"):
        assert len({board[key] for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        titles = [panel["title"] for panel in panels(board)]
        assert len(set(titles)) == len(titles)


@each_board
def test_each_links_to_the_others_and_takes_the_choice_along(board):
    (link,) = board["links"]
    assert link["type"] == "dashboards"
    assert link["tags"] == ["podgpu"]
    assert link["includeVars"]
    assert link["keepTime"]
    assert all(set(link["tags"]) <= set(other["tags"]) for other in BOARDS.values())
