"""The enforcer's container, gate and doors against the enforcer: flags, port, paths, names."""

import json

import pytest
import yaml

from enforcer.mechanisms.doors import DOORS
from enforcer.receipt import RECEIPTS
from enforcer.settings import OWN_FLAGS, PORT, settings
from enforcer.wanted import GATE
from exporter.web.application import HEALTHY_PATH, READY_PATH
from tests.deploy.manifests import CHART, DEPLOY, load, one

COMPONENT = DEPLOY / "components" / "enforcer"


@pytest.fixture
def container():
    manifest = yaml.safe_load((COMPONENT / "container.yaml").read_text())
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    return found


@pytest.fixture
def chosen(container):
    variables = {each["name"]: each.get("value", "some-node") for each in container["env"]}
    assert container["args"][0] == "enforcer"
    return settings(container["args"][1:], variables)


def test_it_begins_by_looking_only(chosen):
    assert (chosen.mode, chosen.mps) == ("audit", "found")
    assert chosen.node.node_name == "some-node"


def test_the_port_and_the_probes_are_those_of_the_program(container):
    (port,) = container["ports"]
    assert port["containerPort"] == PORT
    assert container["livenessProbe"]["httpGet"] == {"path": HEALTHY_PATH, "port": port["name"]}
    assert container["readinessProbe"]["httpGet"] == {"path": READY_PATH, "port": port["name"]}


def test_what_it_writes_is_mounted_for_writing_and_nothing_else_of_its_own(container, chosen):
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    for path in (chosen.state, chosen.receipts, chosen.managed_directory):
        assert path.startswith("/run/podgpu/")
    pipes = {"/run/nvidia/mps", "/var/lib/kubelet/plugins/gpu.nvidia.com/mps"}
    assert writable == {"/run/podgpu", *pipes}


def test_the_chart_knows_the_same_words():
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["enforcer"]["properties"]
    for name in ("mode", "mps"):
        (flag,) = (flag for flag in OWN_FLAGS if flag.name == name)
        for word in schema[name]["enum"]:
            assert flag.parse(word) == word
        assert yaml.safe_load((CHART / "values.yaml").read_text())["enforcer"][name] == flag.default


def mutation(component):
    policy = one(load((DEPLOY / "components" / component / "policy.yaml").read_text()), "MutatingAdmissionPolicy")
    return "\n".join(
        (each.get("applyConfiguration") or each["jsonPatch"])["expression"] for each in policy["spec"]["mutations"]
    )


def test_the_gate_waits_where_receipts_are_written():
    text = mutation("start-gate")
    assert text.count(f'"{RECEIPTS}"') == 2  # on the host, and in the pod
    assert 'args: ["gate"]' in text
    assert 'name: "PODGPU_POD_UID"' in text
    assert f'name: "{GATE}"' in text


def test_the_door_is_the_container_s_own(chosen):
    text = mutation("mps-pipe")
    assert f'path: "{chosen.managed_directory}"' in text
    assert f'"{DOORS}/$(PODGPU_POD_UID)/" + name' in text
