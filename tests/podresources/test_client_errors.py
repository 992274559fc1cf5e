"""Every way in which the socket can fail, each produced for real, each with one line that names the socket."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import podresources
from podresources import Client
from podresources.generate import ROOT
from simulator.kubelet import serve, write_state


@pytest.fixture(autouse=True)
def _silent(capfd):
    """Whatever happens on the socket, nothing is written behind the caller's back."""
    yield
    assert capfd.readouterr().err == ""


def refused(client: Client, kind: type[podresources.PodResourcesError], method: str = "list", *arguments: str) -> str:
    """The text of the error of exactly this kind that the call ends with."""
    with pytest.raises(kind) as caught:
        getattr(client, method)(*arguments)
    assert type(caught.value) is kind
    assert caught.value.socket_path == client.socket_path
    text = str(caught.value)
    assert client.socket_path in text
    assert "\n" not in text
    return text


def test_k12_nothing_at_the_path(tmp_path):
    text = refused(Client(tmp_path / "kubelet.sock"), podresources.SocketMissing)
    assert "root directory" in text


def test_b44_the_directory_is_not_mounted(tmp_path):
    refused(Client(tmp_path / "no" / "kubelet.sock"), podresources.SocketMissing)


def test_k12_none_of_the_known_places(tmp_path):
    places = [str(tmp_path / name) for name in ("a", "b")]
    with pytest.raises(podresources.SocketMissing) as caught:
        podresources.find_socket(places)
    assert all(place in str(caught.value) for place in places)
    Path(places[1]).touch()
    assert podresources.find_socket(places) == places[1]


def test_k07_path_is_a_directory(tmp_path):
    path = tmp_path / "kubelet.sock"
    path.mkdir()
    assert "path is a directory" in refused(Client(path), podresources.NotASocket)


def test_path_is_a_file(tmp_path):
    path = tmp_path / "kubelet.sock"
    path.touch()
    assert "path is not a socket" in refused(Client(path), podresources.NotASocket)


def test_k06_nobody_listens_at_a_socket_that_was_left_behind(tmp_path):
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    text = refused(Client(path), podresources.Unavailable)
    assert "Connection refused" in text
    assert "mount the socket's directory" in text


def test_path_longer_than_a_socket_may_have():
    path = "/" + "x" * 107
    with pytest.raises(ValueError, match=r"108 bytes.* 107"):
        Client(path)
    Client(path[:-1])


UNPRIVILEGED = """
import os, sys
import podresources
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    podresources.Client(sys.argv[1]).list()
except podresources.PodResourcesError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("closed", ["socket", "directory"])
def test_permission_denied(closed):
    folder = Path(tempfile.mkdtemp())  # not tmp_path: another user may not even search the folders above it
    try:
        inner = folder / "pod-resources"
        inner.mkdir()
        path = inner / "kubelet.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            folder.chmod(0o755)
            path.chmod(0o000 if closed == "socket" else 0o777)
            inner.chmod(0o000 if closed == "directory" else 0o755)
            done = subprocess.run(
                [sys.executable, "-c", UNPRIVILEGED, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60
            )
            inner.chmod(0o700)
    finally:
        shutil.rmtree(folder)
    assert done.stderr == ""
    assert done.stdout.startswith(f"PermissionDenied {path}: ")
    assert "uid 0" in done.stdout


def test_deadline_of_a_kubelet_that_hangs(node):
    node.says(faults=[{"method": "List", "hang": True}])
    start = time.monotonic()
    assert "no answer in 0.3 s" in refused(node.client(deadline=0.3), podresources.DeadlineExceeded)
    assert time.monotonic() - start < 5


def test_deadline_of_a_listener_that_says_nothing(tmp_path):
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        refused(Client(path, deadline=0.3), podresources.DeadlineExceeded)


def test_a_slow_answer_within_the_deadline_is_an_answer(node):
    node.says(faults=[{"method": "List", "delay": 0.05}])
    assert node.client(deadline=30).list() == ()


def test_k05_answer_above_the_limit(node):
    node.says(padding_mib=65)
    text = refused(node.client(), podresources.AnswerTooLarge)
    assert "vs. 67108864" in text
    node.says(padding_mib=2)
    refused(node.client(max_message_bytes=1 << 20), podresources.AnswerTooLarge)


@pytest.mark.parametrize("text", ["rejected by rate limit", "too many requests"])
def test_b38_rate_limit_is_not_the_size_limit(node, text):
    node.says(faults=[{"method": "List", "code": "RESOURCE_EXHAUSTED", "text": text, "count": 1}])
    client = node.client()
    assert text in refused(client, podresources.RateLimited)
    assert client.list() == ()


@pytest.mark.parametrize(("method", "rpc"), [("list", "List"), ("allocatable", "GetAllocatableResources")])
def test_k10_call_that_an_old_kubelet_does_not_have(raw_server, method, rpc):
    text = refused(Client(raw_server()), podresources.Unimplemented, method)
    assert rpc in text
    assert "Kubernetes" in text


def test_pod_that_the_kubelet_does_not_have(node):
    assert "pod p in namespace a not found" in refused(node.client(), podresources.PodNotFound, "get", "a", "p")


@pytest.mark.parametrize("code", ["ABORTED", "INTERNAL", "UNKNOWN", "PERMISSION_DENIED"])
def test_any_other_status_keeps_its_code_and_text(node, code):
    node.says(faults=[{"method": "List", "code": code, "text": "the reason"}])
    assert f"List: {code}: the reason" in refused(node.client(), podresources.CallFailed)


@pytest.mark.parametrize("answer", [b"\xff", b"\x0a\x7f", b"\x0a\x03\x0a\x01\xff"])
def test_bytes_that_are_no_answer(raw_server, answer):
    assert "no kubelet" in refused(Client(raw_server(List=answer)), podresources.MalformedAnswer)


def test_listener_that_speaks_something_else(tmp_path):
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        refused(Client(path, deadline=10), podresources.Unavailable)
        thread.join()


def test_k65_authority_is_localhost(tmp_path):
    path = tmp_path / "kubelet.sock"
    seen = bytearray()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(10)
                connection.sendall(b"\0\0\0\4\0\0\0\0\0")  # empty SETTINGS: the connection is ready
                while b"List" not in seen:
                    seen.extend(connection.recv(1 << 16))

        thread = threading.Thread(target=answer)
        thread.start()
        refused(Client(path, deadline=10), podresources.Unavailable)
        thread.join()
    assert b":authority\tlocalhost" in seen
    assert b"%2F" not in seen


def test_path_with_characters_that_mean_something_in_an_address(tmp_path):
    path = tmp_path / "a b%20c#d?e:f.sock"
    write_state(tmp_path / "state.json", {})
    with serve(path, tmp_path / "state.json"), Client(path) as client:
        assert client.list() == ()


def test_relative_path(node, monkeypatch):
    monkeypatch.chdir(node.socket.parent)
    assert Client(node.socket.name).list() == ()


def test_close_ends_a_call_that_another_thread_waits_for(node):
    node.says(faults=[{"method": "List", "hang": True}])
    client = node.client(deadline=100)
    raised: list[podresources.PodResourcesError] = []

    def wait():
        try:
            client.list()
        except podresources.PodResourcesError as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    limit = time.monotonic() + 10
    while node.running[0].calls["List"] == 0:
        assert time.monotonic() < limit
        os.sched_yield()
    client.close()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [podresources.Unavailable]


def test_a_closed_client_refuses(node):
    client = node.client()
    client.close()
    client.close()
    assert "closed" in refused(client, podresources.Unavailable)
