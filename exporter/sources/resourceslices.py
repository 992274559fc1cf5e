"""Which GPU a claim's device is: this node's ResourceSlices, from the API server.

Under dynamic resource allocation (DRA) the kubelet tells a device only by driver, pool and name. What GPU or MIG device
that is stands in the ResourceSlices that NVIDIA's DRA driver publishes, and nowhere else on the node.

Guarantees: never asked by itself, so that a node without claims does not contact the API server; in steady state one
request a minute, and one more when a claim names a device that the last answer did not have, once per such device for
as long as the answers stay the same; a failure is kept until a request succeeds, so an old answer is never given out as
a present one. After a failure requests become rarer, at random times, and as rare as the server asks for.

It will not watch, and it will not guess what a device is that no slice describes.
"""

import json
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote

from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import DRA_DRIVER, DraAttributes, DraDevice, DraType, Reading, SliceReading
from exporter.sources.apiserver import Answer, refusal

SOURCE = "resourceslices"
EVERY = 60.0  # seconds; slices change when GPUs are partitioned anew or break
EARLIEST = 5.0  # seconds between two requests, however many claims name devices that are not there
LONGEST_PAUSE = 600.0  # seconds; a server that asks for more is asked again after this
RIGHT = "the rule apiGroups: [resource.k8s.io], resources: [resourceslices], verbs: [list]"

# From Kubernetes 1.34, 1.33 and 1.32 on. Later versions drop the older ones.
_VERSIONS = ("v1", "v1beta2", "v1beta1")


class _Api(Protocol):
    def get(self, path: str) -> Answer | Failure:
        """GET a path with its query."""


class ResourceSlices:
    """Reads the slices of one node. `chance` gives numbers from 0 to 1 that spread the requests of many nodes."""

    def __init__(self, api: _Api, *, node: str, clock: Clock, chance: Callable[[], float] = random.random) -> None:
        self._api = api
        self._node = node
        self._clock = clock
        self._chance = chance
        self._outcome: SliceReading | Failure = Failure(Reason.MISSING, "not read yet")
        self._due = self._early = clock.monotonic()
        self._failures = 0
        self._version = _VERSIONS[0]
        self._from_cache = True
        self._missing: frozenset[DraDevice] = frozenset()  # claimed, and not in the present answer

    def read(self, claimed: Collection[DraDevice]) -> Reading[SliceReading]:
        """The node's devices. `claimed` are those that the kubelet's claims name."""
        start = self._clock.monotonic()
        if start >= self._due or (start >= self._early and self._lacks(claimed)):
            self._ask(claimed)
        return Reading(SOURCE, self._outcome, self._clock.monotonic() - start)

    def _lacks(self, claimed: Collection[DraDevice]) -> bool:
        """Whether a claim names a device that the present answer lacks and was not asked for yet."""
        if isinstance(self._outcome, Failure):
            return False
        devices = self._outcome.devices
        return any(device not in devices and device not in self._missing for device in claimed)

    def _ask(self, claimed: Collection[DraDevice]) -> None:
        """Make the request, and plan the next one."""
        outcome, pause = self._request()
        if isinstance(outcome, Failure):
            pause = max(pause, min(EVERY, 2.0**self._failures))
            self._failures += self._failures < 10
        else:
            pause = EVERY
            self._failures = 0
            if outcome != self._outcome:
                self._missing = frozenset()
            self._missing |= frozenset(claimed) - outcome.devices.keys()
        self._outcome = outcome
        now = self._clock.monotonic()
        self._due = now + pause * (1 + self._chance() / 4)
        self._early = now + EARLIEST * (1 + self._chance())

    def _request(self) -> tuple[SliceReading | Failure, float]:
        """What the server has, and for how many seconds it wants to be left alone."""
        if not self._node:
            return Failure(
                Reason.MISSING, "the node's name is not known: set PODGPU_NODE_NAME from spec.nodeName"
            ), EVERY
        # Version 0 is answered from the server's memory instead of its database.
        cached = "&resourceVersion=0" if self._from_cache else ""
        query = f"fieldSelector=spec.nodeName%3D{quote(self._node, safe='')}{cached}"
        for version in dict.fromkeys((self._version, *_VERSIONS)):
            answer = self._api.get(f"/apis/resource.k8s.io/{version}/resourceslices?{query}")
            if isinstance(answer, Failure):
                return answer, 0.0
            if answer.status == 404:
                continue
            self._from_cache = answer.status != 410  # "gone": its memory does not have what was asked for
            if answer.status != 200:
                pause = min(answer.retry_after or 0.0, LONGEST_PAUSE)
                return refusal(answer, right=RIGHT), max(pause, EVERY if answer.status == 403 else 0.0)
            self._version = version
            return parse(answer.body, node=self._node), 0.0
        return Failure(Reason.NOT_SUPPORTED, "the API server has no ResourceSlices, of any version we know"), EVERY


def parse(body: bytes, *, node: str) -> SliceReading | Failure:
    """The devices of NVIDIA's driver on a node, from a ResourceSliceList of any version.

    Of a pool that is being published anew there are slices of two generations; the older ones are over. A device that
    is described twice, and differently, is left out, as is one without a type that we know.
    """
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, dict) or listed.get("kind") != "ResourceSliceList":
        return Failure(Reason.MALFORMED, "the API server's answer is no ResourceSliceList")
    specs = [_mapping(_mapping(item).get("spec")) for item in _list(listed.get("items"))]
    specs = [spec for spec in specs if spec.get("driver") == DRA_DRIVER and spec.get("nodeName") == node]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = _pool(spec)
        newest[pool] = max(_generation(spec), newest.get(pool, 0))
    found: dict[DraDevice, DraAttributes | None] = {}
    for spec in specs:
        if _generation(spec) == newest[_pool(spec)]:
            for name, attributes in _devices(spec):
                key = DraDevice(DRA_DRIVER, _pool(spec), name)
                found[key] = attributes if found.get(key, attributes) == attributes else None
    return SliceReading(MappingProxyType({key: device for key, device in sorted(found.items()) if device is not None}))


def _pool(spec: Mapping[str, Any]) -> str:
    return str(_mapping(spec.get("pool")).get("name", ""))


def _generation(spec: Mapping[str, Any]) -> int:
    generation = _mapping(spec.get("pool")).get("generation")
    return generation if isinstance(generation, int) else 0


def _devices(spec: Mapping[str, Any]) -> Iterator[tuple[str, DraAttributes]]:
    """Name and attributes of each device of a slice. One without devices has the counters that others share."""
    for device in _list(spec.get("devices")):
        entry = _mapping(device)
        attributes = _mapping(entry.get("attributes")) or _mapping(_mapping(entry.get("basic")).get("attributes"))
        try:
            kind = DraType(_text(attributes, "type"))
        except ValueError:
            continue
        yield (
            str(entry.get("name", "")),
            DraAttributes(
                kind,
                uuid=_text(attributes, "uuid"),
                parent_uuid=_text(attributes, "parentUUID"),
                profile=_text(attributes, "profile"),
            ),
        )


def _text(attributes: Mapping[str, Any], name: str) -> str:
    """An attribute that is a text. A name without a domain stands in the driver's own."""
    value = _mapping(attributes.get(name) or attributes.get(f"{DRA_DRIVER}/{name}")).get("string")
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
