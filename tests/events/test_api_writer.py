"""Writing to the API server: methods, bodies, and that the exporter has none of it."""

import ast
import json
from pathlib import Path

import pytest

import exporter
from enforcer.mechanisms.api_writer import ApiWriter, segment
from exporter.errors import Failure, Reason
from exporter.sources.apiserver import Answer, ApiServer
from tests.events.conftest import POD

EVENTS = "/api/v1/namespaces/team/events"
EVENT = {"metadata": {"namespace": "team", "name": "e"}, "involvedObject": {"namespace": "team"}, "message": "ä"}


def test_a_post_and_a_patch_arrive_with_their_bodies(cluster):
    api = cluster.writer()
    assert api.post(EVENTS, EVENT).status == 201
    assert api.post(EVENTS, EVENT).status == 409
    answer = api.patch(f"{EVENTS}/e", {"count": 2})
    assert (answer.status, json.loads(answer.body)) == (200, {**EVENT, "count": 2})
    assert api.patch(f"{EVENTS}/other", {"count": 2}).status == 404
    assert cluster.server.calls[f"POST {EVENTS}"] == 2
    assert json.loads(cluster.writes_path.read_text())["events"] == [{**EVENT, "count": 2}]


def test_reading_goes_on_as_before(cluster):
    assert cluster.writer().get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1").status == 200


@pytest.mark.parametrize(
    ("fault", "reason"),
    [({"hang": True}, Reason.TIMEOUT), ({"cut": True}, Reason.UNAVAILABLE), ({"drip": True}, Reason.TIMEOUT)],
    ids=["hang", "cut", "drip"],
)
def test_what_goes_wrong_on_the_way(cluster, fault, reason):
    cluster.says(faults=[{"method": "POST", **fault}])
    found = cluster.writer(deadline=0.5).post(EVENTS, EVENT)
    assert isinstance(found, Failure)
    assert found.reason is reason
    assert cluster.writer().get("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1").status == 200


def test_a_token_that_is_not_accepted(cluster):
    (cluster.folder / "token").write_text("another")
    found = cluster.writer().post(EVENTS, EVENT)
    assert isinstance(found, Answer)
    assert found.status == 401
    assert cluster.events == []


def test_what_a_reader_can_do_is_get_and_stream_and_nothing_else():
    public = {name for name in vars(ApiServer) if not name.startswith("_")}
    assert public == {"get", "stream"}
    assert {name for name in vars(ApiWriter) if not name.startswith("_")} == {"post", "patch"}


def test_no_text_of_the_exporter_is_another_method():
    """The one place where the exporter makes requests names the method; so no other may be named at all."""
    methods = {"POST", "PUT", "PATCH", "DELETE"}
    for path in Path(exporter.__file__).parent.rglob("*.py"):
        if path.parent.name == "web":
            continue  # what the server answers to others
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not methods & {text for text in texts if isinstance(text, str)}, path


@pytest.mark.parametrize("name", ["team", "a", "job-0.x", "kube-system", "a" * 253])
def test_names_that_go_into_a_path(name):
    assert segment(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a..b",
        "../pods",
        "a/b",
        "a?b",
        "a b",
        "A",
        "a\n",
        "-a",
        "a-",
        "ä",
        "a%2e",
        "a" * 254,
        "a\r\nX: 1",
    ],
)
def test_names_that_do_not(name):
    found = segment(name)
    assert isinstance(found, Failure)
    assert "\n" not in found.detail
    assert POD.name == segment(POD.name)
