"""Resident memory over many cycles while pods, containers and pids come and go."""

import time

from benchmarks.cycle import sampler_on
from benchmarks.nodes import mps_node
from exporter.clock import Clock
from simulator.node import Node

_CHURN_EVERY = 10  # cycles from one generation of pods to the next
_INTERVAL = 5.0  # seconds between cycles, by the clock that the sampler sees: it forgets what is gone by the clock


def resident_memory(*, cycles: int) -> dict[str, object]:
    """MiB resident after a tenth of the cycles, and after all of them. Every generation of pods is new."""
    scenario = mps_node(gpus=8, clients=12, pods=48)
    skipped = 0.0
    clock = Clock(monotonic=lambda: time.monotonic() + skipped)
    with sampler_on(scenario, clock) as (sampler, node, _):
        early = 0.0
        for cycle in range(cycles):
            if cycle % _CHURN_EVERY == 0:
                _next_generation(node, cycle // _CHURN_EVERY)
            sampler.cycle()
            skipped += _INTERVAL
            if cycle == cycles // 10:
                early = _resident_mib()
        late = _resident_mib()
    return {
        "cycles": cycles,
        "rss_mib_after_a_tenth": round(early, 1),
        "rss_mib": round(late, 1),
        "growth_mib": round(late - early, 1),
    }


def _next_generation(node: Node, generation: int) -> None:
    node.replace(mps_node(gpus=8, clients=12, pods=48, generation=generation))
    node.advance(0)


def _resident_mib() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / (1 << 20)
