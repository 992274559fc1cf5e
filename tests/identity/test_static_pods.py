"""Static pods: the kernel knows them by the hash of their manifest, the API by another uid, the log links by both."""

from exporter.model import ContainerName
from exporter.sources.pods import LogLinkNames
from exporter.sources.procfs import ProcfsSource
from simulator.cgroupfs import ContainerCgroup
from simulator.podlogs import PodLogs
from simulator.procfs import Process, Procfs
from tests.builders import GIB, U1, allocated, given, gpu, lists, rows, snapshot_of

HASH = "6576683a93d91d8e2119df2c2755f2f1"
ID = "0123456789abcdef" * 4


def test_k43_k44_b50_a_static_pod_has_its_memory_under_its_name(tmp_path):
    procfs, logs = Procfs(tmp_path / "proc"), PodLogs(tmp_path / "log")
    procfs.put(Process(11, 1000, "python3", ("python3",), ContainerCgroup(HASH, ID).text))
    logs.put("ns", pod="infer-node-1", uid=HASH, container="main", container_id=ID)
    snapshot = snapshot_of(
        gpu(lists(rows((11, GIB)))),
        places=ProcfsSource(procfs.root).read([11]).value.places,
        names=LogLinkNames(logs.root).read().value,
        allocations=allocated(given("infer-node-1", U1)),
    )
    (state,) = snapshot.containers
    assert (state.name, state.used, state.allocated) == (ContainerName("ns", "infer-node-1", "main"), GIB, True)
