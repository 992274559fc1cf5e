"""The worked example of docs/attribution.md, number by number."""

from exporter.errors import Reason
from exporter.model import MemoryClass, MemoryInfo, Place
from tests.builders import (
    GIB,
    HOST,
    gpu,
    in_pod,
    lists,
    names_of,
    only_domain,
    rows,
    snapshot_of,
    used_by_pod,
)

HUNDREDTH = GIB // 100


def test_the_example_of_the_documentation():
    server = 3 * HUNDREDTH
    found = lists(
        rows((99, server), (11, 24 * GIB), (12, 9 * GIB), (14, GIB // 2), (15, GIB // 4)),
        mps=rows((11, 24 * GIB), (12, 9 * GIB), (13, GIB)),
    )
    snapshot = snapshot_of(
        gpu(found, MemoryInfo(80 * GIB, 39 * GIB, GIB)),
        places={
            99: in_pod("mps-daemon", server=True),
            11: in_pod("serve-a"),
            12: in_pod("serve-b"),
            13: in_pod("serve-b"),
            14: HOST,
            15: Place(reason=Reason.EXITED),
        },
        names=names_of("mps-daemon/main", "serve-a/main", "serve-b/main"),
    )
    assert used_by_pod(snapshot) == {"serve-a": 24 * GIB, "serve-b": 10 * GIB}
    assert only_domain(snapshot).classes == {
        MemoryClass.CONTAINERS: 34 * GIB,
        MemoryClass.HOST: GIB // 2,
        MemoryClass.MPS_SERVER: server,
        MemoryClass.UNRESOLVED: GIB // 4,
        MemoryClass.REMAINDER: 40 * GIB - 34 * GIB - GIB // 2 - server - GIB // 4,
        MemoryClass.RESERVED: GIB,
        MemoryClass.FREE: 39 * GIB,
    }
    assert round(only_domain(snapshot).classes[MemoryClass.REMAINDER] / GIB, 2) == 5.22
