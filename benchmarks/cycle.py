"""CPU and driver calls of one sampling cycle, with every source real and the driver answering at once."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from exporter.clock import Clock
from exporter.publication import Publisher
from exporter.sampler import Sampler
from exporter.service import sources
from exporter.settings import settings
from exporter.web.pages import PageStore
from simulator.driver import build_library
from simulator.node import Node
from simulator.nvml import counters
from simulator.paths import Paths
from simulator.processes import Processes, exporter_environment, exporter_flags
from simulator.scenario import Scenario


@contextmanager
def sampler_on(scenario: Scenario, clock: Clock | None = None) -> Iterator[tuple[Sampler, Node, PageStore]]:
    """A sampler in this process on a simulated node; the kubelet is a process of its own."""
    with tempfile.TemporaryDirectory(prefix="podgpu-bench-") as root, Processes() as processes:
        paths = Paths(Path(root))
        build_library(paths, scenario)
        node = Node(paths, scenario)
        node.advance(0)
        processes.kubelet(paths)
        os.environ.update(
            {key: value for key, value in exporter_environment(paths).items() if key != "LD_LIBRARY_PATH"}
        )
        load_driver(paths)
        chosen = settings([*exporter_flags(paths, address="127.0.0.1:0"), "--interval=20s"], {})
        clock = clock or Clock()
        store = PageStore(clock.monotonic)
        publisher = Publisher(store, lifetime=1e9, exporter_metrics=True)
        yield (
            Sampler(
                sources(chosen, clock),
                interval=chosen.interval,
                deadline=chosen.deadline,
                clock=clock,
                publish=publisher.publish,
            ),
            node,
            store,
        )


def load_driver(paths: Paths) -> None:
    """Make pynvml use the node's driver library: the loader's path is fixed once a process has started."""
    import ctypes

    import pynvml

    pynvml.nvmlLib = ctypes.CDLL(str(paths.library / "libnvidia-ml.so.1"))


def cpu_of_a_cycle(scenario: Scenario, *, cycles: int) -> dict[str, object]:
    """CPU milliseconds of this process per cycle (all threads), and driver calls per cycle."""
    with sampler_on(scenario) as (sampler, node, store):
        for _ in range(5):
            sampler.cycle()
        before = _calls(node.paths)
        spent = []
        for _ in range(cycles):
            begun = time.process_time()
            sampler.cycle()
            spent.append((time.process_time() - begun) * 1000)
        page = store.current()
        samples = sum(not line.startswith(b"#") for line in page.text.splitlines()) if page is not None else 0
        gpus = len(scenario.gpus)
        return {
            "gpus": gpus,
            "pods": len(scenario.pods),
            "samples": samples,
            "cpu_ms_median": round(median(spent), 2),
            "cpu_ms_min": round(min(spent), 2),
            "driver_calls_per_gpu": round((_calls(node.paths) - before) / cycles / gpus, 2),
        }


def _calls(paths: Paths) -> int:
    """Calls so far, other than the one that counts the GPUs, which is once a cycle however many there are."""
    return sum(
        calls.total for symbol, calls in counters.read(paths.driver_calls).items() if symbol != "nvmlDeviceGetCount_v2"
    )
