"""The API server without a cluster: what it answers, whom, and what goes wrong with it on request."""

import json
from http.client import HTTPConnection, RemoteDisconnected

import pytest

from simulator import apiserver
from simulator.processes import Processes, free_address
from tests.dra.conftest import GPU_A, NODE, WHOLE, device, resource_slice

PATH = "/apis/resource.k8s.io/{}/resourceslices"
V1 = PATH.format("v1")


@pytest.fixture
def state(tmp_path):
    path = tmp_path / "state.json"
    apiserver.write_state(path, {"slices": [WHOLE, resource_slice(node="node-2", pool="node-2")]})
    return path


@pytest.fixture
def server(state):
    with apiserver.serve(state) as found:
        yield found


def get(address, path, **headers):
    """Status, headers and JSON of one request on a connection of its own."""
    connection = HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read() or b"null")
    finally:
        connection.close()


def test_slices_of_all_nodes_and_of_one(server):
    status, headers, found = get(server.address, V1)
    assert (status, headers["Content-Type"], found["kind"]) == (200, "application/json", "ResourceSliceList")
    assert len(found["items"]) == 2
    _, _, found = get(server.address, f"{V1}?fieldSelector=spec.nodeName%3D{NODE}&resourceVersion=0")
    assert found["items"] == [WHOLE]


def test_what_an_api_server_refuses(server):
    assert get(server.address, f"{V1}?fieldSelector=spec.colour%3Dred")[0] == 400
    assert get(server.address, PATH.format("v1beta1"))[0] == 404
    status, _, found = get(server.address, "/apis/no/such/thing")
    assert (status, found["kind"], found["code"]) == (404, "Status", 404)


def test_a_version_has_its_own_form(server, state):
    apiserver.write_state(state, {"versions": ["v1beta1", "v1beta2"], "slices": [WHOLE]})
    described = device("gpu-0", type="gpu", uuid=GPU_A)
    _, _, old = get(server.address, PATH.format("v1beta1"))
    assert old["items"][0]["spec"]["devices"] == [{"name": "gpu-0", "basic": {"attributes": described["attributes"]}}]
    _, _, new = get(server.address, PATH.format("v1beta2"))
    assert new["items"][0]["spec"]["devices"] == [described]


def test_tokens(server, state):
    apiserver.write_state(state, {"tokens": ["one", "two"]})
    assert get(server.address, V1)[0] == 401
    assert get(server.address, V1, Authorization="Bearer three")[0] == 401
    assert get(server.address, V1, Authorization="Bearer two")[0] == 200


def test_a_fault_meets_the_requests_that_it_names(server, state):
    faults = [{"path": V1, "first": 2, "count": 1, "status": 429, "headers": {"Retry-After": "5"}}]
    apiserver.write_state(state, {"faults": faults})
    assert get(server.address, "/apis/")[0] == 404
    assert get(server.address, V1)[0] == 200
    status, headers, _ = get(server.address, V1)
    assert (status, headers["Retry-After"]) == (429, "5")
    assert get(server.address, V1)[0] == 200


def test_a_cut_answer_has_half_of_its_body(server, state):
    apiserver.write_state(state, {"faults": [{"cut": True, "body": "x" * 100}]})
    connection = HTTPConnection(server.address, timeout=20)
    connection.request("GET", V1)
    response = connection.getresponse()
    assert response.headers["Content-Length"] == "100"
    assert response.fp.read() == b"x" * 50
    connection.close()


def test_one_that_hangs_keeps_no_other_waiting_and_ends_with_the_server(state):
    apiserver.write_state(state, {"faults": [{"hang": True, "count": 1}]})
    with apiserver.serve(state) as server:
        hung = HTTPConnection(server.address, timeout=20)
        hung.request("GET", V1)
        while not server.calls:
            pass
        assert get(server.address, V1)[0] == 200
    with pytest.raises(RemoteDisconnected):
        hung.getresponse()
    hung.close()


def test_as_a_process_with_its_calls_in_a_file(state, tmp_path):
    calls, address = tmp_path / "calls.json", free_address(0)
    with Processes() as processes:
        process = processes.start(
            "simulator.apiserver", "--listen", address, "--state", str(state), "--calls", str(calls)
        )
        status = None
        while status is None:
            assert process.poll() is None
            try:
                status, _, _ = get(address, V1)
            except ConnectionRefusedError:
                continue
        assert status == 200
        assert json.loads(calls.read_text()) == {V1: 1}
        assert processes.stop(process) == 0
