"""A cluster's API server on the loopback interface, with real TLS, and a pod's service account to reach it by."""

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from exporter.clock import Clock
from exporter.sources.apiserver import ApiServer
from exporter.sources.resourceslices import ResourceSlices
from simulator import apiserver
from tests.whole.conftest import libraries, make

__all__ = ["libraries", "make"]  # the fixtures of the whole program

NODE = "node-1"
TOKEN = "first-token"
GPU_A, GPU_B = (f"GPU-{n * 8}-0000-0000-0000-000000000000" for n in "12")
MIG_A = "MIG-aaaaaaaa-0000-0000-0000-000000000000"


def device(name: str, **texts: str) -> dict:
    return {"name": name, "attributes": {key: {"string": text} for key, text in texts.items()}}


def resource_slice(
    *devices: dict, driver: str = "gpu.nvidia.com", node: str = NODE, pool: str = NODE, generation: int = 1
) -> dict:
    return {
        "metadata": {"name": f"{node}-{pool}-{generation}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


WHOLE = resource_slice(device("gpu-0", type="gpu", uuid=GPU_A))


class Time:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Cluster:
    """The API server, its state, and the mounted service account."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.folder = folder / "serviceaccount"
        self.folder.mkdir()
        authority.cert_pem.write_to_path(self.folder / "ca.crt")
        (self.folder / "token").write_text(f"{TOKEN}\n")
        self._state = folder / "apiserver.json"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._tls)
        self.says(slices=[WHOLE])
        self.server = self.start("127.0.0.1:0")

    def start(self, address: str) -> apiserver.ApiServer:
        self.server = apiserver.serve(self._state, address=address, tls=self._tls)
        return self.server

    def says(self, **state) -> None:
        apiserver.write_state(self._state, {"tokens": [TOKEN], **state})

    def client(self, *, deadline: float = 20.0, **environment: str) -> ApiServer:
        host, _, port = self.server.address.rpartition(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, **environment}
        return ApiServer(self.folder, environment=found, deadline=deadline)

    @property
    def requests(self) -> int:
        return self.server.calls.total()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cluster(tmp_path: Path, authority: trustme.CA) -> Iterator[Cluster]:
    found = Cluster(tmp_path, authority)
    yield found
    found.server.stop()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def source(cluster: Cluster, time: Time) -> ResourceSlices:
    return make_source(cluster, time)


def make_source(
    cluster: Cluster,
    time: Time,
    *,
    node: str = NODE,
    deadline: float = 20.0,
    chance: Callable[[], float] = lambda: 0.0,
) -> ResourceSlices:
    api = cluster.client(deadline=deadline)
    return ResourceSlices(api, node=node, clock=Clock(monotonic=time), chance=chance)
