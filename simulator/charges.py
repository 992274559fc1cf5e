"""Who is charged for GPU memory on a simulated node: the kernel's regions, and the driver's own table."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from simulator import dmem
from simulator.nvml.state import Cgroup
from simulator.scenario import Scenario

Bytes: TypeAlias = Mapping[tuple[Path, int], int]
"""By the directory of a cgroup and the index of a GPU."""


def regions(scenario: Scenario) -> dict[str, int]:
    """The regions that the driver registers with the kernel, and their bytes; none where it does not use dmem."""
    if scenario.memory_limits != "dmem":
        return {}
    return {dmem.region(gpu.pci_bus_id): gpu.memory for gpu in scenario.gpus}


def by_region(scenario: Scenario, held: Bytes) -> dict[Path, dict[str, int]]:
    """What is held in each cgroup, by the regions that the kernel knows."""
    known = regions(scenario)
    found: dict[Path, dict[str, int]] = defaultdict(dict)
    for (folder, gpu), amount in held.items():
        region = dmem.region(scenario.gpus[gpu].pci_bus_id)
        if region in known:
            found[folder][region] = amount
    return found


def table(held: Bytes, limits: Bytes) -> dict[int, tuple[Cgroup, ...]]:
    """The same for the driver's own table, with the limits that are there from the start, by GPU index."""
    found: dict[int, tuple[Cgroup, ...]] = {}
    for folder, gpu in sorted(held.keys() | limits.keys()):
        hard = limits.get((folder, gpu))
        limited = None if hard is None else (0, hard)
        cgroup = Cgroup(str(folder), used=held.get((folder, gpu), 0), limits=limited)
        found[gpu] = (*found.get(gpu, ()), cgroup)
    return found
