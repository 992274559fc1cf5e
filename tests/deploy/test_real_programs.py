"""The manifests and the chart, by the programs that a cluster's owner will use on them."""

import json
import subprocess

import jsonschema
import pytest
import yaml

from tests.deploy.conftest import NAMES, program, run
from tests.deploy.manifests import CHART, ROOT, container, load, mounts, one, plain, pod_spec, rights
from tools.debian_packages import find

pytestmark = pytest.mark.deploy

VERSIONS = ("1.30", "1.34", "1.37")  # the oldest that every component is for, one in use, the newest
OURS = "monitoring.coreos.com/v1"
MUTATING = "MutatingAdmissionPolicy"
EVERYTHING = {
    "enforcer": {"enabled": True},
    "exporter": {"readEnvironments": True},
    "podMonitor": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "admission": {"capGuard": True, "startGate": True, "mpsPipe": True},
    "policy": "defaults: {}\n",
    "webConfigSecret": "podgpu-web",
    "mpsHostDirectories": ["/tmp/nvidia-mps", "/run/nvidia-mps", "/run/gpu-fractioning/map"],
}
ON_GKE = {"driverDirectory": "/home/kubernetes/bin/nvidia", "runtimeClassName": ""}
# A component and the values that say the same.
SAME = {
    "enforcer": {"enforcer": {"enabled": True}},
    "environments": {"exporter": {"readEnvironments": True}},
    "pods-api": {"podsSource": "kubelet"},
    "default-runtime": {"runtimeClassName": ""},
    "gke": ON_GKE,
    "mps-on-host": {"mpsHostDirectories": ["/tmp/nvidia-mps", "/run/nvidia-mps", "/run/gpu-fractioning/map"]},
    "podmonitor": {"podMonitor": {"enabled": True}},
    "servicemonitor": {"serviceMonitor": {"enabled": True}},
    "prometheusrule": {"prometheusRule": {"enabled": True}},
    "dashboards": {"dashboards": {"enabled": True}},
    "networkpolicy": {"networkPolicy": {"enabled": True}},
    "cap-guard": {"admission": {"capGuard": True}},
    "start-gate": {"admission": {"startGate": True}},
    "mps-pipe": {"admission": {"mpsPipe": True}},
    "policy": {"policy": (ROOT / "deploy/components/policy/policy.yaml").read_text()},
}
OF_HELM = ("app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart")


def normal(manifests):
    """Manifests without what only one has: the namespace, Helm's labels, orders and names that say nothing."""
    found = {}
    for manifest in manifests:
        if manifest["kind"] == "Namespace":
            continue
        manifest = json.loads(json.dumps(manifest))
        for label in OF_HELM:
            manifest["metadata"]["labels"].pop(label, None)
        if manifest["kind"] == "DaemonSet":
            spec = manifest["spec"]["template"]["spec"]
            kinds = {volume["name"]: volume | {"name": ""} for volume in spec.pop("volumes")}
            assert kinds.keys() == {mount["name"] for each in spec["containers"] for mount in each["volumeMounts"]}
            spec["containers"].sort(key=lambda each: each["name"])
            for each in spec["containers"]:
                each["env"].sort(key=lambda variable: variable["name"])
                for mount in each["volumeMounts"]:
                    mount["name"] = kinds[mount["name"]]
                    mount["mountPath"] = mount["mountPath"].replace("/var/run/", "/run/")
                each["volumeMounts"].sort(key=lambda mount: mount["mountPath"])
        if manifest["kind"] == "ConfigMap":
            manifest["data"] = {name: content.strip() for name, content in manifest["data"].items()}
        found[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return found


def own_kinds(manifests):
    return [manifest for manifest in manifests if manifest["apiVersion"] != OURS]


def test_the_chart_s_defaults_are_the_plain_manifest(helm):
    assert normal(helm()) == normal(plain())


def test_the_kustomization_alone_is_the_plain_manifest(kustomize):
    assert normal(kustomize()) == normal(plain())


def test_every_component_has_its_value():
    assert sorted(SAME) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_component_and_its_value_say_the_same(kustomize, helm, name):
    assert normal(kustomize(name)) == normal(helm(**SAME[name]))


@pytest.mark.parametrize("name", ["policy", "mps-on-host", "gke"])
def test_what_the_exporter_gets_the_enforcer_gets_too(kustomize, helm, name):
    built = kustomize("enforcer", name, f"enforcer/{name}")
    assert normal(built) == normal(helm(**SAME["enforcer"], **SAME[name]))


def test_a_managed_daemon_is_not_ended_by_an_upgrade_or_a_limit(kustomize, helm, validate):
    built = kustomize("enforcer", "enforcer/mps-managed")
    assert normal(built) == normal(helm(enforcer={"enabled": True, "mps": "managed"}))
    assert one(built, "DaemonSet")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert "limits" not in container(built, "enforcer")["resources"]
    assert "/dev/shm" in mounts(built, "enforcer")
    validate(built, version="1.37")


@pytest.mark.parametrize("version", ["1.28", *VERSIONS])
def test_the_plain_manifest_has_no_field_that_the_api_does_not_know(validate, version):
    validate(plain(), version=version)


@pytest.mark.parametrize("name", NAMES)
def test_each_component_has_no_unknown_field(kustomize, validate, name):
    built = own_kinds(kustomize(name))
    mutating = any(manifest["kind"] == MUTATING for manifest in built)
    for version in ("1.36", "1.37") if mutating else VERSIONS:
        validate(built, version=version)


@pytest.mark.parametrize("values", [{}, EVERYTHING, {**EVERYTHING, **ON_GKE}, {"podsSource": "kubelet"}])
def test_the_rendered_chart_has_no_unknown_field(helm, validate, values):
    rendered = own_kinds(helm(**values))
    assert rendered
    validate(rendered, version="1.37")


def test_a_misspelt_field_is_found(validate):
    wrong = plain()
    one(wrong, "DaemonSet")["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(AssertionError, match="hostPid"):
        validate(wrong, version="1.37")


def test_helm_lints_the_chart():
    said = run(program("helm"), "lint", "--strict", str(CHART))
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize(
    ("values", "about"),
    [
        ({"image": {"tga": "1"}}, "tga"),
        ({"enforcer": {"mode": "on"}}, "enforcer/mode"),
        ({"kubeletDirectory": "relative"}, "kubeletDirectory"),
        ({"podMonitor": {"interval": "often"}}, "interval"),
        ({"mpsHostDirectories": ["/tmp/nvidia-mps", "/tmp/nvidia-mps"]}, "mpsHostDirectories"),
    ],
)
def test_values_that_make_no_sense_are_refused(helm, values, about):
    with pytest.raises(AssertionError, match=about):
        helm(**values)


def test_each_value_is_in_the_schema_and_each_of_the_schema_has_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def same(value, schema, path):
        if schema.get("additionalProperties") is not False:
            return
        known = schema["properties"].keys() - {"global"}
        assert value.keys() == known, path
        for name, inner in value.items():
            same(inner, schema["properties"][name], f"{path}/{name}")

    same(values, schema, "")


def test_the_notes_tell_the_next_step_and_warn_of_gates_without_an_enforcer():
    def notes(*flags):
        command = ("install", "podgpu", str(CHART), "--namespace", "podgpu", "--dry-run=client", *flags)
        return run(program("helm"), *command).partition("NOTES:")[2]

    assert "podgpu doctor" in notes()
    assert "WARNING" not in notes()
    assert "WARNING" in notes("--set", "admission.startGate=true")


def test_the_chart_in_one_file_renders_the_same(helm, tmp_path):
    run(program("helm"), "package", str(CHART), "--destination", str(tmp_path))
    (archive,) = tmp_path.glob("*.tgz")
    flags = ["--namespace", "podgpu", "--set", "dashboards.enabled=true", "--set", "admission.capGuard=true"]
    packed = load(run(program("helm"), "template", "podgpu", str(archive), *flags))
    assert normal(packed) == normal(helm(dashboards={"enabled": True}, admission={"capGuard": True}))


@pytest.mark.parametrize("values", [{}, EVERYTHING, {**EVERYTHING, **ON_GKE}])
def test_no_rendering_requests_a_gpu_or_names_another_image(helm, values):
    for each in pod_spec(helm(**values))["containers"]:
        assert each["image"] == "ghcr.io/podgpu/podgpu:0.1.0"
        for amounts in each["resources"].values():
            assert amounts.keys() <= {"cpu", "memory"}


def test_another_image_is_used_everywhere(helm):
    digest = "@sha256:" + "a" * 64
    rendered = helm(**{**EVERYTHING, "image": {"repository": "registry.example/gpu/podgpu", "tag": digest}})
    text = yaml.safe_dump_all(rendered)
    assert "ghcr.io" not in text
    assert text.count(f"registry.example/gpu/podgpu{digest}") == 3  # exporter, enforcer, gate


def test_without_the_api_server_there_is_neither_role_nor_token(kustomize, helm):
    for built in (kustomize("pods-api"), helm(podsSource="kubelet")):
        assert not [each for each in built if each["kind"].startswith("ClusterRole")]
        assert "serviceAccountToken" not in yaml.safe_dump_all(built)


@pytest.mark.parametrize("order", [("enforcer", "pods-api"), ("pods-api", "enforcer")])
def test_of_both_only_the_enforcer_has_a_token(kustomize, helm, order):
    built = kustomize(*order)
    assert normal(built) == normal(helm(podsSource="kubelet", **SAME["enforcer"]))
    with_token = [
        each["name"]
        for each in pod_spec(built)["containers"]
        if any("serviceaccount" in mount["mountPath"] for mount in each["volumeMounts"])
    ]
    assert with_token == ["enforcer"]


def test_another_kubelet_directory_is_mounted_and_named(helm):
    rendered = helm(kubeletDirectory="/var/lib/k0s/kubelet")
    assert "/var/lib/k0s/kubelet/pod-resources" in mounts(rendered, "exporter")
    variables = {each["name"]: each.get("value") for each in container(rendered, "exporter")["env"]}
    assert variables["PODGPU_KUBELET_SOCKET"] == "/var/lib/k0s/kubelet/pod-resources/kubelet.sock"


def test_the_enforcer_is_off_until_it_is_asked_for_and_then_only_looks(helm, kustomize):
    assert [each["name"] for each in pod_spec(helm())["containers"]] == ["exporter"]
    built = kustomize("enforcer")
    assert "--mode=audit" in container(built, "enforcer")["args"]
    assert {path for path, mount in mounts(built, "enforcer").items() if not mount.get("readOnly")} == {
        "/run/nvidia/mps",
        "/var/lib/kubelet/plugins/gpu.nvidia.com/mps",
        "/run/podgpu",
    }
    assert all(mount["readOnly"] for mount in mounts(built, "exporter").values())
    assert rights(built, "podgpu-exporter") == rights(plain(), "podgpu-exporter")


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor", "PrometheusRule"])
def test_prometheus_operator_s_objects_have_fields_that_it_knows(kustomize, helm, kind):
    schema = json.loads((ROOT / f"tests/deploy/schema/{kind.lower()}.schema.json").read_text())
    for manifests in (kustomize(kind.lower()), helm(**EVERYTHING)):
        jsonschema.validate(one(manifests, kind), schema)


def test_a_misspelt_field_of_prometheus_operator_is_found(kustomize):
    monitor = one(kustomize("podmonitor"), "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["honourLabels"] = True
    schema = json.loads((ROOT / "tests/deploy/schema/podmonitor.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError, match="honourLabels"):
        jsonschema.validate(monitor, schema)


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors_keep_the_workload_s_labels_and_name_the_node(kustomize, kind):
    spec = one(kustomize(kind.lower()), kind)["spec"]
    for endpoint in spec.get("podMetricsEndpoints") or spec["endpoints"]:
        assert endpoint["honorLabels"] is True
        sources = {tuple(each.get("sourceLabels", ())): each["targetLabel"] for each in endpoint["relabelings"]}
        assert sources["__meta_kubernetes_pod_node_name",] == "node"


def test_promtool_takes_the_rules_out_of_the_object(kustomize, helm, tmp_path):
    promtool = find("promtool")
    assert promtool is not None, "promtool is missing; `make tools` fetches it"
    runbooks = {"prometheusRule": {"enabled": True, "runbookUrl": "https://wiki.example/gpu/"}}
    for number, manifests in enumerate((kustomize("prometheusrule"), helm(**runbooks))):
        path = tmp_path / f"{number}.yaml"
        path.write_text(yaml.safe_dump(one(manifests, "PrometheusRule")["spec"]))
        run(str(promtool), "check", "rules", str(path))
    assert "podgpu.example" not in path.read_text()
    assert "https://wiki.example/gpu/Podgpu" in path.read_text()


def test_the_dockerfile_is_linted():
    run(program("hadolint"), "--failure-threshold", "info", str(ROOT / "Dockerfile"))


def test_the_linter_works(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN apt-get install gcc\n")
    done = subprocess.run([program("hadolint"), str(tmp_path / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode != 0
    assert "DL3006" in done.stdout
