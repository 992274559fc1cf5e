"""The plan converges, does nothing twice, takes back what is ours, and never touches what is not."""

from hypothesis import given
from hypothesis import strategies as st

from enforcer.model import Cap, CapKey, CapState, Gpu, Level
from enforcer.plan import plan
from exporter.model import Backend, ContainerRef
from exporter.naming import job_namespaces
from tests.enforcer.world import GIB, MIB, World, pod, uid

GPUS = ("GPU-0", "GPU-1")
FOREIGN = {"default": (256, 1), "kai_x": (2048, 30), "j_not_ours": (None, 100)}
ROUNDS = 24


@st.composite
def nodes(draw):
    """A node with some mechanisms, pods with and without caps, and things that are somebody else's."""
    backend = draw(st.sampled_from([None, *Backend]))
    gpus = {uuid: Gpu(uuid, draw(st.sampled_from([32, 80])) * GIB, backend, mps=draw(st.booleans())) for uuid in GPUS}
    world = World(gpus, draw(st.sampled_from([None, 2, 3])))
    if world.protocol == 3:
        world.namespaces = dict(FOREIGN)
    if world.protocol == 2:
        world.limits = {0: draw(st.sampled_from([None, 8155])), 1: None}
        world.percentage = draw(st.sampled_from([100.0, 12.5]))
    caps = []
    for number in range(draw(st.integers(1, 4))):
        mine = pod(number)
        containers = draw(st.sets(st.sampled_from("abc"), min_size=1, max_size=2))
        gated = draw(st.booleans())
        world.pods[mine.uid] = set() if gated else set(containers)
        if gated:
            world.gated |= {mine}
        used = draw(st.sets(st.sampled_from(GPUS), min_size=1))
        for gpu in used:
            world.holders[mine.uid, gpu] = frozenset(containers)
            for name in containers:
                level = Level(world.ref(mine.uid, name), gpu)
                if draw(st.booleans()):
                    world.charged[level] = draw(st.integers(0, 20)) * GIB + draw(st.integers(0, 5))
                if draw(st.integers(0, 3)) == 0:
                    world.hard[level] = draw(st.integers(1, 30)) * GIB  # somebody else's
        for name in sorted(containers):
            limit = draw(st.one_of(st.none(), st.integers(1, 40).map(lambda gib: gib * GIB)))
            percentage = draw(st.one_of(st.none(), st.integers(1, 100)))
            if limit is not None or percentage is not None:
                caps += [Cap(CapKey(mine, name, gpu), limit, percentage, gated=gated) for gpu in sorted(used)]
    return world, caps


def settle(world, caps, lost=()):
    """Plan and do, until there is nothing to do. `lost` says, step by step, which commands get lost."""
    lost = iter(lost)
    for _ in range(ROUNDS * 4):
        steps = plan(caps, world.seen()).steps
        if not steps:
            return
        skipped = set()
        for step in steps:
            if step.pod_uid in skipped:
                continue
            if next(lost, False):
                skipped.add(step.pod_uid)
                continue
            world.do(step.action)
        world.now += 1
    raise AssertionError(f"no end: {steps}")


@given(nodes())
def test_it_settles_and_then_there_is_nothing_to_do(node):
    world, caps = node
    settle(world, caps)
    assert plan(caps, world.seen()).steps == ()


@given(nodes(), st.lists(st.booleans(), max_size=40))
def test_lost_commands_only_take_longer(node, lost):
    world, caps = node
    settle(world, caps, lost)
    assert plan(caps, world.seen()).steps == ()


@given(nodes())
def test_what_can_be_applied_is_applied_and_the_rest_is_said(node):
    world, caps = node
    settle(world, caps)
    states = plan(caps, world.seen()).states
    assert states.keys() == {cap.key for cap in caps}
    for cap in caps:
        gpu, state = world.gpus[cap.key.gpu_uuid], states[cap.key]
        by_mps = gpu.mps and world.protocol is not None
        if gpu.cgroup is None and not by_mps:
            assert state is CapState.UNSUPPORTED
        if gpu.cgroup is not None and cap.limit is not None and cap.percentage is None and not cap.gated:
            assert state in (CapState.APPLIED, CapState.PENDING)


@given(nodes())
def test_no_control_group_gets_less_than_it_uses_or_more_than_its_cap_needs(node):
    world, caps = node
    before = dict(world.hard)
    settle(world, caps)
    wanted = {(cap.key.pod.uid, cap.key.container, cap.key.gpu_uuid): cap.limit for cap in caps}
    for level, hard in world.hard.items():
        if hard == before.get(level) or world.gpus[level.gpu_uuid].cgroup is Backend.MISC:
            continue  # the driver's table charges nothing before it has a limit, so nobody knows the use
        assert hard >= world.charged.get(level, 0)
        container = level.ref.container_id.partition("-of-")[0]
        goal = wanted.get((level.ref.pod_uid, container, level.gpu_uuid)) if container else None
        if goal is not None:
            goal = min(goal, world.gpus[level.gpu_uuid].capacity)
            assert hard == max(goal, -(-world.charged.get(level, 0) // MIB) * MIB)


@given(nodes())
def test_what_is_not_ours_stays_as_it_was(node):
    world, caps = node
    hard = dict(world.hard)
    settle(world, caps)
    if world.protocol == 3:
        assert {name: world.namespaces[name] for name in FOREIGN} == FOREIGN
        mine = {name for cap in caps for name in job_namespaces(cap.key.pod.uid, cap.key.container)}
        assert world.namespaces.keys() - FOREIGN.keys() <= mine
    capped = {(cap.key.pod.uid, cap.key.gpu_uuid) for cap in caps if cap.limit is not None}
    for level, limit in world.hard.items():
        if (level.ref.pod_uid, level.gpu_uuid) not in capped:
            assert limit == hard.get(level)


@given(nodes())
def test_pods_that_are_gone_leave_nothing_behind(node):
    world, caps = node
    settle(world, caps)
    world.pods, world.gated, world.clients = {}, frozenset(), {}
    settle(world, [])
    assert not world.records.limits
    assert not world.records.doors
    assert not world.records.receipts
    assert not world.records.starts
    if world.protocol == 3:
        assert world.namespaces == FOREIGN


@given(nodes())
def test_caps_that_are_withdrawn_are_undone(node):
    world, caps = node
    hard = {level: limit for level, limit in world.hard.items() if limit is not None}
    settle(world, caps)
    world.clients = {}
    settle(world, [])
    assert {level: limit for level, limit in world.hard.items() if limit is not None} == hard
    if world.protocol == 3:
        assert world.namespaces == FOREIGN


@given(nodes())
def test_while_the_pods_are_not_known_nothing_is_taken_away(node):
    world, caps = node
    settle(world, caps)
    assert plan([], world.seen(pods_known=False)).steps == ()


@given(nodes())
def test_a_server_gets_back_what_it_had(node):
    world, caps = node
    if world.protocol != 2:
        return
    whole = [gpu.capacity // MIB for gpu in world.gpus.values()]
    before = ({n: mib or whole[n] for n, mib in world.limits.items()}, world.percentage)
    settle(world, caps)
    assert not world.records.starts
    touched = {n: mib for n, mib in world.limits.items() if mib is not None}
    assert (touched, world.percentage) == ({n: before[0][n] for n in touched}, before[1])


@given(nodes())
def test_each_gate_opens_for_whoever_can_be_held_and_for_nobody_else(node):
    world, caps = node
    settle(world, caps)
    for mine in world.gated:
        asked = [cap for cap in caps if cap.key.pod == mine]
        states = plan(caps, world.seen()).states
        if mine.uid in world.records.receipts:
            assert all(states[cap.key] is not CapState.UNSUPPORTED for cap in asked)
        elif asked:
            assert any(states[cap.key] in (CapState.UNSUPPORTED, CapState.PENDING, CapState.WANTED) for cap in asked)
        else:
            raise AssertionError("a gate of a pod that asks for nothing stays shut")


def test_a_pods_own_control_group_is_named_by_the_pod_alone():
    world = World(
        {"GPU-0": Gpu("GPU-0", 80 * GIB, Backend.DMEM)}, None, {uid(1): set()}, {(uid(1), "GPU-0"): frozenset("a")}
    )
    settle(world, [Cap(CapKey(pod(1), "a", "GPU-0"), GIB, None)])
    assert world.hard == {Level(ContainerRef(uid(1)), "GPU-0"): GIB}
