"""The roles allow what the programs ask of the API server, and nothing else."""

import json

import pytest

from enforcer.mechanisms import events, eviction
from tests.deploy.manifests import DEPLOY, load, plain, rights
from tests.whole.conftest import libraries, make

__all__ = ["libraries", "make"]  # the fixtures of the whole program


def right(path):
    """A request of the API server as RBAC sees it."""
    asked, _, watch = path.partition("?")
    parts = asked.strip("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    return group, parts[-1], "watch" if watch else "list"


def told(right):
    """A right as a refused program names it: verbs, and the resource of the core group."""
    verbs, _, resource = right.partition(" on ")
    return {("", resource, verb) for verb in verbs.split(" and ")}


@pytest.mark.whole
def test_the_exporter_s_role_is_what_the_exporter_asks(make):
    whole = make("dra")
    whole.start_exporter()
    path = whole.paths.root / "apiserver.calls"
    expected = rights(plain(), "podgpu-exporter")

    def asked():
        return {right(each) for each in json.loads(path.read_text())} if path.exists() else set()

    whole.eventually(lambda: asked() >= expected)
    whole.until_next_cycles(4)
    assert asked() == expected


def test_the_enforcer_s_role_reads_what_the_exporter_reads_and_writes_events_and_evictions():
    (role,) = (
        each for each in load((DEPLOY / "components/enforcer/rbac.yaml").read_text()) if each["kind"] == "ClusterRole"
    )
    reads = {each for each in rights(plain(), "podgpu-exporter") if each[1] == "pods"}
    assert rights([role], "podgpu-enforcer") == reads | told(events.RIGHT) | told(eviction.RIGHT)
