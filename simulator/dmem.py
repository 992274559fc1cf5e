"""The dmem controller of a cgroup v2 tree of files: capacity, charges and limits of each region of device memory.

Charges are summed up the tree, as the kernel does. A driver of another vendor has a region too, and its line comes
first, so that who reads by line reads the wrong one. Limits hold what was written to them, by this module or by the
driver library; nothing is enforced, and a new cgroup starts without any.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

FOREIGN = "drm/0000:c3:00.0/vram0"
_FOREIGN_CAPACITY = 512 << 20
_FOREIGN_CHARGE = 96 << 20  # a display server's, charged to the root


def region(pci_bus_id: str) -> str:
    """The key of a GPU's memory."""
    return f"nvidia/{pci_bus_id.lower()}/vidmem"


class Dmem:
    """The controller's files in the tree at `root`. `regions` are the GPUs that the kernel counts, with their bytes."""

    def __init__(self, root: Path, regions: Mapping[str, int]) -> None:
        self._root = root
        self._regions = (FOREIGN, *regions)
        self._current: dict[Path, str] = {root: ""}  # what was last written
        _write(root / "dmem.capacity", self._text({FOREIGN: _FOREIGN_CAPACITY, **regions}))
        self.charge({})

    def enable(self, folder: Path) -> None:
        """Give a new cgroup its files."""
        self._current[folder] = ""
        for name, value in (("current", 0), ("low", 0), ("min", 0), ("max", None)):
            _write(folder / f"dmem.{name}", self._text(dict.fromkeys(self._regions, value)))

    def limit(self, folder: Path, *, region: str, hard: int) -> None:
        """Set `dmem.max` of one region, whatever is charged."""
        path = folder / "dmem.max"
        lines = (line.partition(" ") for line in path.read_text().splitlines())
        _write(path, "".join(f"{key} {hard if key == region else value}\n" for key, _, value in lines))

    def charge(self, held: Mapping[Path, Mapping[str, int]]) -> None:
        """Set what is charged, from the bytes that the processes of each cgroup hold in each region."""
        charges = {folder: Counter[str]() for folder in self._current if folder.exists()}
        charges[self._root][FOREIGN] = _FOREIGN_CHARGE
        for folder, regions in held.items():
            for level in (folder, *folder.parents):
                if level in charges:
                    charges[level].update(regions)
        texts = {folder: self._text({key: sums[key] for key in self._regions}) for folder, sums in charges.items()}
        for folder, text in texts.items():
            if text != self._current[folder]:
                _write(folder / "dmem.current", text)
        self._current = texts

    def _text(self, values: Mapping[str, int | None]) -> str:
        return "".join(f"{key} {'max' if values[key] is None else values[key]}\n" for key in self._regions)


def _write(path: Path, text: str) -> None:
    """By rename: a reader of the kernel's file never sees half of it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    os.replace(fresh, path)
