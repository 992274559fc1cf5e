"""The simulated kubelet as a process of its own: as tests and demos start it, and as it is killed."""

import json
import signal
import subprocess
import sys
import time

import pytest

from podresources import Client, RateLimited, SocketMissing, Unavailable
from podresources.generate import ROOT
from simulator.kubelet import write_state


class Process:
    """A simulated kubelet in a process; ready when constructed."""

    def __init__(self, folder) -> None:
        self.socket, self.state, self.calls = folder / "kubelet.sock", folder / "state.json", folder / "calls.json"
        before = self._identity()
        command = ["-m", "simulator.kubelet", "--socket", self.socket, "--state", self.state, "--calls", self.calls]
        self.process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        limit = time.monotonic() + 30
        while self._identity() in (before, None):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < limit
            time.sleep(0.01)

    def _identity(self):
        try:
            status = self.socket.stat()
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_ctime_ns

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        assert errors == ""
        return self.process.returncode


@pytest.mark.whole
def test_life_of_a_simulated_kubelet(tmp_path):
    state = tmp_path / "state.json"
    write_state(state, {"pods": [{"namespace": "a", "name": "p", "containers": []}]})
    client = Client(tmp_path / "kubelet.sock")

    first = Process(tmp_path)
    assert [pod.name for pod in client.list()] == ["p"]
    write_state(state, {"pods": [{"namespace": "a", "name": "q", "containers": []}]})
    assert [pod.name for pod in client.list()] == ["q"]
    assert json.loads(first.calls.read_text()) == {"List": 2}

    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with pytest.raises(Unavailable, match="Connection refused"):
        client.list()

    second = Process(tmp_path)
    assert [pod.name for pod in client.list()] == ["q"]
    write_state(state, {"faults": [{"method": "List", "hang": True}]})
    assert second.end(signal.SIGTERM) == 0
    with pytest.raises(SocketMissing):
        client.list()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls.json", "state.json"]


def test_faults_meet_the_calls_they_are_meant_for(node):
    fault = {"method": "List", "code": "RESOURCE_EXHAUSTED", "text": "rejected by rate limit"}
    node.says(faults=[{**fault, "first": 2, "count": 2}])
    client = node.client()
    client.allocatable()

    def outcome() -> str:
        try:
            return "ok" if client.list() == () else "pods"
        except RateLimited:
            return "refused"

    assert [outcome() for _ in range(5)] == ["ok", "refused", "refused", "ok", "ok"]
    node.says(faults=[fault], pods=[])
    assert [outcome() for _ in range(2)] == ["refused", "refused"]
    assert node.running[0].calls == {"List": 7, "GetAllocatableResources": 1}
