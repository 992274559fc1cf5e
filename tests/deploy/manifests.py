"""The manifests as values, and what both the plain ones and the rendered ones are asked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = ROOT / "charts" / "podgpu"
COMPONENTS = sorted(path.parent for path in DEPLOY.glob("components/*/kustomization.yaml"))

Manifest = dict[str, Any]


def load(text: str) -> list[Manifest]:
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


def plain() -> list[Manifest]:
    return load((DEPLOY / "daemonset.yaml").read_text())


def one(manifests: list[Manifest], kind: str, name: str = "") -> Manifest:
    (found,) = (each for each in manifests if each["kind"] == kind and name in ("", each["metadata"]["name"]))
    return found


def pod_spec(manifests: list[Manifest]) -> dict[str, Any]:
    spec: dict[str, Any] = one(manifests, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container(manifests: list[Manifest], name: str) -> dict[str, Any]:
    (found,) = (each for each in pod_spec(manifests)["containers"] if each["name"] == name)
    return dict(found)


def mounts(manifests: list[Manifest], name: str) -> dict[str, dict[str, Any]]:
    """A container's mounts by path, each with what its volume is; /var/run is /run in the image."""
    volumes = {volume["name"]: volume for volume in pod_spec(manifests)["volumes"]}
    return {
        mount["mountPath"].replace("/var/run/", "/run/"): {**mount, "volume": volumes[mount["name"]]}
        for mount in container(manifests, name)["volumeMounts"]
    }


def rights(manifests: list[Manifest], role: str) -> set[tuple[str, str, str]]:
    """What a ClusterRole allows, as (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in one(manifests, "ClusterRole", role)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def texts(value: object) -> Iterator[str]:
    """All texts in a manifest, keys included."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value
