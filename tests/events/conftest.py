"""A cluster's API server, as in tests/dra, that is written to."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from enforcer.mechanisms.api_writer import ApiWriter
from enforcer.model import PodId
from simulator import apiserver

TOKEN = "a-token"
UID = "4a163a05-439d-484b-8e53-2968bc15824f"
POD = PodId("team", "job-0", UID, UID)


def pod_object(pod: PodId = POD) -> dict:
    return {"metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}, "spec": {"nodeName": "node-1"}}


class Cluster:
    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.folder = folder / "serviceaccount"
        self.folder.mkdir()
        authority.cert_pem.write_to_path(self.folder / "ca.crt")
        (self.folder / "token").write_text(TOKEN)
        self._state = folder / "apiserver.json"
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._tls)
        self.says()
        self.server = apiserver.serve(self._state, tls=self._tls, writes_path=folder / "writes.json")
        self.writes_path = folder / "writes.json"

    def says(self, **state) -> None:
        apiserver.write_state(self._state, {"tokens": [TOKEN], "pods": [pod_object()], **state})

    def writer(self, *, deadline: float = 20.0) -> ApiWriter:
        host, _, port = self.server.address.rpartition(":")
        found = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return ApiWriter(self.folder, environment=found, deadline=deadline)

    @property
    def events(self) -> list[dict]:
        return list(self.server.writes.events.values())


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def cluster(tmp_path: Path, authority: trustme.CA) -> Iterator[Cluster]:
    found = Cluster(tmp_path, authority)
    yield found
    found.server.stop()
