"""Run the measurements and print each as one JSON line, target and measured side by side."""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.cycle import cpu_of_a_cycle
from benchmarks.memory import resident_memory
from benchmarks.nodes import mps_node
from benchmarks.scrape import latency
from benchmarks.start import first_page
from simulator.scenario_file import load


def _measurements(quick: bool) -> dict[str, tuple[str, Callable[[], dict[str, object]]]]:
    """Name -> target in words, and the measurement."""
    cycles = 10 if quick else 50

    def cycle(gpus: int, pods: int) -> Callable[[], dict[str, object]]:
        return lambda: cpu_of_a_cycle(mps_node(gpus=gpus, clients=48, pods=pods), cycles=cycles)

    return {
        "machine": ("", _machine),
        "cycle-8x48": ("<= 15 ms CPU; 6 driver calls a GPU: memory, 3 lists, utilization, samples", cycle(8, 200)),
        "cycle-1x48": ("linear growth", cycle(1, 25)),
        "cycle-16x48": ("linear growth", cycle(16, 400)),
        "cycle-64x48": ("linear growth", cycle(64, 1600)),
        "cycle-whole-node": ("<= 15 ms CPU", lambda: cpu_of_a_cycle(load("whole-node"), cycles=cycles)),
        "scrape-1": ("p99 <= 2 ms", lambda: latency(clients=1, scrapes=200 if quick else 2000)),
        "scrape-20": ("one page, byte-identical", lambda: latency(clients=20, scrapes=20 if quick else 100)),
        "first-page": ("<= 2 s", lambda: first_page(starts=2 if quick else 5)),
        "memory": (
            "<= 80 MiB, growth <= 2 MiB",
            lambda: resident_memory(cycles=500 if quick else 10_000),
        ),
    }


def _machine() -> dict[str, object]:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": models[0].partition(":")[2].strip() if models else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def main() -> int:
    """Run all measurements or the named ones, each in a process of its own, so that none warms the next."""
    known = _measurements(quick=False)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, for trying a change")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(known))
    if unknown:
        parser.error(f"no measurement is called {', '.join(unknown)}")
    for name in given.names or known:
        if given.here:
            target, measure = _measurements(given.quick)[name]
            print(json.dumps({"name": name, "target": target, **measure()}), flush=True)
        else:
            command = [sys.executable, "-m", "benchmarks", "--here", name, *(["--quick"] if given.quick else [])]
            if subprocess.run(command, check=False).returncode:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
