"""What the kernel's dmem controller says in its files: `dmem.capacity`, `dmem.current`, `dmem.max`, `dmem.min`.

Each line of these files is a region of device memory and a number of bytes, or `max`. Every driver that registers
memory has lines there, in an order that means nothing, so a GPU is found by its key alone.

Guarantees: reading never raises, whatever the text; lines of other drivers, and lines that make no sense, are left out.
"""

import re

from exporter.model import Backend, CgroupMemory

EVERYTHING = 2**64 - 1  # bytes; what `max` is as a number

_CAPACITY = re.compile(rb"^(nvidia/[0-9a-f]{8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/vidmem) [0-9]+$", re.MULTILINE)
_BUS_ID = re.compile(r"([0-9a-f]{4}|[0-9a-f]{8})(:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


def region(pci_bus_id: str) -> str | None:
    """The key of a GPU's memory, from the bus id that NVML tells (domain of 8 or 4 digits). None: it is no bus id."""
    match = _BUS_ID.fullmatch(pci_bus_id.lower())
    return None if match is None else f"nvidia/{match[1]:0>8}{match[2]}/vidmem"


def regions(capacity: bytes) -> frozenset[str]:
    """The GPUs whose memory the kernel counts, from `dmem.capacity`."""
    return frozenset(key.decode() for key in _CAPACITY.findall(capacity))


def amount(text: bytes, key: str) -> int | None:
    """The bytes of one region in a dmem file; EVERYTHING for `max`. None: it has no line that makes sense."""
    mark = b"\n%b " % key.encode()
    lines = b"\n" + text
    at = lines.find(mark)
    if at < 0:
        return None
    value, _, _ = lines[at + len(mark) :].partition(b"\n")
    if value == b"max":
        return EVERYTHING
    number = int(value) if value.isdigit() and len(value) <= 20 else EVERYTHING + 1
    return number if number <= EVERYTHING else None


def memory(key: str, *, current: bytes, hard: bytes, soft: bytes) -> CgroupMemory | None:
    """A cgroup's memory in one region, from its `dmem.current`, `dmem.max` and `dmem.min`.

    None where one of the three does not have it: it was registered, or taken away, between two reads. What is charged
    is never `max`.
    """
    charged, limit, reserve = amount(current, key), amount(hard, key), amount(soft, key)
    if charged is None or charged == EVERYTHING or limit is None or reserve is None:
        return None
    return CgroupMemory(Backend.DMEM, charged, None if limit == EVERYTHING else limit, soft=reserve)
