"""What the kernel's dmem controller says in its files: `dmem.capacity`, `dmem.current`, `dmem.max`, `dmem.min`.

Each line of these files is a region of device memory and a number of bytes, or `max`. Every driver that registers
memory has lines there, in an order that means nothing, so a GPU is found by its key alone.

Guarantees: reading never raises, whatever the text; lines of other drivers, and lines that make no sense, are left out.
"""

import re
from collections.abc import Mapping

from exporter.model import Backend, CgroupMemory

EVERYTHING = 2**64 - 1  # bytes; `max` where a number is called for

_REGION = re.compile(rb"(nvidia/[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/vidmem) (max|[0-9]{1,20})")
_BUS_ID = re.compile(r"([0-9a-f]{4}|[0-9a-f]{8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def region(pci_bus_id: str) -> str | None:
    """The key of a GPU's memory, from the bus id that NVML tells (domain of 8 or 4 digits). None: it is no bus id."""
    match = _BUS_ID.fullmatch(pci_bus_id.lower())
    return None if match is None else f"nvidia/{match[1]:0>8}{match[2]}/vidmem"


def parse(text: bytes) -> dict[str, int | None]:
    """NVIDIA's regions in a dmem file and their bytes; None is `max`."""
    found: dict[str, int | None] = {}
    for line in text.split(b"\n"):
        match = _REGION.fullmatch(line)
        if match is not None and (match[2] == b"max" or int(match[2]) <= EVERYTHING):
            found[match[1].decode()] = None if match[2] == b"max" else int(match[2])
    return found


def memory(*, current: bytes, hard: bytes, soft: bytes) -> Mapping[str, CgroupMemory]:
    """A cgroup's memory by region, from its `dmem.current`, `dmem.max` and `dmem.min`.

    A region that is not in all three is left out: it was registered, or taken away, between two reads.
    """
    charges, limits, reserves = parse(current), parse(hard), parse(soft)
    found = {}
    for key in charges.keys() & limits.keys() & reserves.keys():
        charged, reserve = charges[key], reserves[key]
        if charged is not None:
            found[key] = CgroupMemory(
                Backend.DMEM, charged, limits[key], soft=EVERYTHING if reserve is None else reserve
            )
    return found
