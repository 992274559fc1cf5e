"""The real program with each source of pods alone: names, requests, and what the loss of the source costs."""

import json
from dataclasses import replace

import pytest

from simulator.scenario_file import load
from tests.whole.conftest import libraries, make

__all__ = ["libraries", "make"]  # the fixtures of the whole program

pytestmark = pytest.mark.whole

USED = "podgpu_container_memory_used_bytes"
GIB = 1 << 30
TRAINER = {"namespace": "research", "pod": "sweep-4-x7k2p", "container": "trainer"}
SERVER = {"namespace": "serving", "pod": "chat-7c9fd4b6b-q5w8z", "container": "server"}


def scenario(*sources: str):
    return replace(load("pods-api"), pods_sources=sources)


def all_named(whole) -> bool:
    return whole.value(USED, **TRAINER) == 12 * GIB and whole.value(USED, **SERVER) == 30 * GIB


def total_used(whole) -> float:
    return sum(whole.values(USED))


def calls(whole) -> dict[str, int]:
    path = whole.paths.root / "apiserver.calls"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.parametrize("flags", [(), ("--pods.source=kubelet",)])
def test_the_pods_api_alone_and_nothing_asked_of_an_api_server(make, flags):
    whole = make(scenario("kubelet"))
    whole.start_exporter("--interval=2s", *flags)
    assert all_named(whole)  # on the first page
    assert whole.value("podgpu_source_up", source="pods") == 1
    assert whole.value("podgpu_source_errors_total", source="pods", reason="unavailable") in (None, 0)
    assert calls(whole) == {}
    assert whole.log.count("pods now come from the kubelet's Pods API") == 1


def test_a_kubelet_that_restarts_costs_no_name_and_no_byte(make):
    whole = make(scenario("kubelet"))
    whole.start_exporter()
    whole.eventually(lambda: all_named(whole))
    whole.processes.stop(whole.kubelet)
    whole.eventually(lambda: "source pods:" in whole.log)
    whole.until_next_cycles()
    assert all_named(whole)
    assert total_used(whole) == 42 * GIB
    assert whole.value("podgpu_source_up", source="pods") == 1
    whole.start_kubelet()
    whole.eventually(lambda: "source pods: well again" in whole.log)
    assert all_named(whole)
    assert "secret" not in whole.log + whole.page()


def test_the_api_server_alone_with_one_list_and_one_watch(make):
    whole = make(scenario("api"))
    whole.start_exporter()
    assert total_used(whole) == 42 * GIB  # before any name is known
    whole.eventually(lambda: all_named(whole))
    whole.eventually(lambda: calls(whole) == {"/api/v1/pods": 1, "/api/v1/pods?watch": 1})
    whole.node.advance(25)  # a pod comes
    whole.eventually(lambda: whole.value(USED, namespace="serving", pod="embed-0", container="server") == 4 * GIB)
    whole.until_next_cycles(4)
    assert calls(whole) == {"/api/v1/pods": 1, "/api/v1/pods?watch": 1}


def test_an_api_server_that_dies_costs_no_name_and_no_byte(make):
    whole = make(scenario("api"))
    whole.start_exporter("--pods.source=api")
    whole.eventually(lambda: all_named(whole))
    whole.processes.stop(whole.apiserver)
    whole.eventually(lambda: whole.value("podgpu_source_errors_total", source="pods", reason="unavailable"))
    whole.until_next_cycles()
    assert all_named(whole)
    assert total_used(whole) == 42 * GIB
    whole.start_apiserver()
    whole.eventually(lambda: whole.log.count("source pods: well again") == 1)
    assert all_named(whole)
    assert "token-of" not in whole.log


@pytest.mark.parametrize("flags", [(), ("--pods.source=logs",)])
def test_the_log_links_alone(make, flags):
    whole = make(scenario("logs"))
    whole.start_exporter("--interval=2s", *flags)
    assert all_named(whole)
    assert whole.value("podgpu_source_up", source="pods") == 1


def test_no_source_at_all_costs_names_and_no_byte(make):
    whole = make(scenario("kubelet"), kubelet=False)
    whole.start_exporter("--pods.source=kubelet")
    whole.eventually(lambda: whole.value("podgpu_source_up", source="pods") == 0)
    whole.eventually(lambda: "source pods: socket_missing" in whole.log)
    assert total_used(whole) == 42 * GIB
    assert whole.value(USED, **TRAINER) is None
