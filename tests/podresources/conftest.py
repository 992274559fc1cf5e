"""A kubelet's directory in which a test starts, stops and replaces real servers."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Unpack

import grpc
import pytest

from podresources import Client
from simulator.kubelet import Kubelet, State, serve, write_state

METHOD = "/v1.PodResourcesLister/"


class Node:
    """One socket path, one state file, and whatever listens at the moment."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "kubelet.sock"
        self.state = folder / "state.json"
        self.running: list[Kubelet] = []

    def says(self, **state: Unpack[State]) -> None:
        write_state(self.state, state)

    def start(self) -> Kubelet:
        kubelet = serve(self.socket, self.state)
        self.running.append(kubelet)
        return kubelet

    def client(self, **options: float) -> Client:
        return Client(self.socket, **options)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node whose kubelet is up and holds nothing."""
    node = Node(tmp_path)
    node.says()
    node.start()
    yield node
    for kubelet in node.running:
        kubelet.stop()


@pytest.fixture
def raw_server(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Starts a gRPC server that answers methods with the given bytes and knows no other method."""
    servers = []

    def start(**answers: bytes) -> Path:
        class Answers(grpc.GenericRpcHandler):
            def service(self, details):
                answer = answers.get(details.method.removeprefix(METHOD))
                return (
                    None if answer is None else grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)
                )

        workers = ThreadPoolExecutor(1)
        server = grpc.server(workers)
        server.add_generic_rpc_handlers((Answers(),))
        path = tmp_path / "raw.sock"
        server.add_insecure_port(f"unix:{path}")
        server.start()
        servers.append((server, workers))
        return path

    yield start
    for server, workers in servers:
        server.stop(None).wait()
        workers.shutdown()
