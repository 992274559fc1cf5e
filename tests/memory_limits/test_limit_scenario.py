"""The scenario of limits by cgroup, read by the real source, with both of those who can keep limits."""

from dataclasses import replace

import pytest

from exporter.model import Backend, CgroupMemory, ContainerMemory, ContainerRef, Device
from exporter.sources.memory_limits import MemoryLimits
from simulator.node import Node
from simulator.nvml.state import LimitsBackend
from simulator.paths import Paths
from simulator.scenario_file import load
from tests.memory_limits.conftest import GIB, value


@pytest.fixture(params=[LimitsBackend.DMEM, LimitsBackend.MISC])
def found(request, machine_of):
    """What is known of each container on its GPU, by names."""
    machine = machine_of(request.param)
    scenario = replace(load("cgroup-limits"), dmem=request.param is LimitsBackend.DMEM, memory_limits=request.param)
    node = Node(Paths(machine.directory / "node"), scenario)
    node.advance(0)
    node.paths.driver_state.replace(machine.directory / "state")
    devices = [
        Device(gpu.index, gpu.uuid, gpu.name, pci_bus_id=gpu.pci_bus_id, mig_mode=False) for gpu in scenario.gpus
    ]
    names, wanted = {}, {device: [] for device in devices}
    for pod in scenario.pods:
        for container in pod.containers:
            ref = ContainerRef(pod.uid, pod.container_id(container.name))
            names[ref] = f"{pod.name}/{container.name}"
            for gpu in container.gpus:
                wanted[devices[gpu]].append(ref)
    source = MemoryLimits(node.paths.sysfs, node.paths.procfs, deadline=5, clock=machine.clock)
    machine.sources.append(source)
    containers = value(source.read(wanted)).containers
    return request.param, {names[ref]: memory for (ref, _), memory in containers.items()}


def test_each_container_is_limited_as_the_scenario_says(found):
    backend, memory = found

    def cgroup(gibibytes: int, hard: int | None) -> CgroupMemory:
        limit = None if hard is None else hard * GIB
        return CgroupMemory(Backend(backend.value), gibibytes * GIB, limit)

    if backend is LimitsBackend.DMEM:
        assert memory == {
            "applied/server": ContainerMemory(own=cgroup(11, 16), pod=cgroup(11, None)),
            "never-applied/server": ContainerMemory(own=cgroup(6, None), pod=cgroup(6, None)),
            "pod-only/trainer": ContainerMemory(own=cgroup(20, None), pod=cgroup(20, 24)),
            "late/trainer": ContainerMemory(own=cgroup(12, 12), pod=cgroup(12, None)),
            "two-containers/encoder": ContainerMemory(own=cgroup(3, 4), pod=cgroup(14, 20)),
            "two-containers/decoder": ContainerMemory(own=cgroup(11, 16), pod=cgroup(14, 20)),
        }
    else:
        assert memory == {
            "applied/server": ContainerMemory(own=cgroup(11, 16)),
            "pod-only/trainer": ContainerMemory(pod=cgroup(20, 24)),
            "late/trainer": ContainerMemory(own=cgroup(12, 12)),
            "two-containers/encoder": ContainerMemory(own=cgroup(3, 4), pod=cgroup(0, 20)),
            "two-containers/decoder": ContainerMemory(own=cgroup(11, 16), pod=cgroup(0, 20)),
        }
