import pytest

from exporter.top.view import Container, ContainerId, DomainId, Gpu, View

GIB = 1 << 30
FIRST, SECOND, SLICE = DomainId("0", "GPU-a", ""), DomainId("1", "GPU-b", ""), DomainId("10", "GPU-c", "3")


def container(name, domain=FIRST, **known):
    return Container(ContainerId(*name.split("/"), domain), **known)


@pytest.fixture
def node():
    """A node with something of everything: over its cap, near it, nothing known, nothing used, a GPU that is lost."""
    return View(
        1000.0,
        (
            Gpu(
                FIRST,
                name="NVIDIA H200",
                capacity=80 * GIB,
                classes={"containers": 30 * GIB, "host": GIB, "free": 48 * GIB, "reserved": GIB, "remainder": 0},
                sm=0.5,
                containers=(
                    container(
                        "team-a/over/main",
                        used=12 * GIB,
                        limit=10 * GIB,
                        overrun=2 * GIB,
                        threads=0.25,
                        sm=0.4,
                        share=0.25,
                    ),
                    container(
                        "team-a/near/main", used=9.5 * GIB, limit=10 * GIB, overrun=0, threads=0.5, sm=0.1, share=0.25
                    ),
                    container("team-b/idle/main", used=0, allocated=True),
                    container("team-b/stranger/main", used=8.5 * GIB, allocated=False, sm=0.0),
                    container("team-c/unknown/main"),
                ),
            ),
            Gpu(SECOND, name="NVIDIA H200", up=False),
            Gpu(SLICE, capacity=10 * GIB, classes={"containers": 0, "free": 10 * GIB}),
        ),
        sources_down=("kubelet",),
        conditions=("over_attributed",),
    )
