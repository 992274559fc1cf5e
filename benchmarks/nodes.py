"""Nodes for measuring: GPUs full of MPS clients, each in a pod of its own, and pods without GPUs beside them."""

from simulator.scenario import Container, Gpu, Held, Load, Memory, Pod, Process, Scenario

_MIB = 1 << 20


def mps_node(*, gpus: int, clients: int, pods: int, generation: int = 0) -> Scenario:
    """A node with `clients` MPS clients on each GPU, spread over `pods` pods as evenly as they go.

    Pods of another `generation` have other names, uids and container ids.
    """
    devices = tuple(
        Gpu(
            index=index,
            name="NVIDIA H200",
            memory=143771 * _MIB,
            reserved=614 * _MIB,
            overhead=20 * _MIB,
            sharing="mps",
            replicas=clients,
            resource="nvidia.com/gpu",
            compute_capability=(9, 0),
            utilization=50,
            minor=index,
        )
        for index in range(gpus)
    )
    slots: list[list[tuple[int, int]]] = [[] for _ in range(pods)]
    for number in range(gpus * clients):
        slots[number % pods].append((number // clients, number))
    found = tuple(
        Pod(
            namespace=f"team-{number % 7}",
            name=f"worker-{generation}-{number}",
            containers=(
                Container(
                    "main",
                    holds=tuple(Held(gpu) for gpu, _ in mine),
                    processes=tuple(
                        Process(
                            ("python3", "serve.py"),
                            gpu,
                            Memory(size * _MIB, size * _MIB),
                            ("compute", "mps"),
                            sm=Load(2, 2),
                        )
                        for gpu, size in ((gpu, 300 + client % clients) for gpu, client in mine)
                    ),
                ),
            ),
        )
        for number, mine in enumerate(slots)
    )
    return Scenario("bench", "", "580.95.05", "13.0", "systemd", devices, found)
