import pytest

from exporter.errors import Failure, Reason
from exporter.metrics.samples import BuildInfo
from exporter.model import (
    CapCondition,
    Condition,
    ContainerName,
    ContainerState,
    Device,
    DeviceState,
    DomainKey,
    DomainState,
    Integral,
    Integrals,
    Isolation,
    ListKind,
    Mechanism,
    MemoryClass,
    MigDevice,
    MpsClient,
    MpsDaemon,
    MpsNamespace,
    MpsServer,
    MpsStarts,
    PinnedLimit,
    PodState,
    ServerStatus,
    ShareSource,
    Snapshot,
    SourceState,
    Totals,
)

GIB = 1 << 30
SHARED = DomainKey(0, "GPU-aaaa")
SLICE = DomainKey(1, "GPU-bbbb", "3")


@pytest.fixture
def snapshot():
    """A GPU shared by MPS and a GPU under MIG; every family has something to say."""
    return Snapshot(
        timestamp=1_760_000_000.5,
        driver=("615.10", "13.1"),
        devices=(
            DeviceState(
                Device(
                    0,
                    "GPU-aaaa",
                    "NVIDIA H200",
                    minor=2,
                    pci_bus_id="00000000:18:00.0",
                    compute_capability=(9, 0),
                    compute_mode="default",
                    persistence=True,
                    mig_mode=False,
                ),
                (
                    DomainState(
                        SHARED,
                        up=True,
                        capacity=80 * GIB,
                        classes={MemoryClass.FREE: 77 * GIB, MemoryClass.CONTAINERS: 3 * GIB, MemoryClass.HOST: 0},
                        over_attributed=0,
                        unresolved={Reason.EXITED: 2},
                        slots={"nvidia.com/gpu.shared": 4},
                        tenants=(2, Isolation.NONE),
                    ),
                ),
                utilization=0.25,
            ),
            DeviceState(
                Device(1, "GPU-bbbb", "NVIDIA H200", mig_mode=True),
                (DomainState(SLICE, up=False),),
                (MigDevice("MIG-cccc", gpu_instance=3, compute_instance=0, profile="3g.40gb"),),
            ),
        ),
        containers=(
            ContainerState(
                ContainerName("team", "job-0", "main"),
                SHARED,
                used=3 * GIB,
                processes={ListKind.MPS: 2},
                processes_memory_unknown=0,
                allocated=True,
                slots=1,
                share=0.25,
                requested=GIB,
                limit=2 * GIB,
                utilization=0.125,
                charged=2 * GIB,
                applied={Mechanism.CGROUP: 2 * GIB, Mechanism.MPS_NAMESPACE: GIB},
                enforced=False,
                cap_conditions=(CapCondition.LIMIT_ABOVE_CAP, CapCondition.OUTSIDE_MPS),
                mps_clients=2,
                mps_thread_ratio=0.25,
                mps_thread_source=ShareSource.NAMESPACE,
            ),
            ContainerState(
                ContainerName("team", "job-1", "main"),
                SLICE,
                used=None,
                processes=None,
                processes_memory_unknown=None,
                allocated=False,
            ),
        ),
        sources=(
            SourceState("kubelet", Failure(Reason.TIMEOUT, "no answer"), 1.5),
            SourceState("nvml", None, 0.002),
        ),
        conditions={Condition.OVER_ATTRIBUTED: False, Condition.BLIND_PID_NAMESPACE: True},
        pods=(PodState("team", "job-0", "uid-0", "Job", "job", "high", "Burstable", {"team": "a"}),),
        annotation_errors={(ContainerName("team", "job-1", "main"), "malformed"): 2},
        mps={
            "/run/new": MpsDaemon(
                3,
                servers=(
                    MpsServer(
                        "shared",
                        pid=11,
                        uid=0,
                        status=ServerStatus.ACTIVE,
                        clients=(MpsClient(7, "0", "j_a"), MpsClient(8, "0", "j_a")),
                        namespaces=(
                            MpsNamespace("default", ratio=0.1, pinned=None),
                            MpsNamespace("j_a", ratio=0.25, pinned=PinnedLimit.exactly(GIB)),
                        ),
                    ),
                ),
            ),
            "/run/old": MpsDaemon(
                2,
                pid=5,
                started=100,
                ratio=1.0,
                pinned={0: PinnedLimit(4 * GIB, 5 * GIB), 1: None},
                servers=(
                    MpsServer(
                        "uid_1000",
                        pid=12,
                        uid=None,
                        status=ServerStatus.UNKNOWN,
                        clients=Failure(Reason.BUSY),
                        ratio=0.5,
                        pinned={0: PinnedLimit.exactly(2 * GIB)},
                    ),
                ),
            ),
            "/run/wedged": Failure(Reason.DAEMON_WEDGED, "no answer"),
        },
    )


@pytest.fixture
def totals():
    return Totals(
        errors={("kubelet", Reason.TIMEOUT): 7, ("kubelet", Reason.MALFORMED): 1},
        last_success={"nvml": 1_760_000_000.25},
        cycles={"complete": 40, "partial": 8},
        peaks={(ContainerName("team", "job-0", "main"), SHARED): 4 * GIB},
        mps={"/run/new": MpsStarts(daemons=1, servers=3), "/run/wedged": MpsStarts()},
        integrals=Integrals(
            {
                (ContainerName("team", "job-0", "main"), SHARED): Integral(
                    (30.5 * GIB, 10.0 * GIB, 31.5 * GIB, 4.0 * GIB, 10.0, 5.0),
                    (3 * GIB, GIB, 3 * GIB, GIB, 1, 0.5),
                    7.0,
                ),
                # Gone, and not forgotten yet: its counters are all that is left of it.
                (ContainerName("team", "done", "main"), SHARED): Integral(
                    (2.0 * GIB, None, 2.0 * GIB, None, None, None), (None,) * 6, 2.0
                ),
            },
            {SHARED: Integral((30.0 * GIB, 0.0, *(None,) * 5, 770.0 * GIB), (3 * GIB, 0, *(None,) * 5, 77 * GIB), 7.0)},
            gap=60.5,
            at=7.0,
        ),
    )


@pytest.fixture
def build():
    return BuildInfo("0.1.0", "3.11.7")
