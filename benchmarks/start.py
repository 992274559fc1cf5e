"""Time from the start of the exporter's process to its first complete page."""

import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.nodes import mps_node
from simulator.driver import build_library
from simulator.node import Node
from simulator.paths import Paths
from simulator.processes import Processes, free_address, wait_until_ready


def first_page(*, starts: int) -> dict[str, object]:
    """Seconds, over several starts on a node of 8 GPUs with 48 clients each and 200 pods."""
    scenario = mps_node(gpus=8, clients=48, pods=200)
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as root, Processes() as processes:
        paths = Paths(Path(root))
        build_library(paths, scenario)
        Node(paths, scenario).advance(0)
        processes.kubelet(paths)
        took = []
        for _ in range(starts):
            address = free_address(0)
            begun = time.monotonic()
            exporter = processes.exporter(paths, address=address, errors=subprocess.DEVNULL)
            wait_until_ready(address, exporter)
            took.append(time.monotonic() - begun)
            processes.stop(exporter)
    return {"starts": starts, "s_median": round(median(took), 2), "s_max": round(max(took), 2)}
