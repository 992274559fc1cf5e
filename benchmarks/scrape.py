"""Latency of scrapes of a cached page, as clients in other processes see it, while the exporter goes on sampling."""

import http.client
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from statistics import median, quantiles

from benchmarks.nodes import mps_node
from simulator.driver import build_library
from simulator.node import Node
from simulator.paths import Paths
from simulator.processes import Processes, fetch, free_address, wait_until_ready


def latency(*, clients: int, scrapes: int) -> dict[str, object]:
    """Milliseconds from request to last byte over a kept connection, `clients` at once, for a page of 5,000 samples."""
    scenario = mps_node(gpus=8, clients=72, pods=576)
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as root, Processes() as processes:
        paths = Paths(Path(root))
        build_library(paths, scenario)
        Node(paths, scenario).advance(0)
        processes.kubelet(paths)
        address = free_address(0)
        exporter = processes.exporter(paths, "--interval=5s", address=address, errors=subprocess.DEVNULL)
        wait_until_ready(address, exporter)
        page = fetch(f"http://{address}/metrics")
        # A client process of its own: in ours, twenty threads would share one interpreter with the measuring.
        answer = subprocess.run(
            [sys.executable, "-m", "benchmarks.scrape", address, str(clients), str(scrapes)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
    p50, p99, distinct = answer
    return {
        "clients": clients,
        "samples": sum(not line.startswith(b"#") for line in page.splitlines()),
        "page_bytes": len(page),
        "ms_median": float(p50),
        "ms_p99": float(p99),
        "distinct_pages_in_a_round": int(distinct),
    }


def _client(address: str, scrapes: int) -> list[tuple[float, float, bytes]]:
    connection = http.client.HTTPConnection(address)
    found = []
    for _ in range(scrapes):
        begun = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        body = connection.getresponse().read()
        ended = time.perf_counter()
        found.append((begun, (ended - begun) * 1000, sha256(body).digest()))
    return found


def main(address: str, clients: int, scrapes: int) -> None:
    """Print median and p99 in milliseconds, and the largest number of different pages within one short round."""
    with ThreadPoolExecutor(clients) as pool:
        runs = list(pool.map(lambda _: _client(address, scrapes), range(clients)))
    times = [ms for run in runs for _, ms, _ in run]
    rounds = [{run[n][2] for run in runs} for n in range(scrapes)]
    print(round(median(times), 2), round(quantiles(times, n=100)[98], 2), max(map(len, rounds)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
