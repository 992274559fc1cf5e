"""The ResourceSlices of a simulated API server, as each version of resource.k8s.io has them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from simulator.apiwrites import Answer, status

_RESOURCES = "/apis/resource.k8s.io/"
_PATHS = tuple(f"{_RESOURCES}{version}/resourceslices" for version in ("v1", "v1beta2", "v1beta1"))


def answer(
    path: str, query: Mapping[str, Sequence[str]], *, items: list[dict[str, Any]], versions: Collection[str]
) -> Answer:
    """The list of ResourceSlices, of one version, of one node or of all; 404 for any other path."""
    version = path.removeprefix(_RESOURCES).removesuffix("/resourceslices")
    if path not in _PATHS or version not in versions:
        return status(404, "the server could not find the requested resource")
    for selector in query.get("fieldSelector", []):
        field, _, value = selector.partition("=")
        if field != "spec.nodeName":
            return status(400, f"field label not supported: {field}")
        items = [item for item in items if item["spec"].get("nodeName") == value]
    if version == "v1beta1":
        items = [_with_basic(item) for item in items]
    return 200, {
        "kind": "ResourceSliceList",
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"resourceVersion": "1"},
        "items": items,
    }


def _with_basic(item: dict[str, Any]) -> dict[str, Any]:
    """A slice as v1beta1 has it: what describes a device stands one level deeper."""
    devices = [
        {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}
        for device in item["spec"].get("devices", [])
    ]
    return {**item, "spec": {**item["spec"], "devices": devices}}
