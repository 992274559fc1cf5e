"""From a claim's device to the memory domain that it is: what is certain, what is shared, and what stays unknown."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import podresources
from exporter.allocation import claimed_devices, holdings
from exporter.errors import Failure, Reason
from exporter.model import (
    DRA_DRIVER,
    Allocation,
    AllocationReading,
    Condition,
    ContainerName,
    DeviceKind,
    DeviceReading,
    DeviceRef,
    DomainKey,
    DomainReading,
    DraAttributes,
    DraDevice,
    DraType,
    MigDevice,
    SliceReading,
)
from tests.builders import GIB, U1, U2, U3, gpu, in_pod, lists, memory, mig_gpu, names_of, ref, rows, snapshot_of

M1, M2, M3 = (f"MIG-{n * 8}-0000-0000-0000-000000000000" for n in "123")
WHOLE1, WHOLE2 = DomainKey(0, U1), DomainKey(1, U2)
GI1, GI2, GI3 = (DomainKey(2, U3, str(instance)) for instance in (1, 2, 3))

GPU, MIG, VFIO = DraType.GPU, DraType.MIG, DraType.VFIO


def node():
    """GPU 0 and 1 whole, their minor numbers the other way round; GPU 2 with three GPU instances; GPU 3 whole."""
    domains = [DomainReading(instance, memory(used=GIB, total=10 * GIB), lists()) for instance in (1, 2, 3)]
    migs = [MigDevice(M1, 1, 0, "1g.10gb"), MigDevice(M2, 2, 0, "3g.40gb"), MigDevice(M3, 3, 0, "3g.40gb")]
    swapped = [with_minor(gpu(index=index, uuid=uuid), 1 - index) for index, uuid in ((0, U1), (1, U2))]
    return [*swapped, mig_gpu(domains, migs, index=2, uuid=U3), gpu(index=3, uuid="GPU-3")]


def with_minor(reading: DeviceReading, minor: int | None) -> DeviceReading:
    return dataclasses.replace(reading, device=dataclasses.replace(reading.device, minor=minor))


def dra(name, pool="n"):
    return DraDevice(DRA_DRIVER, pool, name)


def claim(name, share="", pool="n"):
    """What the kubelet's source makes of a claim's device."""
    found = podresources.parse_dra(DRA_DRIVER, pool, name, share_id=share)
    return DeviceRef(found.raw, DeviceKind(found.kind.value), minor=found.minor, replica=found.replica)


def holds(pod, *refs, container="main"):
    return Allocation(ContainerName("ns", pod, container), DRA_DRIVER, tuple(refs))


def slices(**devices):
    return SliceReading({dra(name.replace("_", "-")): attributes for name, attributes in devices.items()})


def join(*allocations, known=None, devices=None, allocatable=()):
    reading = AllocationReading(tuple(allocations), tuple(("nvidia.com/gpu", ref(raw)) for raw in allocatable))
    return holdings(reading, node() if devices is None else devices, known)


def held_by(found, pod, container="main"):
    name = ContainerName("ns", pod, container)
    return {key: domain.slots[name] for key, domain in found.domains.items() if name in domain.slots}


def test_the_driver_has_one_name_in_the_whole_program():
    assert podresources.DRA_DRIVER == DRA_DRIVER


# --- one claim, one device ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known", "domain"),
    [
        # The slices tell the UUID, whatever the name looks like.
        ("gpu-0", slices(gpu_0=DraAttributes(GPU, uuid=U2)), WHOLE2),
        ("gpu-0", slices(gpu_0=DraAttributes(GPU, uuid=U1)), WHOLE1),
        ("gpu-7", slices(gpu_7=DraAttributes(GPU, uuid=U1)), WHOLE1),
        ("gpu-2-mig-19-0-1", slices(gpu_2_mig_19_0_1=DraAttributes(MIG, M2, U3, "3g.40gb")), GI2),
        ("gpu-2-mig-3g40gb-9-0", slices(gpu_2_mig_3g40gb_9_0=DraAttributes(MIG, M3, U3, "3g.40gb")), GI3),
        # A UUID that the driver does not show is not made good by the name, here or below.
        ("gpu-3", slices(gpu_3=DraAttributes(GPU, uuid="GPU-gone")), None),
        ("gpu-2-mig-19-0-1", slices(gpu_2_mig_19_0_1=DraAttributes(MIG, "MIG-gone", U3, "1g.10gb")), None),
        # A GPU that is split is not there as a whole.
        ("gpu-2", slices(gpu_2=DraAttributes(GPU, uuid=U3)), None),
        # Without a UUID a name counts where its number can mean one GPU only.
        ("gpu-3", None, DomainKey(3, "GPU-3")),
        ("gpu-3", slices(), DomainKey(3, "GPU-3")),
        ("gpu-3", slices(gpu_3=DraAttributes(GPU)), DomainKey(3, "GPU-3")),
        ("gpu-0", None, None),  # minor 0 is GPU 1, index 0 is GPU 0
        ("gpu-1", slices(), None),
        ("gpu-2", None, None),
        ("gpu-9", None, None),
        # A MIG device's name has no GPU instance.
        ("gpu-2-mig-1g10gb-19-0", None, None),
        ("gpu-3-mig-1g10gb-19-0", None, None),
        ("gpu-2-mig-19-6-1", slices(gpu_2=DraAttributes(GPU, uuid=U3)), None),  # B67
        # One that is made on demand is known by GPU and profile, if there is one such.
        ("gpu-2-mig-1g10gb-19-0", slices(gpu_2_mig_1g10gb_19_0=DraAttributes(MIG, "", U3, "1g.10gb")), GI1),
        ("gpu-2-mig-3g40gb-9-0", slices(gpu_2_mig_3g40gb_9_0=DraAttributes(MIG, "", U3, "3g.40gb")), None),
        ("gpu-2-mig-7g80gb-0-0", slices(gpu_2_mig_7g80gb_0_0=DraAttributes(MIG, "", U3, "7g.80gb")), None),
        ("gpu-2-mig-1g10gb-19-0", slices(gpu_2_mig_1g10gb_19_0=DraAttributes(MIG, "", U2, "1g.10gb")), None),
        ("gpu-2-mig-1g10gb-19-0", slices(gpu_2_mig_1g10gb_19_0=DraAttributes(MIG, "", U3)), None),
        ("gpu-2-mig-1g10gb-19-0", slices(gpu_2_mig_1g10gb_19_0=DraAttributes(MIG)), None),
        # A slice that contradicts the driver is not believed.
        ("gpu-0", slices(gpu_0=DraAttributes(GPU, uuid=M1)), None),
        ("gpu-0-mig-19-0-1", slices(gpu_0_mig_19_0_1=DraAttributes(MIG, U1, U3, "1g.10gb")), None),
        ("gpu-vfio-0", None, None),
        ("something-else", None, None),
    ],
)
def test_a_claims_device_is_one_domain_or_not_known(name, known, domain):
    found = join(holds("a", claim(name)), known=known)
    assert held_by(found, "a") == ({domain: 1} if domain is not None else {})
    assert found.unknown == (domain is None)
    # Never "not allocated" where it may be: unknown there, and everywhere.
    everywhere = [WHOLE1, WHOLE2, GI1, GI2, GI3, DomainKey(3, "GPU-3")]
    expected = {key: (key == domain) if domain is not None else None for key in everywhere}
    assert {key: found.allocated(ContainerName("ns", "a", "main"), key) for key in everywhere} == expected
    # What others have is as certain as before.
    assert {found.allocated(ContainerName("ns", "b", "main"), key) for key in everywhere} == {False}
    assert found.holders == {ContainerName("ns", "a", "main")}


def test_a_gpu_without_a_minor_number_is_not_found_by_one():
    devices = [with_minor(gpu(index=0, uuid=U1), None)]
    assert join(holds("a", claim("gpu-0")), devices=devices).undecided


def test_a_pool_may_have_slashes_in_its_name():
    known = SliceReading({dra("gpu-0", "rack/7"): DraAttributes(GPU, uuid=U1)})
    found = join(holds("a", claim("gpu-0", pool="rack/7")), known=known)
    assert held_by(found, "a") == {WHOLE1: 1}
    assert claimed_devices(AllocationReading((holds("a", claim("gpu-0", pool="rack/7")),))) == {dra("gpu-0", "rack/7")}


def test_the_same_name_in_another_pool_is_another_device():
    known = SliceReading({dra("gpu-0", "other"): DraAttributes(GPU, uuid=U1)})
    assert held_by(join(holds("a", claim("gpu-0")), known=known), "a") == {}


def test_a_device_that_is_passed_through_is_none_of_the_hosts():
    found = join(holds("a", claim("gpu-vfio-0")), known=slices(gpu_vfio_0=DraAttributes(VFIO, uuid=U1)))
    assert found.unknown == 1
    assert found.allocated(ContainerName("ns", "a", "main"), WHOLE1) is False
    assert found.undecided == frozenset()


# --- several claims -----------------------------------------------------------------------------------------------


def test_a_shared_claim_is_one_slot_for_each_and_nobodys_share():
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1))
    found = join(holds("a", claim("gpu-0")), holds("b", claim("gpu-0")), known=known)
    assert held_by(found, "a") == held_by(found, "b") == {WHOLE1: 1}
    assert found.of(WHOLE1).advertised == {DRA_DRIVER: 1}
    assert found.of(WHOLE1).share(ContainerName("ns", "a", "main")) is None


def test_a_claim_of_ones_own_is_the_whole_device():
    found = join(holds("a", claim("gpu-0")), known=slices(gpu_0=DraAttributes(GPU, uuid=U1)))
    assert found.of(WHOLE1).share(ContainerName("ns", "a", "main")) == 1.0


def test_d24_shares_of_one_device_are_one_slot():
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1))
    found = join(holds("a", claim("gpu-0", share="s-1"), claim("gpu-0", share="s-2")), known=known)
    assert held_by(found, "a") == {WHOLE1: 1}
    assert found.of(WHOLE1).advertised == {DRA_DRIVER: 1}


def test_one_claim_of_several_that_is_not_known_leaves_the_others_known():
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1))
    found = join(holds("a", claim("gpu-0"), claim("gpu-2-mig-19-6-1")), known=known)
    name = ContainerName("ns", "a", "main")
    assert found.allocated(name, WHOLE1) is True
    assert found.allocated(name, WHOLE2) is None


def test_two_claims_on_devices_made_on_demand_with_one_candidate_are_not_told_apart():
    first, second = (DraAttributes(MIG, "", U3, "1g.10gb") for _ in range(2))
    known = slices(gpu_2_mig_1g10gb_19_0=first, gpu_2_mig_1g10gb_19_1=second)
    one, two = claim("gpu-2-mig-1g10gb-19-0"), claim("gpu-2-mig-1g10gb-19-1")
    assert held_by(join(holds("a", one), known=known), "a") == {GI1: 1}
    # One claim that two containers share is still one claim.
    assert held_by(join(holds("a", one), holds("b", one), known=known), "b") == {GI1: 1}
    both = join(holds("a", one), holds("b", two), known=known)
    assert held_by(both, "a") == held_by(both, "b") == {}


def test_a_device_made_on_demand_is_none_that_is_known_to_be_another():
    known = slices(gpu_2_mig_1g10gb_19_0=DraAttributes(MIG, "", U3, "1g.10gb"))
    wanted = holds("a", claim("gpu-2-mig-1g10gb-19-0"))
    assert held_by(join(wanted, known=known, allocatable=[M1]), "a") == {}
    described = SliceReading({**known.devices, dra("gpu-2-mig-19-0-1"): DraAttributes(MIG, M1, U3, "1g.10gb")})
    assert held_by(join(wanted, known=described), "a") == {}


def test_only_devices_that_exist_are_advertised():
    """A driver that makes MIG devices on demand lists every one that it could make."""
    placements = {f"gpu_2_mig_1g10gb_19_{start}": DraAttributes(MIG, "", U3, "1g.10gb") for start in range(7)}
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1), gpu_2=DraAttributes(GPU, uuid=U3), **placements)
    found = join(holds("a", claim("gpu-2-mig-1g10gb-19-3")), known=known)
    assert {key: domain.advertised for key, domain in found.domains.items() if domain.advertised} == {
        WHOLE1: {DRA_DRIVER: 1},
        GI1: {DRA_DRIVER: 1},
    }


def test_without_slices_nothing_is_advertised():
    found = join(holds("a", claim("gpu-3")))
    assert held_by(found, "a") == {DomainKey(3, "GPU-3"): 1}
    assert found.of(DomainKey(3, "GPU-3")).advertised == {}
    assert found.of(DomainKey(3, "GPU-3")).share(ContainerName("ns", "a", "main")) is None


names_in_slices = st.sampled_from(["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-2-mig-1g10gb-19-0", "gpu-2-mig-19-0-1"])
descriptions = st.builds(
    DraAttributes,
    st.sampled_from(DraType),
    uuid=st.sampled_from(["", U1, U2, U3, M1, M2, "GPU-gone"]),
    parent_uuid=st.sampled_from(["", U1, U3]),
    profile=st.sampled_from(["", "1g.10gb", "3g.40gb"]),
)


@given(
    st.dictionaries(names_in_slices.map(dra), descriptions),
    st.lists(st.tuples(st.sampled_from("abc"), names_in_slices), max_size=5),
    st.randoms(),
)
def test_a_claim_is_a_device_passed_through_or_unknown_whatever_the_slices_say(known, claims, random):
    allocations = [holds(pod, claim(name)) for pod, name in claims]
    found = join(*allocations, known=SliceReading(known))
    for allocation in allocations:
        name = allocation.name
        mine = {key for key, domain in found.domains.items() if name in domain.slots}
        passed = any(known.get(dra(n)) is not None and known[dra(n)].type is VFIO for p, n in claims if p == name.pod)
        assert mine or passed or name in found.undecided
        assert all(found.allocated(name, key) for key in mine)
    random.shuffle(allocations)
    assert join(*allocations, known=SliceReading(dict(sorted(known.items(), reverse=True)))) == found


# --- in the snapshot ----------------------------------------------------------------------------------------------

PLACES = {11: in_pod("a"), 12: in_pod("b")}
NAMES = names_of("a/main", "b/main")
REFUSED = Failure(Reason.NO_PERMISSION, "the rule")


def snapshot(*allocations, slices):
    return snapshot_of(
        gpu(lists(rows((11, GIB), (12, 2 * GIB))), memory(used=3 * GIB)),
        gpu(index=1, uuid=U2),
        places=PLACES,
        names=NAMES,
        allocations=AllocationReading(allocations),
        slices=slices,
    )


def test_b77_without_access_to_the_slices_use_stays_and_allocation_is_unknown():
    found = snapshot(holds("a", claim("gpu-0-mig-1g10gb-19-0")), slices=REFUSED)
    assert {s.name.pod: (s.used, s.allocated, s.slots) for s in found.containers} == {
        "a": (GIB, None, None),
        "b": (2 * GIB, False, None),
    }
    assert [s.failure for s in found.sources if s.source == "resourceslices"] == [REFUSED]
    assert found.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]
    assert all(domain.slots == {} for device in found.devices for domain in device.domains)


def test_b75_k68_a_claim_has_the_series_that_a_plugins_device_has():
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1))
    found = snapshot(holds("a", claim("gpu-0")), slices=known)
    by_plugin = Allocation(ContainerName("ns", "a", "main"), "nvidia.com/gpu", (ref(U1),))
    other = snapshot_of(
        gpu(lists(rows((11, GIB), (12, 2 * GIB))), memory(used=3 * GIB)),
        gpu(index=1, uuid=U2),
        places=PLACES,
        names=NAMES,
        allocations=AllocationReading((by_plugin,), (("nvidia.com/gpu", ref(U1)),)),
    )
    assert found.containers == other.containers
    assert not found.conditions[Condition.UNKNOWN_DEVICE_ALLOCATED]


def test_b74_gpus_without_a_claim_keep_their_series():
    found = snapshot(holds("a", claim("gpu-0")), slices=slices(gpu_0=DraAttributes(GPU, uuid=U1)))
    assert [domain.up for device in found.devices for domain in device.domains] == [True, True]


def test_a_container_that_is_only_known_by_its_pod_may_be_the_one_with_the_claim():
    found = join(holds("a", claim("gpu-0-mig-1g10gb-19-0"), container="worker"))
    assert found.allocated(ContainerName("ns", "a", ""), WHOLE1) is None
    assert found.allocated(ContainerName("ns", "a", "sidecar"), WHOLE1) is False
    assert found.allocated(ContainerName("ns", "b", ""), WHOLE1) is False


def test_a_tenant_with_an_unknown_claim_that_calls_itself_the_mps_server_is_billed():
    found = snapshot_of(
        gpu(lists(rows((11, GIB))), memory(used=GIB)),
        places={11: in_pod("a", server=True)},
        names=NAMES,
        allocations=AllocationReading((holds("a", claim("gpu-0-mig-1g10gb-19-0")),)),
    )
    assert [(s.name.pod, s.used) for s in found.containers] == [("a", GIB)]


def test_while_somebody_may_hold_any_gpu_nobody_is_called_its_only_tenant():
    known = slices(gpu_0=DraAttributes(GPU, uuid=U1))
    certain = snapshot(holds("a", claim("gpu-0")), slices=known)
    doubtful = snapshot(holds("a", claim("gpu-0")), holds("b", claim("gpu-9")), slices=known)
    assert all(domain.tenants is not None for device in certain.devices for domain in device.domains)
    assert all(domain.tenants is None for device in doubtful.devices for domain in device.domains)


def test_a_snapshot_without_claims_has_no_such_source():
    assert "resourceslices" not in [state.source for state in snapshot(slices=None).sources]
