"""What the admission policies decide, by a real evaluator of their expressions.

The evaluator has neither an API server's `authorizer` nor its types for mutations; those parts of the expressions are
tested by their shape only.
"""

import pytest

from exporter.caps.keys import NVIDIA_PREFIX, ContainerKey, PodKey, in_full
from tests.deploy.conftest import evaluate
from tests.deploy.manifests import DEPLOY, load, one

pytestmark = pytest.mark.deploy

LIMIT = "nvidia.com/container.main.gpu-memory.limit"


def policy(component, file, name):
    kind = "ValidatingAdmissionPolicy" if component == "cap-guard" else "MutatingAdmissionPolicy"
    return one(load((DEPLOY / "components" / component / file).read_text()), kind, name)["spec"]


def values(spec, **objects):
    return evaluate([(each["name"], each["expression"]) for each in spec["variables"]], **objects)


def pod(annotations=None, **spec):
    metadata = {"name": "p", "namespace": "ns"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "main"}], **spec}}


def matches(spec, **objects):
    steps = [(each["name"], each["expression"]) for each in spec["matchConditions"]]
    return all(evaluate(steps, **objects).values())


@pytest.mark.parametrize(
    ("before", "after", "touched"),
    [
        (None, None, False),
        ({}, None, False),
        ({"team": "a"}, {"team": "b"}, False),
        ({LIMIT: "8Gi"}, {LIMIT: "8Gi", "seen": "yes"}, False),
        ({LIMIT: "8Gi"}, {LIMIT: "80Gi"}, True),
        ({LIMIT: "8Gi"}, {}, True),
        ({LIMIT: "8Gi"}, None, True),
        (None, {LIMIT: "8Gi"}, True),
        ({}, {"gpu-memory": "2000"}, True),
        ({"gpu-fraction": "0.5"}, {"gpu-fraction": "1"}, True),
        ({}, {"podgpu.io/on-overrun": "warn"}, True),
    ],
)
def test_changing_a_cap_is_told_from_changing_anything_else(before, after, touched):
    spec = policy("cap-guard", "policies.yaml", "podgpu-caps-stay")
    found = values(spec, object=pod(after), oldObject=pod(before))
    assert found["touched"] is touched


# Those that change nothing of a cap.
BESIDE = {PodKey.MPS, PodKey.RECEIVED_TYPE}


@pytest.mark.parametrize("key", [*(in_full(key, "main", NVIDIA_PREFIX) for key in ContainerKey), *PodKey])
def test_every_key_of_a_cap_is_guarded(key):
    stay = policy("cap-guard", "policies.yaml", "podgpu-caps-stay")
    restricted = policy("cap-guard", "policies.yaml", "podgpu-caps-restricted")
    before, after = pod({str(key): "1"}), pod({str(key): "2"})
    assert values(stay, object=after, oldObject=before)["touched"] is (key not in BESIDE)
    assert values(restricted, object=after)["asks"] is (key not in BESIDE)


def workload(kind, annotations):
    template = {"metadata": {} if annotations is None else {"annotations": annotations}}
    spec = {"template": template}
    return {
        "kind": kind,
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec,
    }


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "ReplicationController", "Job", "CronJob"])
@pytest.mark.parametrize(("annotations", "asks"), [(None, False), ({"a": "b"}, False), ({LIMIT: "8Gi"}, True)])
def test_asking_for_a_cap_is_seen_in_pods_and_templates(kind, annotations, asks):
    spec = policy("cap-guard", "policies.yaml", "podgpu-caps-restricted")
    made = pod(annotations) if kind == "Pod" else workload(kind, annotations)
    assert values(spec, object=made)["asks"] is asks


@pytest.mark.parametrize(
    ("user", "judged"),
    [("alice", True), ("system:serviceaccount:kube-system:job-controller", False), ("system:serviceaccount:a:b", True)],
)
def test_controllers_of_the_cluster_copy_what_was_judged(user, judged):
    spec = policy("cap-guard", "policies.yaml", "podgpu-caps-restricted")
    assert matches(spec, request={"userInfo": {"username": user}}) is judged


def test_all_that_makes_pods_is_judged():
    spec = policy("cap-guard", "policies.yaml", "podgpu-caps-restricted")
    judged = {name for rule in spec["matchConstraints"]["resourceRules"] for name in rule["resources"]}
    workloads = {"deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers"}
    assert judged == {"pods", "jobs", "cronjobs"} | workloads


def test_who_may_is_asked_of_rbac():
    for name in ("podgpu-caps-stay", "podgpu-caps-restricted"):
        (validation,) = policy("cap-guard", "policies.yaml", name)["validations"]
        assert "authorizer.group('podgpu.io').resource('caps')" in validation["expression"]
        assert ".check('set').allowed()" in validation["expression"]


GATE = {"name": "podgpu-gate"}


@pytest.mark.parametrize(
    ("made", "gated"),
    [
        (pod(), False),
        (pod({"podgpu.io/job": "j"}), False),
        (pod({LIMIT: "8Gi"}), True),
        (pod({"gpu-fraction": "0.5"}), True),
        (pod({LIMIT: "8Gi"}, initContainers=[{"name": "fetch"}]), True),
        (pod({LIMIT: "8Gi"}, initContainers=[GATE]), False),
    ],
)
def test_pods_with_caps_are_gated_once(made, gated):
    assert matches(policy("start-gate", "policy.yaml", "podgpu-start-gate"), object=made) is gated


TWO = [{"name": "main"}, {"name": "side"}]


@pytest.mark.parametrize(
    ("made", "capped"),
    [
        (pod({LIMIT: "8Gi"}, containers=TWO), ["main"]),
        (pod({"podgpu.io/container.side.active-thread-percentage": "10"}, containers=TWO), ["side"]),
        (pod({"gpu-fraction": "0.5"}, containers=TWO), ["main"]),
        (pod({"gpu-fraction": "0.5", "gpu-fraction-container-name": "side"}, containers=TWO), ["side"]),
        (
            pod({LIMIT: "8Gi", "gpu-memory": "2000", "gpu-fraction-container-name": "side"}, containers=TWO),
            ["main", "side"],
        ),
        (pod({"nvidia.com/container.mainframe.gpu-memory.limit": "8Gi"}, containers=TWO), []),
    ],
)
def test_the_pipe_is_given_to_the_containers_that_caps_are_about(made, capped):
    assert values(policy("mps-pipe", "policy.yaml", "podgpu-mps-pipe"), object=made)["capped"] == capped


@pytest.mark.parametrize(
    ("mounted", "shared"),
    [
        (None, ["main"]),
        (["/data"], ["main"]),
        (["/data", "/dev/shm"], []),
        (["/dev/shm/"], []),
        (["/dev/shm/x"], ["main"]),
    ],
)
def test_shared_memory_of_a_container_s_own_stays(mounted, shared):
    mounts = {} if mounted is None else {"volumeMounts": [{"name": "v", "mountPath": path} for path in mounted]}
    made = pod({LIMIT: "8Gi"}, containers=[{"name": "main", **mounts}, {"name": "other"}])
    assert values(policy("mps-pipe", "policy.yaml", "podgpu-mps-pipe"), object=made)["shared"] == shared


def test_a_container_that_chooses_its_pipe_keeps_it():
    chosen = [{"name": "main", "env": [{"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/x"}]}]
    spec = policy("mps-pipe", "policy.yaml", "podgpu-mps-pipe")
    assert not matches(spec, object=pod({LIMIT: "8Gi"}, containers=chosen))
    assert matches(spec, object=pod({LIMIT: "8Gi"}, containers=[{"name": "main", "env": [{"name": "A"}]}]))
