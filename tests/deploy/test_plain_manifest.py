"""deploy/daemonset.yaml against the code: it mounts what is read, opens what is served, and asks for nothing else."""

import re

import yaml

import podresources
from exporter.metrics.catalog import FAMILIES
from exporter.settings import DEFAULT_PIPE_DIRECTORIES, settings
from exporter.web.application import HEALTHY_PATH, READY_PATH
from tests.deploy.manifests import COMPONENTS, DEPLOY, ROOT, container, mounts, one, plain, pod_spec, texts

DEFAULTS = settings([], {})
# What a pipe directory's pattern needs to be seen: the folder before the first wildcard.
PIPES = {re.split(r"/[^/]*[*?\[]", pattern)[0] for pattern in DEFAULT_PIPE_DIRECTORIES}
NOT_ON_KUBERNETES = {"/run/mps-ecs"}  # ECS runs no DaemonSet of ours; the path is for podgpu beside its agent


def component(name):
    return yaml.safe_load((DEPLOY / "components" / name / "kustomization.yaml").read_text())


def patched_mounts(name):
    patches = [yaml.safe_load(each["patch"]) for each in component(name)["patches"] if "patch" in each]
    spec = next(each for each in patches if isinstance(each, dict))["spec"]["template"]["spec"]
    return {mount["mountPath"].replace("/var/run/", "/run/") for mount in spec["containers"][0]["volumeMounts"]}


def within(path, folders):
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def test_every_path_that_is_read_by_default_is_mounted():
    read = {
        podresources.KNOWN_SOCKETS[0],
        DEFAULTS.kubelet_pods_socket,
        f"{DEFAULTS.logs}/containers",
        f"{DEFAULTS.sysfs}/fs/cgroup",
        DEFAULTS.service_account.replace("/var/run/", "/run/"),
        *(PIPES - NOT_ON_KUBERNETES),
        DEFAULTS.fractioning_map.replace("/var/run/", "/run/"),
    }
    here = mounts(plain(), "exporter").keys() | patched_mounts("mps-on-host")
    assert [path for path in sorted(read) if not within(path, here)] == []


def test_nothing_is_mounted_that_is_not_read():
    read = {
        *(socket.rpartition("/")[0] for socket in (podresources.KNOWN_SOCKETS[0], DEFAULTS.kubelet_pods_socket)),
        f"{DEFAULTS.logs}/containers",
        f"{DEFAULTS.sysfs}/fs/cgroup",
        DEFAULTS.service_account.replace("/var/run/", "/run/"),
        "/run/podgpu",
        *PIPES,
    }
    assert mounts(plain(), "exporter").keys() <= read


def test_the_exporter_writes_to_nothing():
    assert all(mount["readOnly"] for mount in mounts(plain(), "exporter").values())
    assert container(plain(), "exporter")["securityContext"]["readOnlyRootFilesystem"]


def test_the_driver_sees_control_groups_where_the_host_has_them():
    mount = mounts(plain(), "exporter")["/sys/fs/cgroup"]
    assert mount["volume"]["hostPath"] == {"path": "/sys/fs/cgroup", "type": "Directory"}


def test_mounts_of_the_host_have_the_host_s_paths():
    for path, mount in mounts(plain(), "exporter").items():
        if "hostPath" in mount["volume"]:
            assert mount["volume"]["hostPath"]["path"] == path


def test_ports_and_probes_are_those_of_the_program():
    (port,) = container(plain(), "exporter")["ports"]
    assert [f":{port['containerPort']}"] == list(DEFAULTS.listen_addresses)
    (service,) = one(plain(), "Service")["spec"]["ports"]
    assert (service["port"], service["targetPort"]) == (port["containerPort"], port["name"])
    assert container(plain(), "exporter")["livenessProbe"]["httpGet"] == {"path": HEALTHY_PATH, "port": port["name"]}
    assert container(plain(), "exporter")["readinessProbe"]["httpGet"] == {"path": READY_PATH, "port": port["name"]}


def test_variables_are_flags_and_have_values_that_can_be_used():
    variables = {each["name"]: each.get("value", "some-node") for each in container(plain(), "exporter")["env"]}
    ours = {name: value for name, value in variables.items() if name.startswith("PODGPU_")}
    assert settings([], ours).node_name == "some-node"
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert "utility" in variables["NVIDIA_DRIVER_CAPABILITIES"].split(",")


def test_no_gpu_is_requested():
    for each in pod_spec(plain())["containers"]:
        for amounts in each["resources"].values():
            assert amounts.keys() <= {"cpu", "memory"}


def test_no_capability_and_no_privilege():
    context = container(plain(), "exporter")["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "privileged" not in context
    spec = pod_spec(plain())
    assert spec["hostPID"] is True
    assert not spec.get("hostNetwork")
    assert not spec.get("hostIPC")


def test_memory_is_bounded_with_room_and_cpu_is_not():
    resources = container(plain(), "exporter")["resources"]
    assert "cpu" not in resources["limits"]
    measured = float(re.search(r"after 10,000 cycles [^|]*\|[^|]*\| ([\d.]+) MiB", (ROOT / "README.md").read_text())[1])
    limit, request = (int(resources[kind]["memory"].removesuffix("Mi")) for kind in ("limits", "requests"))
    assert limit >= 3 * measured
    assert request >= measured


def test_selectors_find_the_pods():
    daemonset = one(plain(), "DaemonSet")
    labels = daemonset["spec"]["template"]["metadata"]["labels"]
    assert daemonset["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert one(plain(), "Service")["spec"]["selector"].items() <= labels.items()


def test_everything_namespaced_is_in_the_one_namespace_that_is_made():
    namespace = one(plain(), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    cluster = {"Namespace", "ClusterRole", "ClusterRoleBinding"}
    for manifest in plain():
        if manifest["kind"] not in cluster:
            assert manifest["metadata"]["namespace"] == namespace["metadata"]["name"]


def test_the_image_is_the_same_everywhere_and_has_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    files = [*DEPLOY.rglob("*.yaml")]
    images = {text for path in files for text in re.findall(r"ghcr\.io/podgpu/podgpu:[\w.-]+", path.read_text())}
    assert images == {f"ghcr.io/podgpu/podgpu:{version}"}
    chart = yaml.safe_load((ROOT / "charts/podgpu/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_each_component_is_offered_by_the_kustomization():
    offered = set(re.findall(r"components/([a-z-]+) ", (DEPLOY / "kustomization.yaml").read_text()))
    # servicemonitor stands in podmonitor's line: one of the two
    assert offered | {"servicemonitor"} == {path.name for path in COMPONENTS}


def test_metrics_that_are_named_exist():
    """Those of dashboards and rules are tested at their origin."""
    paths = [path for path in DEPLOY.rglob("*.yaml") if path.parent.name not in ("dashboards", "prometheusrule")]
    named = {name for path in paths for name in re.findall(r"podgpu_[a-z_]+(?=[{ ,.\n])", path.read_text())}
    assert named
    assert named <= {family.name for family in FAMILIES}


def test_nothing_points_at_a_host_s_socket_that_could_do_harm():
    forbidden = ("docker.sock", "containerd.sock", "crio.sock")
    assert not [text for manifest in plain() for text in texts(manifest) if text.endswith(forbidden)]
