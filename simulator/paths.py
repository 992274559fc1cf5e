"""Where everything is in the folder of a simulated node."""

from dataclasses import dataclass
from pathlib import Path


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
    def pods_socket(self) -> Path:
        """The socket of the kubelet's Pods API; only of a node whose kubelet has it."""
        return self.root / "pods-api.sock"

    @property
    def apiserver_state(self) -> Path:
        """What the API server answers from; only of a node whose scenario needs one."""
        return self.root / "apiserver.json"

    @property
    def apiserver_writes(self) -> Path:
        """What was written to the API server: Events and evictions."""
        return self.root / "apiserver.writes"

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
    def run(self) -> Path:
        """Stands for /run: pipe directories of MPS control daemons, whose sockets' paths have little room."""
        return self.root / "r"

    @property
    def bin(self) -> Path:
        """The folder of the control daemon's executable; only of a node whose scenario has a daemon."""
        return self.root / "bin"

    @property
    def mps_world(self) -> Path:
        """What the control daemons live in; only of a node whose scenario has one."""
        return self.root / "mps.json"

    @property
    def managed_mps(self) -> Path:
        """The pipe directory of control daemons that the node's enforcer starts."""
        return self.run / "podgpu" / "mps"

    @property
    def enforcer_state(self) -> Path:
        """Where the node's enforcer keeps its records."""
        return self.run / "podgpu" / "enforcer"

    @property
    def receipts(self) -> Path:
        """Where the node's enforcer writes the receipts that gates wait for."""
        return self.run / "podgpu" / "receipts"

    @property
    def logs(self) -> Path:
        """Stands for /var/log."""
        return self.root / "log"
