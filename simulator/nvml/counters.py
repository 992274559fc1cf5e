"""Reads the call counters of the simulated NVML library.

The library counts into the file named by `PODGPU_SIM_NVML_COUNTERS` while its process runs, so a test sees how many
driver calls a cycle made, and that a call has been entered which has not yet returned. Calls from before the first
`nvmlInit` are not counted. Nothing here writes: to count from zero, use a new file.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = "PODGPU_SIM_NVML_COUNTERS"

_GPUS = 64
_RECORD = struct.Struct(f"=64sQ{_GPUS}Q")


@dataclass(frozen=True, slots=True)
class Calls:
    """How often one symbol was called. Calls on a MIG device count for its GPU; GPUs never called are left out."""

    total: int
    by_gpu: Mapping[int, int]


def read(path: Path) -> dict[str, Calls]:
    """Calls by symbol; symbols never called are left out. Empty while no process has started to count."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    calls = {}
    for name, total, *by_gpu in _RECORD.iter_unpack(content):
        if total:
            symbol = name.rstrip(b"\0").decode()
            calls[symbol] = Calls(total, {gpu: count for gpu, count in enumerate(by_gpu) if count})
    return calls
