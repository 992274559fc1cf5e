"""A node whose pods are told by a kubelet and by an API server, both real servers that go wrong on request."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from exporter.clock import Clock
from exporter.sources.apipods import ApiServerPods
from exporter.sources.apiserver import ApiServer
from exporter.sources.podsapi import KubeletPods
from simulator import apiserver, kubelet, podsapi

NODE = "node-1"
TOKEN = "first-token"
PATIENCE = 20.0  # seconds until a test gives up waiting for what should come


def uid(number: int) -> str:
    return f"{number:08d}-0000-4000-8000-000000000000"


def container_id(number: int) -> str:
    return f"{number:064x}"


def pod(
    number: int, name: str = "", *, node: str = NODE, container: str = "main", started: bool = True, **meta
) -> dict:
    """A pod as Kubernetes writes it. Its container's id has its number."""
    status = {"name": container, "containerID": f"containerd://{container_id(number)}", "state": {"running": {}}}
    return {
        "metadata": {
            "uid": uid(number),
            "namespace": "ml",
            "name": name or f"pod-{number}",
            "managedFields": [{"manager": "kubelet"}],
            **meta,
        },
        "spec": {"nodeName": node, "containers": [{"name": container, "env": [{"name": "TOKEN", "value": "secret"}]}]},
        "status": {"phase": "Running", "qosClass": "Burstable", "containerStatuses": [status] if started else []},
    }


class Moment:
    """The time, which goes on when somebody tells it to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pauses:
    """Stands in for waiting: notes how long, lets that time pass at once, and ends the feed after so many pauses."""

    def __init__(self, moment: Moment) -> None:
        self.seen: list[float] = []
        self._moment = moment

    def __call__(self, seconds: float) -> None:
        self.seen.append(seconds)
        self._moment.now += seconds
        time.sleep(0.001)  # so that a server that is down is not asked in a hot loop for the whole test


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


class Cluster:
    """The API server, its state, and the mounted service account."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.account = folder / "serviceaccount"
        self.account.mkdir()
        authority.cert_pem.write_to_path(self.account / "ca.crt")
        (self.account / "token").write_text(TOKEN)
        self._file = folder / "apiserver.json"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._tls)
        self._state: apiserver.State = {"tokens": [TOKEN], "pods": [pod(1), pod(2), pod(9, node="node-2")]}
        self.says()
        self.server = apiserver.serve(self._file, tls=self._tls)

    def says(self, **changes) -> None:
        """Change something of what the server says; the rest stays."""
        self._state = {**self._state, **changes}
        apiserver.write_state(self._file, self._state)

    def restart(self) -> None:
        self.server.stop()
        self.server = apiserver.serve(self._file, address=self.server.address, tls=self._tls)

    def api(self, *, deadline: float = PATIENCE) -> ApiServer:
        host, _, port = self.server.address.rpartition(":")
        environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return ApiServer(self.account, environment=environment, deadline=deadline)

    @property
    def lists(self) -> int:
        return self.server.calls["/api/v1/pods"]

    @property
    def watches(self) -> int:
        return self.server.calls["/api/v1/pods?watch"]


class Kubelet:
    """The kubelet's Pods API, and its state."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "pods-api.sock"
        self._file = folder / "kubelet.json"
        self._state: kubelet.State = {"pod_objects": [pod(1), pod(2)]}
        self.says()
        self.server = podsapi.serve(self.socket, self._file)

    def says(self, **changes) -> None:
        self._state = {**self._state, **changes}
        kubelet.write_state(self._file, self._state)

    def restart(self) -> None:
        self.server = podsapi.serve(self.socket, self._file)

    @property
    def calls(self) -> dict[str, int]:
        return dict(self.server.calls)

    @property
    def watches(self) -> int:
        return self.server.calls["WatchPods"]


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cluster(tmp_path: Path, authority: trustme.CA) -> Iterator[Cluster]:
    found = Cluster(tmp_path, authority)
    yield found
    found.server.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Kubelet]:
    found = Kubelet(tmp_path)
    yield found
    found.server.stop()


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def pauses(moment: Moment) -> Pauses:
    return Pauses(moment)


@pytest.fixture
def follow_api(cluster: Cluster, moment: Moment, pauses: Pauses) -> Iterator[Callable[..., ApiServerPods]]:
    """Starts following the API server. Its pauses take no time."""
    started: list[ApiServerPods] = []

    def start(*, node: str = NODE, chance: float = 0.5, deadline: float = PATIENCE) -> ApiServerPods:
        api = cluster.api(deadline=deadline)
        feed = ApiServerPods(api, node=node, clock=Clock(monotonic=moment), chance=lambda: chance, wait=pauses)
        feed.start()
        started.append(feed)
        return feed

    yield start
    _end(started)


@pytest.fixture
def follow_kubelet(node: Kubelet, moment: Moment, pauses: Pauses) -> Iterator[Callable[..., KubeletPods]]:
    """Starts following the kubelet. Its pauses take no time."""
    started: list[KubeletPods] = []

    def start(*, deadline: float = PATIENCE) -> KubeletPods:
        clock = Clock(monotonic=moment)
        feed = KubeletPods(str(node.socket), clock=clock, deadline=deadline, chance=lambda: 0.5, wait=pauses)
        feed.start()
        started.append(feed)
        return feed

    yield start
    _end(started)


def _end(feeds: list) -> None:
    for feed in feeds:
        feed.stop()
    eventually(nobody_follows)


def nobody_follows() -> bool:
    """Whether the threads of all feeds have ended."""
    return not any(thread.name.startswith("pods from") for thread in threading.enumerate())


def named(feed) -> set[str]:
    """The names of the pods that are known to be there."""
    names = feed.read().names
    return {found.name for found in names.by_uid.values()} if names is not None else set()
