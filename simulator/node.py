"""A scenario made real: at any time of the scenario, the files that the driver, the kernel and the kubelet would show.

A node is a folder: `proc`, `sys` and `log` stand for /proc, /sys and /var/log, `nvml.state` is what the simulated
driver library answers from, `kubelet.json` what the simulated kubelet does. `advance` makes them say what the scenario
says at a time; readers see each change whole. Run as a program, it advances the scenario with the clock.

    python -m simulator.node --root DIR --scenario NAME [--period SECONDS]
"""

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulator import allocation, apiserver, charges, claims, dmem, driver, kubelet, mps_world, procfs
from simulator.cgroupfs import Cgroupfs, ContainerCgroup, Driver, QoS, Runtime
from simulator.driver import Running
from simulator.mps import registration, world
from simulator.nvml import state
from simulator.paths import Paths
from simulator.podlogs import PodLogs
from simulator.podobjects import pod_object
from simulator.scenario import Container, Pod, Scenario, ScenarioError
from simulator.scenario_file import load

FIRST_PID = 4000
_STARTED = 100  # clock ticks after boot: before any list of the driver, on a machine however young
_BOOKMARK_EVERY = 60.0  # seconds


class Node:
    """A simulated node in a folder that no other Node writes to. Raises ScenarioError."""

    def __init__(self, paths: Paths, scenario: Scenario) -> None:
        self.paths = paths
        self.scenario = scenario
        self._processes = procfs.Procfs(paths.procfs)
        self._cgroups = Cgroupfs(paths.sysfs, dmem=charges.regions(scenario) if scenario.dmem else None)
        self._podlogs = PodLogs(paths.logs)
        self._pids = pids(scenario)
        self._handed_out = allocation.handed_out(scenario)
        self._live_pods: dict[str, Pod] = {}
        self._live_pids: set[int] = set()
        self._let_in: set[str] = set()  # uids of pods whose gate has opened
        self._started: dict[int, int] = {}  # when processes of such pods began, in clock ticks after boot
        self._mps_world: world.World | None = None
        self._mps_faults: tuple[world.Fault, ...] = ()
        self._now = 0.0

    def replace(self, scenario: Scenario) -> None:
        """Go on with another scenario: the next `advance` ends the old pods and starts the new, with new pids."""
        self._pids = pids(scenario, first=max(self._pids.values(), default=FIRST_PID) + 1)
        self._handed_out = allocation.handed_out(scenario)
        self.scenario = scenario

    def advance(self, seconds: float) -> None:
        """Make the node what it is `seconds` after the scenario's start."""
        self._now = seconds
        pods, running = self._present(seconds)
        # What exists is written before the driver tells of it, and what ended leaves the driver's lists first.
        self._put_pods(pods)
        for entry in running:
            self._processes.put(self._process(entry))
        if self._cgroups.dmem is not None:
            self._cgroups.dmem.charge(charges.by_region(self.scenario, self._held(running, seconds)))
        state.write(self.paths.driver_state, self.driver_state(seconds))
        if claims.claimable(self.scenario) or "api" in self.scenario.pods_sources:
            apiserver.write_state(self.paths.apiserver_state, self.apiserver_state(seconds))
        kubelet.write_state(self.paths.kubelet_state, self._kubelet_state(pods))
        self._put_mps(running)
        self._remove_ended(pods, running)

    def mps_fault(self, *faults: world.Fault) -> None:
        """Let MPS control daemons go wrong from now on; without any fault all is well again."""
        self._mps_faults = faults
        self._put_mps(self._present(self._now)[1])

    def hide_processes(self) -> None:
        """Show the exporter what it would see without hostPID: a pid namespace with nothing but itself."""
        shutil.rmtree(self.paths.procfs)
        self._processes = procfs.Procfs(self.paths.procfs, blind=True)

    def driver_state(self, seconds: float) -> state.State:
        """What the driver says at a time."""
        pods, running = self._present(seconds)
        table = None
        if self.scenario.memory_limits == "misc":
            table = charges.table(self._held(running, seconds), self._limits(pods))
        return driver.state_of(self.scenario, running, seconds, cgroups=table)

    def apiserver_state(self, seconds: float = 0) -> apiserver.State:
        """What the API server says at a time."""
        state: apiserver.State = {
            "tokens": [f"token-of-{self.scenario.name}"],
            "slices": claims.slices(self.scenario),
        }
        if "api" in self.scenario.pods_sources:  # otherwise the exporter has no right to pods
            state["pods"] = self._pod_objects(self._present(seconds)[0])
            state["bookmark_every"] = _BOOKMARK_EVERY
        return state

    def _present(self, seconds: float) -> tuple[list[Pod], list[Running]]:
        """The pods and processes that exist at a time."""
        pods = [pod for pod in self.scenario.pods if pod.start <= seconds < pod.end]
        begun = [pod for pod in pods if not self._waits(pod)]
        running = [entry for entry in self._running(begun) if entry.process.start <= seconds < entry.process.end]
        if self.scenario.mps:
            ended = world.terminated(self.paths.mps_world)
            running = [entry for entry in running if entry.pid not in ended]
        return pods, running

    def _waits(self, pod: Pod) -> bool:
        """Whether a pod's gate is shut: it opens with the pod's receipt, and stays open."""
        if pod.gated and pod.uid not in self._let_in and (self.paths.receipts / f"{pod.uid}.json").exists():
            self._let_in.add(pod.uid)
        return pod.gated and pod.uid not in self._let_in

    def _running(self, pods: list[Pod]) -> Iterator[Running]:
        for pod in pods:
            for container in pod.containers:
                for number, process in enumerate(container.processes):
                    yield Running(self._pids[pod.uid, container.name, number], process, pod, container)
        for number, process in enumerate(self.scenario.host):
            yield Running(self._pids["", "", number], process, None, None)

    def _cgroup(self, pod: Pod, container: Container) -> ContainerCgroup:
        return ContainerCgroup(
            pod.uid,
            pod.container_id(container.name),
            driver=Driver(self.scenario.cgroup_driver),
            qos=QoS(pod.qos),
            runtime=Runtime(pod.runtime),
        )

    def _folder(self, path: str) -> Path:
        return self._cgroups.root / path.strip("/")

    def _held(self, running: list[Running], seconds: float) -> charges.Bytes:
        """What the processes of each cgroup hold; the host's are in the root."""
        found: Counter[tuple[Path, int]] = Counter()
        for entry in running:
            if entry.process.memory is not None:
                path = (
                    ""
                    if entry.pod is None or entry.container is None
                    else self._cgroup(entry.pod, entry.container).path
                )
                found[self._folder(path), entry.process.gpu] += entry.process.memory.at(seconds)
        return found

    def _limits(self, pods: list[Pod]) -> charges.Bytes:
        """What the scenario limits cgroups to."""
        found = {}
        for pod in pods:
            for container in pod.containers:
                cgroup = self._cgroup(pod, container)
                for gpu in container.gpus:
                    if pod.memory_limit is not None:
                        found[self._folder(cgroup.pod_path), gpu] = pod.memory_limit
                    if container.memory_limit is not None:
                        found[self._folder(cgroup.path), gpu] = container.memory_limit
        return found

    def _process(self, entry: Running) -> procfs.Process:
        text = "0::/system.slice/host.service\n"
        if entry.pod is not None and entry.container is not None:
            text = self._cgroup(entry.pod, entry.container).text
        argv = entry.process.command
        name = argv[0].rpartition("/")[2]
        of = entry.process
        started = _STARTED
        if entry.pod is not None and entry.pod.gated:
            started = self._started.setdefault(entry.pid, _ticks())
        return procfs.Process(entry.pid, started, name, argv, text, environ=of.environ, uid=of.uid)

    def _put_mps(self, running: list[Running]) -> None:
        """Show the control daemons who runs, and nobody those that were killed."""
        if not self.scenario.mps:
            return
        registration.dead(self.paths.procfs)
        present = replace(mps_world.world_of(self.scenario, self.paths, running), faults=self._mps_faults)
        if present != self._mps_world:
            world.write(self.paths.mps_world, present)
            self._mps_world = present

    def _put_pods(self, pods: list[Pod]) -> None:
        fresh = [pod for pod in pods if pod.uid not in self._live_pods]
        for pod in pods:
            if self._waits(pod):
                self._cgroups.put(self._cgroup(pod, pod.containers[0]).pod_path)
            elif pod in fresh or pod.gated:
                for container in pod.containers:
                    self._cgroups.put(self._cgroup(pod, container).path)
        for pod in fresh:
            for container in pod.containers:
                if "logs" in self.scenario.pods_sources:
                    self._podlogs.put(
                        pod.namespace,
                        pod=pod.name,
                        uid=pod.uid,
                        container=container.name,
                        container_id=pod.container_id(container.name),
                    )
        if self.scenario.memory_limits == "dmem" and self._cgroups.dmem is not None:
            for (folder, gpu), hard in self._limits(fresh).items():
                region = dmem.region(self.scenario.gpus[gpu].pci_bus_id)
                self._cgroups.dmem.limit(folder, region=region, hard=hard)

    def _remove_ended(self, pods: list[Pod], running: list[Running]) -> None:
        live_pids = {entry.pid for entry in running}
        for pid in self._live_pids - live_pids:
            self._processes.remove(pid)
        self._live_pids = live_pids
        live_pods = {pod.uid: pod for pod in pods}
        for uid in self._live_pods.keys() - live_pods.keys():
            pod = self._live_pods[uid]
            for container in pod.containers:
                self._cgroups.remove(self._cgroup(pod, container).pod_path)
            self._podlogs.remove_pod(pod.namespace, pod=pod.name, uid=uid)
        self._live_pods = live_pods

    def _pod_objects(self, pods: list[Pod]) -> list[dict[str, Any]]:
        return [pod_object(pod, node=claims.NODE, waiting=self._waits(pod)) for pod in pods]

    def kubelet_state(self, seconds: float = 0) -> kubelet.State:
        """What the kubelet says at a time."""
        return self._kubelet_state(self._present(seconds)[0])

    def _kubelet_state(self, pods: list[Pod]) -> kubelet.State:
        state: kubelet.State = {
            "pods": [
                {
                    "namespace": pod.namespace,
                    "name": pod.name,
                    "containers": [
                        {
                            "name": container.name,
                            "devices": _devices(self._handed_out[pod.uid, container.name]),
                            "dynamic_resources": self._claims(pod, container),
                        }
                        for container in pod.containers
                    ],
                }
                for pod in pods
            ],
            "allocatable": {"devices": _devices(allocation.advertised(self.scenario))},
        }
        if "kubelet" in self.scenario.pods_sources:
            state["pod_objects"] = self._pod_objects(pods)
        return state

    def _claims(self, pod: Pod, container: Container) -> list[kubelet.Claim]:
        return [
            {
                "claim_namespace": pod.namespace,
                "claim_name": claim.name,
                "resources": [
                    {
                        "driver": claims.DRIVER,
                        "pool": claims.NODE,
                        "device": claims.device_name(self.scenario, claim),
                    }
                ],
            }
            for claim in container.claims
        ]


def _ticks() -> int:
    """Now, in clock ticks after boot, as the kernel counts when a process began."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _devices(by_resource: Mapping[str, list[str]]) -> list[kubelet.Devices]:
    return [{"resource": resource, "ids": ids} for resource, ids in by_resource.items()]


def pids(scenario: Scenario, *, first: int = FIRST_PID) -> dict[tuple[str, str, int], int]:
    """A pid, from `first` on, for every process that the scenario will ever have."""
    keys = [
        (pod.uid, container.name, number)
        for pod in scenario.pods
        for container in pod.containers
        for number in range(len(container.processes))
    ]
    keys += [("", "", number) for number in range(len(scenario.host))]
    return {key: first + place for place, key in enumerate(keys)}


def main(arguments: list[str] | None = None) -> int:
    """Advance a scenario with the clock until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m simulator.node", description=main.__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder of the node, made if needed")
    parser.add_argument("--scenario", required=True, help="name of a scenario, or a file")
    parser.add_argument("--period", type=float, default=0.5, help="seconds between two changes (default: 0.5)")
    given = parser.parse_args(arguments)
    try:
        node = Node(Paths(given.root), load(given.scenario))
    except ScenarioError as error:
        print(f"simulator.node: {error}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    begun = time.monotonic()
    node.advance(0)
    while not stop.wait(given.period):
        node.advance(time.monotonic() - begun)
    return 0


if __name__ == "__main__":
    sys.exit(main())
