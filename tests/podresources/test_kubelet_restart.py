"""One client, many kubelets: what comes and goes behind one path."""

import os
import threading
import time

import pytest

from podresources import SocketMissing, Unavailable


def one_pod(name: str) -> list:
    return [{"namespace": "a", "name": name, "containers": [{"name": "main"}]}]


def test_k06_first_call_after_a_restart_finds_the_new_socket(node):
    client = node.client()
    inodes = set()
    for round_ in range(3):
        node.says(pods=one_pod(f"p{round_}"))
        assert [pod.name for pod in client.list()] == [f"p{round_}"]
        inodes.add((os.stat(node.socket).st_ino, os.stat(node.socket).st_ctime_ns))
        node.running[-1].stop()
        with pytest.raises(SocketMissing):
            client.list()
        node.start()
    assert len(inodes) == 3


def test_a_kubelet_that_replaced_one_that_still_runs_is_asked(node):
    client = node.client()
    assert client.list() == ()
    first = node.running[0]
    second = node.start()
    assert client.list() == ()
    assert (first.calls["List"], second.calls["List"]) == (1, 1)
    first.stop()
    assert node.socket.exists(), "the old kubelet removed the new one's socket"
    assert client.list() == ()


def test_a_call_that_hangs_on_the_old_kubelet_does_not_hold_the_next_one(node):
    node.says(faults=[{"method": "List", "hang": True}])
    client = node.client(deadline=100)

    def wait():
        with pytest.raises(Unavailable):
            client.list()

    thread = threading.Thread(target=wait)
    thread.start()
    limit = time.monotonic() + 10
    while node.running[0].calls["List"] == 0:
        assert time.monotonic() < limit
        os.sched_yield()
    node.says()
    second = node.start()
    assert client.list() == ()
    assert second.calls["List"] == 1
    client.close()
    thread.join(timeout=10)
    assert not thread.is_alive()


def test_k22_client_made_before_the_kubelet(node):
    node.running[0].stop()
    client = node.client()
    with pytest.raises(SocketMissing):
        client.list()
    node.start()
    assert client.list() == ()
