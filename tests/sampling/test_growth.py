"""What pods and processes leave behind when they are gone: nothing, through the real sources, cycle after cycle."""

import gc
import os
import tracemalloc
from pathlib import Path

import exporter
from exporter.accounting import account, opened
from exporter.integrals import Bounds
from exporter.model import Snapshot
from exporter.publication import Publisher
from exporter.sources.pods import LogLinkNames
from exporter.sources.procfs import ProcfsSource
from exporter.web.pages import PageStore
from simulator.cgroupfs import ContainerCgroup
from simulator.procfs import Process, Procfs
from tests.builders import MIB, U1, allocated, given, gpu, lists, rows, snapshot_of

OURS = str(Path(exporter.__file__).parent / "*")
PODS = 20
WARM = 55  # cycles; by then the caches, which are bounded, are full
BOUNDS = Bounds(gap=15.0, retain=20.0)
KEPT = 4 * PODS  # the counters of what is gone: seen in a cycle that is at most 20 seconds ago


class Churn:
    """A node on which every pod and every process is replaced in each cycle. Process files are read from memory."""

    def __init__(self, root: Path) -> None:
        self.files: dict[bytes, bytes] = {}
        self.procfs = Procfs(root / "proc")
        self.processes = ProcfsSource(self.procfs.root, read_file=self.files.__getitem__)
        self.links = root / "log" / "containers"
        self.links.mkdir(parents=True)
        self.names = LogLinkNames(root / "log")
        self.publisher = Publisher(PageStore(), lifetime=15.0, exporter_metrics=False)
        self.totals = opened()

    def cycle(self, number: int) -> Snapshot:
        self.files.clear()
        for link in os.listdir(self.links):
            os.unlink(f"{self.links}/{link}")
        pids = range(1000 + number * PODS, 1000 + (number + 1) * PODS)
        for pid in pids:
            uid, container_id = f"00000000-0000-4000-8000-{pid:012d}", f"{pid:064x}"
            process = Process(pid, pid, "python3", ("python3",), ContainerCgroup(uid, container_id).text)
            for name, content in process.files().items():
                self.files[os.fsencode(f"{self.procfs.root}/{pid}/{name}")] = content
            os.symlink(f"/var/log/pods/ns_p{pid}_{uid}/main/0.log", f"{self.links}/p{pid}_ns_main-{container_id}.log")
        snapshot = snapshot_of(
            gpu(lists(rows(*((pid, MIB) for pid in pids)))),
            places=self.processes.read(pids).value.places,
            names=self.names.read().value,
            allocations=allocated(*(given(f"p{pid}", f"{U1}::{n}") for n, pid in enumerate(pids))),
            at=5.0 * number,
        )
        self.totals = account(self.totals, snapshot, BOUNDS)
        self.publisher.publish(snapshot, self.totals)
        return snapshot


def held_by_the_exporter() -> int:
    """Bytes that the exporter's own code has allocated and not let go."""
    gc.collect()
    found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(inclusive=True, filename_pattern=OURS)])
    return sum(trace.size for trace in found.traces)


def test_b113_churning_pods_and_pids_leave_nothing_behind(tmp_path):
    tracemalloc.start()
    try:
        node = Churn(tmp_path)
        for number in range(WARM):
            node.cycle(number)
        before = held_by_the_exporter()
        for number in range(WARM, WARM + 20):
            snapshot = node.cycle(number)
        assert [state.used for state in snapshot.containers] == [MIB] * PODS
        del snapshot
        after = held_by_the_exporter()
    finally:
        tracemalloc.stop()
    assert before > 100_000
    assert len(node.totals.peaks) == PODS
    assert len(node.totals.integrals.containers) == PODS + KEPT
    # Four hundred pods came and went: forty bytes for each would be seen.
    assert after - before < 16_000
