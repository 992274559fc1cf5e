"""What a client makes of a kubelet's answers: merged, each thing once, the same whatever the order."""

import random
import threading

import grpc
from hypothesis import given
from hypothesis import strategies as st

from podresources import (
    Allocatable,
    ClaimResource,
    Client,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    Memory,
    PodResources,
)
from podresources.resources import pod_from
from podresources.v1 import podresources_pb2 as pb

GPU = "GPU-8a5b0f4e-1c2d-4e3f-9a0b-112233445566"


def pod(*containers, **more):
    return {"namespace": "a", "name": "p", "containers": list(containers), **more}


def test_everything_a_kubelet_says(node):
    node.says(
        pods=[
            pod(
                {
                    "name": "main",
                    "devices": [{"resource": "nvidia.com/gpu", "ids": [GPU], "numa_nodes": [1]}],
                    "cpu_ids": [3, 1],
                    "memory": [{"type": "memory", "size": 1 << 40, "numa_nodes": [0, 1]}],
                    "dynamic_resources": [
                        {
                            "claim_namespace": "a",
                            "claim_name": "c",
                            "resources": [{"driver": "d", "pool": "n", "device": "gpu-0", "share_id": "s"}],
                        }
                    ],
                },
                cpu_ids=[9],
                memory=[{"type": "hugepages-2Mi", "size": 4}],
            )
        ]
    )
    expected = PodResources(
        namespace="a",
        name="p",
        containers=(
            ContainerResources(
                name="main",
                devices=(ContainerDevices("nvidia.com/gpu", (GPU,), (1,)),),
                cpu_ids=(1, 3),
                memory=(Memory("memory", 1 << 40, (0, 1)),),
                dynamic_resources=(DynamicResource("a", "c", (ClaimResource("d", "n", "gpu-0", "s"),)),),
            ),
        ),
        cpu_ids=(9,),
        memory=(Memory("hugepages-2Mi", 4),),
    )
    with node.client() as client:
        assert client.list() == (expected,)
        assert client.get("a", "p") == expected


def test_an_empty_node_is_no_error(node):
    with node.client() as client:
        assert client.list() == ()
        assert client.allocatable() == Allocatable()


def test_allocatable(node):
    node.says(
        allocatable={
            "devices": [{"resource": "r", "ids": ["b"], "numa_nodes": [0]}, {"resource": "r", "ids": ["a"]}],
            "cpu_ids": [2, 0],
            "memory": [{"type": "memory", "size": 7}],
        }
    )
    with node.client() as client:
        assert client.allocatable() == Allocatable(
            devices=(ContainerDevices("r", ("a", "b"), (0,)),), cpu_ids=(0, 2), memory=(Memory("memory", 7),)
        )


def test_a_resource_that_is_split_by_numa_node_is_one_entry(node):
    split = [
        {"resource": "r", "ids": ["d", "b"], "numa_nodes": [1]},
        {"resource": "q", "ids": ["x"]},
        {"resource": "r", "ids": ["a", "b"], "numa_nodes": [0]},
    ]
    node.says(pods=[pod({"name": "main", "devices": split})])
    with node.client() as client:
        (container,) = client.list()[0].containers
    assert container.devices == (ContainerDevices("q", ("x",)), ContainerDevices("r", ("a", "b", "d"), (0, 1)))


def test_k04_a_claim_that_grows_over_restarts_has_each_device_once(node):
    def claim(*devices):
        return {
            "claim_namespace": "a",
            "claim_name": "c",
            "resources": [
                {
                    "driver": "d",
                    "pool": "n",
                    "device": device,
                    "cdi_devices": [f"k/claim={d}" for d in devices[: i + 1]],
                }
                for i, device in enumerate(devices)
            ],
        }

    node.says(pods=[pod({"name": "main", "dynamic_resources": [claim("gpu-0", "gpu-1"), claim("gpu-1", "gpu-0")]})])
    with node.client() as client:
        first = client.list()
        assert first[0].containers[0].dynamic_resources == (
            DynamicResource("a", "c", (ClaimResource("d", "n", "gpu-0"), ClaimResource("d", "n", "gpu-1"))),
        )
        grown = [claim(*["gpu-0", "gpu-1"] * 50)] * 20
        node.says(pods=[pod({"name": "main", "dynamic_resources": grown})])
        assert client.list() == first


def test_shares_of_one_device_stay_apart(node):
    shares = [{"driver": "d", "pool": "n", "device": "gpu-0", "share_id": share} for share in ("s2", "s1", "s2")]
    claim = {"claim_namespace": "a", "claim_name": "c", "resources": shares}
    node.says(pods=[pod({"name": "main", "dynamic_resources": [claim]})])
    with node.client() as client:
        (found,) = client.get("a", "p").containers[0].dynamic_resources
    assert [resource.share_id for resource in found.resources] == ["s1", "s2"]


def test_b35_memory_without_devices_and_pods_without_containers(node):
    node.says(pods=[pod({"name": "main", "memory": [{"type": "memory", "size": 5}]}), {"namespace": "a", "name": "q"}])
    with node.client() as client:
        assert [(p.name, len(p.containers)) for p in client.list()] == [("p", 1), ("q", 0)]


def test_fields_that_are_newer_than_the_client_are_skipped(node):
    pods = [pod({"name": "main", "devices": [{"resource": "r", "ids": ["a"]}]})]
    node.says(pods=pods)
    with node.client() as client:
        plain = client.list()
        node.says(pods=pods, newer_fields=True)
        assert client.list() == plain


def test_the_newer_fields_of_the_simulator_are_on_the_wire(node):
    node.says(pods=[pod({"name": "main"})], newer_fields=True)
    with grpc.insecure_channel(f"unix:{node.socket}") as channel:
        raw = channel.unary_unary("/v1.PodResourcesLister/List")(b"", timeout=10)
    assert raw.count(b"\x32\x05later\x38\x07") == 2


def test_a_claim_of_a_kubelet_before_1_31_still_names_its_class(raw_server):
    claim = pb.DynamicResource(claim_name="c", claim_namespace="a")
    claim.MergeFromString(b"\x0a\x05class")
    container = pb.ContainerResources(name="main", dynamic_resources=[claim])
    answer = pb.ListPodResourcesResponse(
        pod_resources=[pb.PodResources(name="p", namespace="a", containers=[container])]
    )
    with Client(raw_server(List=answer.SerializeToString())) as client:
        assert client.list()[0].containers[0].dynamic_resources == (DynamicResource("a", "c"),)


def test_k05_answers_above_the_default_limit_of_grpc(node):
    with node.client() as client:
        for mebibytes in (5, 20):
            node.says(pods=[pod({"name": "main"})], padding_mib=mebibytes)
            pods = client.list()
            assert len(pods) == 1 + 16 * mebibytes
            assert pods[0].name == "p"


def test_threads_may_share_a_client(node):
    node.says(pods=[pod({"name": "main"})])
    answers = []
    with node.client() as client:
        threads = [threading.Thread(target=lambda: answers.append(client.list())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [client.list()] * 8


names = st.text("ab", min_size=1, max_size=2)
devices = st.builds(
    lambda resource, ids, nodes: pb.ContainerDevices(
        resource_name=resource, device_ids=ids, topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=n) for n in nodes])
    ),
    names,
    st.lists(names, max_size=3),
    st.lists(st.sampled_from([0, 8, 16, 24]), max_size=3),
)
memory = st.builds(lambda kind, size: pb.ContainerMemory(memory_type=kind, size=size), names, st.integers(0, 9))
claims = st.builds(
    lambda name, devices: pb.DynamicResource(
        claim_name=name, claim_resources=[pb.ClaimResource(device_name=d, share_id=s) for d, s in devices]
    ),
    names,
    st.lists(st.tuples(names, st.none() | names), max_size=3),
)
containers = st.builds(
    lambda name, d, c, m, r: pb.ContainerResources(name=name, devices=d, cpu_ids=c, memory=m, dynamic_resources=r),
    names,
    st.lists(devices, max_size=3),
    st.lists(st.sampled_from([0, 8, 16, 24]), max_size=3),
    st.lists(memory, max_size=3),
    st.lists(claims, max_size=3),
)


@given(st.lists(containers, max_size=3), st.randoms(use_true_random=False))
def test_the_order_of_an_answer_means_nothing(listed, rng: random.Random):
    message = pb.PodResources(name="p", containers=listed)
    shuffled = pb.PodResources()
    shuffled.CopyFrom(message)
    _shuffle(shuffled, rng)
    assert pod_from(shuffled) == pod_from(message)


def _shuffle(message, rng):
    """Shuffles every repeated field, at every depth."""
    for field, value in message.ListFields():
        if field.is_repeated:
            parts = list(value)
            rng.shuffle(parts)
            if field.message_type is not None:
                for part in parts:
                    _shuffle(part, rng)
            del value[:]
            value.extend(parts)
        elif field.message_type is not None:
            _shuffle(value, rng)
