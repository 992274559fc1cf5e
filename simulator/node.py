"""A scenario made real: at any time of the scenario, the files that the driver, the kernel and the kubelet would show.

A node is a folder: `proc`, `sys` and `log` stand for /proc, /sys and /var/log, `nvml.state` is what the simulated
driver library answers from, `kubelet.json` what the simulated kubelet does. `advance` makes them say what the scenario
says at a time; readers see each change whole. Run as a program, it advances the scenario with the clock.

    python -m simulator.node --root DIR --scenario NAME [--period SECONDS]
"""

import argparse
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator import allocation, apiserver, claims, kubelet, procfs
from simulator.cgroupfs import Cgroupfs, ContainerCgroup, Driver, QoS, Runtime
from simulator.nvml import library, state
from simulator.podlogs import PodLogs
from simulator.scenario import Container, Gpu, Pod, Process, Scenario, ScenarioError, load

_FIRST_PID = 4000
_TICKS = 100  # clock ticks a second
_SAMPLE_AGE = 20_000  # microseconds from the driver's newest sample to whenever it is asked


@dataclass(frozen=True, slots=True)
class _Running:
    """A process that exists at some time, and the container that it runs in (None: the host)."""

    pid: int
    process: Process
    pod: Pod | None
    container: Container | None


@dataclass(frozen=True, slots=True)
class Paths:
    """Where everything is in a node's folder."""

    root: Path

    @property
    def library(self) -> Path:
        """The folder of the driver library."""
        return self.root / "lib"

    @property
    def driver_state(self) -> Path:
        """What the driver library answers from."""
        return self.root / "nvml.state"

    @property
    def driver_calls(self) -> Path:
        """Where the driver library counts its calls."""
        return self.root / "nvml.calls"

    @property
    def kubelet_state(self) -> Path:
        """What the kubelet answers from."""
        return self.root / "kubelet.json"

    @property
    def kubelet_socket(self) -> Path:
        """The kubelet's PodResources socket."""
        return self.root / "kubelet.sock"

    @property
    def apiserver_state(self) -> Path:
        """What the API server answers from; only of a node whose scenario needs one."""
        return self.root / "apiserver.json"

    @property
    def apiserver_address(self) -> Path:
        """Where the API server listens, as HOST:PORT."""
        return self.root / "apiserver.address"

    @property
    def service_account(self) -> Path:
        """Stands for /var/run/secrets/kubernetes.io/serviceaccount."""
        return self.root / "serviceaccount"

    @property
    def procfs(self) -> Path:
        """Stands for /proc."""
        return self.root / "proc"

    @property
    def sysfs(self) -> Path:
        """Stands for /sys."""
        return self.root / "sys"

    @property
    def logs(self) -> Path:
        """Stands for /var/log."""
        return self.root / "log"


class Node:
    """A simulated node in a folder that no other Node writes to. Raises ScenarioError."""

    def __init__(self, paths: Paths, scenario: Scenario) -> None:
        self.paths = paths
        self.scenario = scenario
        self._processes = procfs.Procfs(paths.procfs)
        self._cgroups = Cgroupfs(paths.sysfs)
        self._podlogs = PodLogs(paths.logs)
        self._pids = _pids(scenario, first=_FIRST_PID)
        self._handed_out = allocation.handed_out(scenario)
        self._live_pods: dict[str, Pod] = {}
        self._live_pids: set[int] = set()

    def replace(self, scenario: Scenario) -> None:
        """Go on with another scenario: the next `advance` ends the old pods and starts the new, with new pids."""
        self._pids = _pids(scenario, first=max(self._pids.values(), default=_FIRST_PID) + 1)
        self._handed_out = allocation.handed_out(scenario)
        self.scenario = scenario

    def advance(self, seconds: float) -> None:
        """Make the node what it is `seconds` after the scenario's start."""
        pods, running = self._present(seconds)
        # What exists is written before the driver tells of it, and what ended leaves the driver's lists first.
        self._put_pods(pods)
        for entry in running:
            self._processes.put(self._process(entry))
        state.write(self.paths.driver_state, self.driver_state(seconds))
        if claims.claimable(self.scenario):
            apiserver.write_state(self.paths.apiserver_state, self.apiserver_state())
        kubelet.write_state(self.paths.kubelet_state, self._kubelet_state(pods))
        self._remove_ended(pods, running)

    def hide_processes(self) -> None:
        """Show the exporter what it would see without hostPID: a pid namespace with nothing but itself."""
        shutil.rmtree(self.paths.procfs)
        self._processes = procfs.Procfs(self.paths.procfs, blind=True)

    def driver_state(self, seconds: float) -> state.State:
        """What the driver says at a time."""
        major, _, minor = self.scenario.cuda.partition(".")
        _, running = self._present(seconds)
        return state.State(
            tuple(self._gpu(gpu, running, seconds) for gpu in self.scenario.gpus),
            driver=state.Driver(
                self.scenario.driver,
                nvml_version=f"{major}.{self.scenario.driver}",
                cuda_version=int(major) * 1000 + int(minor or 0) * 10,
                early_rows=_generation(self.scenario.driver) == "535.54",
            ),
        )

    def apiserver_state(self) -> apiserver.State:
        """What the API server says."""
        return {"tokens": [f"token-of-{self.scenario.name}"], "slices": claims.slices(self.scenario)}

    def _present(self, seconds: float) -> tuple[list[Pod], list[_Running]]:
        """The pods and processes that exist at a time."""
        pods = [pod for pod in self.scenario.pods if pod.start <= seconds < pod.end]
        running = [entry for entry in self._running(pods) if entry.process.start <= seconds < entry.process.end]
        return pods, running

    def _running(self, pods: list[Pod]) -> Iterator[_Running]:
        for pod in pods:
            for container in pod.containers:
                for number, process in enumerate(container.processes):
                    yield _Running(self._pids[pod.uid, container.name, number], process, pod, container)
        for number, process in enumerate(self.scenario.host):
            yield _Running(self._pids["", "", number], process, None, None)

    def _cgroup(self, pod: Pod, container: Container) -> ContainerCgroup:
        return ContainerCgroup(
            pod.uid,
            pod.container_id(container.name),
            driver=Driver(self.scenario.cgroup_driver),
            qos=QoS(pod.qos),
            runtime=Runtime(pod.runtime),
        )

    def _process(self, entry: _Running) -> procfs.Process:
        text = "0::/system.slice/host.service\n"
        if entry.pod is not None and entry.container is not None:
            text = self._cgroup(entry.pod, entry.container).text
        argv = entry.process.command
        return procfs.Process(entry.pid, entry.pid * _TICKS, argv[0].rpartition("/")[2], argv, text)

    def _put_pods(self, pods: list[Pod]) -> None:
        for pod in pods:
            if pod.uid in self._live_pods:
                continue
            for container in pod.containers:
                self._cgroups.put(self._cgroup(pod, container).path)
                self._podlogs.put(
                    pod.namespace,
                    pod=pod.name,
                    uid=pod.uid,
                    container=container.name,
                    container_id=pod.container_id(container.name),
                )

    def _remove_ended(self, pods: list[Pod], running: list[_Running]) -> None:
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

    def _gpu(self, gpu: Gpu, running: list[_Running], seconds: float) -> state.Gpu:
        mine = [entry for entry in running if entry.process.gpu == gpu.index]
        rows = tuple(
            state.Row(
                entry.pid,
                used=None if entry.process.memory is None else entry.process.memory.at(seconds),
                kind=state.RowKind(kind),
                gpu_instance=entry.process.gpu_instance,
                compute_instance=None if entry.process.gpu_instance is None else entry.process.compute_instance,
            )
            for entry in mine
            for kind in entry.process.lists
        )
        return state.Gpu(
            gpu.uuid,
            name=gpu.name,
            minor=gpu.minor,
            pci_bus_id=f"00000000:{0x17 + gpu.index:02X}:00.0",
            compute_capability=gpu.compute_capability,
            compute_mode=3 if gpu.sharing == "mps" else 0,
            mig_mode=bool(gpu.mig) if gpu.compute_capability >= (8, 0) else None,
            utilization=(gpu.utilization, 0),
            memory=state.Memory(gpu.memory, used=gpu.overhead + _held(mine, None, seconds), reserved=gpu.reserved),
            instances=_instances(gpu, mine, seconds),
            rows=rows,
            samples=_samples(mine, seconds),
        )

    def _kubelet_state(self, pods: list[Pod]) -> kubelet.State:
        return {
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


def build_library(paths: Paths, scenario: Scenario) -> None:
    """Build the driver library of the scenario's driver. Raises LibraryBuildError."""
    library.build(paths.library, missing=library.GENERATIONS[_generation(scenario.driver)])


def _devices(by_resource: Mapping[str, list[str]]) -> list[kubelet.Devices]:
    return [{"resource": resource, "ids": ids} for resource, ids in by_resource.items()]


def _instances(gpu: Gpu, running: list[_Running], seconds: float) -> tuple[state.GpuInstance, ...]:
    """The GPU instances: memory and profile from their first compute instance, in use what their processes hold."""
    found = []
    for instance in dict.fromkeys(mig.gpu_instance for mig in gpu.mig):
        parts = [mig for mig in gpu.mig if mig.gpu_instance == instance]
        slices = sum(part.slices for part in parts)
        used = parts[0].overhead + _held(running, instance, seconds)
        found.append(
            state.GpuInstance(
                instance,
                profile=f"{slices}g.{round(parts[0].memory / (1 << 30))}gb",
                slices=slices,
                memory=state.Memory(parts[0].memory, used=used),
                devices=tuple(
                    state.MigDevice(
                        gpu.mig_uuid(instance, part.compute_instance),
                        slot=part.slot,
                        compute_instance=part.compute_instance,
                        slices=part.slices,
                    )
                    for part in parts
                ),
            )
        )
    return tuple(found)


def _samples(running: list[_Running], seconds: float) -> tuple[state.Sample, ...]:
    """A sample for each process that is busy; the driver has none of one that is not."""
    percents = ((entry.pid, entry.process.sm.at(seconds)) for entry in running)
    return tuple(state.Sample(pid, time=-_SAMPLE_AGE, sm=percent) for pid, percent in percents if percent)


def _held(running: list[_Running], instance: int | None, seconds: float) -> int:
    """Bytes held by processes: on one GPU instance, or (None) on the whole GPU."""
    return sum(
        entry.process.memory.at(seconds)
        for entry in running
        if entry.process.memory is not None and instance in (None, entry.process.gpu_instance)
    )


def _pids(scenario: Scenario, *, first: int) -> dict[tuple[str, str, int], int]:
    """A pid, from `first` on, for every process that the scenario will ever have."""
    keys = [
        (pod.uid, container.name, number)
        for pod in scenario.pods
        for container in pod.containers
        for number in range(len(container.processes))
    ]
    keys += [("", "", number) for number in range(len(scenario.host))]
    return {key: first + place for place, key in enumerate(keys)}


def _generation(version: str) -> str:
    """The newest driver generation of the simulated library that is not newer than a driver version."""

    def number(text: str) -> list[int]:
        return [int(part) for part in text.split(".")[:2]]

    known = [name for name in library.GENERATIONS if number(name) <= number(version)]
    return known[-1] if known else next(iter(library.GENERATIONS))


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
