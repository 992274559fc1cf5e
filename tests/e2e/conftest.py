"""One Prometheus and one Alertmanager for all tests, beside simulated nodes."""

import time
from collections.abc import Callable, Iterator

import pytest

from tools.stack import Stack

NODES = {"node-a": "overrun", "node-b": "mixed"}


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack")) as running:
        addresses = {node: running.demo(scenario) for node, scenario in NODES.items()}
        alertmanager = running.start_alertmanager(running.receiver())
        running.start_prometheus(addresses, alertmanager=alertmanager)
        yield running


def eventually(holds: Callable[[], object], *, patience: float, what: str) -> None:
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, f"{what}: not after {patience:.0f} s"
        time.sleep(0.5)
