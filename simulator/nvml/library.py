"""Builds the simulated `libnvidia-ml.so.1`, with the symbols of a chosen driver generation.

A symbol that a driver does not have is really missing from the library: looking it up fails as it does on that driver,
which is what fallbacks must be tested against. Building is cached by content and safe to do from several processes at
once, because the finished file arrives by rename and carries its own key. It needs gcc and will not look for another
compiler; it does not install the library anywhere: put `directory` in LD_LIBRARY_PATH.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

SONAME = "libnvidia-ml.so.1"

_SOURCES = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", f"-Wl,-soname,{SONAME}")

SYMBOLS = frozenset(
    re.findall(r"^(?:SYMBOL|UNSUPPORTED)\((\w+)\)$", (_SOURCES / "symbols.def").read_text(), re.MULTILINE)
)

# Oldest driver first; the symbols that the simulated library has and that arrived with that driver.
_ARRIVALS: tuple[tuple[str, frozenset[str]], ...] = (
    ("470", frozenset()),
    (
        "535.54",
        frozenset(
            {
                "nvmlDeviceGetComputeRunningProcesses_v3",
                "nvmlDeviceGetGraphicsRunningProcesses_v3",
                "nvmlDeviceGetMPSComputeRunningProcesses_v3",
                "nvmlDeviceGetMemoryInfo_v2",
                "nvmlDeviceGetConfComputeMemSizeInfo",
                "nvmlDeviceGetConfComputeProtectedMemoryUsage",
                "nvmlDeviceGetCurrentClocksEventReasons",
            }
        ),
    ),
    ("535.183", frozenset({"nvmlDeviceGetRunningProcessDetailList", "nvmlDeviceGetSramEccErrorStatus"})),
    ("550", frozenset({"nvmlDeviceGetProcessesUtilizationInfo", "nvmlDeviceGetNumaNodeId"})),
    ("570", frozenset({"nvmlDeviceGetTemperatureV"})),
    ("580", frozenset({"nvmlDeviceGetAddressingMode"})),
    (
        "615",
        frozenset(
            {"nvmlDeviceGetDriverModel_v2", "nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1"},
        ),
    ),
)

#: Driver generation -> the symbols that are missing there. "535.54" goes with `Driver(early_rows=True)`.
GENERATIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        name: frozenset().union(*(symbols for _, symbols in _ARRIVALS[position + 1 :]))
        for position, (name, _) in enumerate(_ARRIVALS)
    }
)


class LibraryBuildError(RuntimeError):
    """The library could not be built; the message is the compiler's, or says that there is none."""


def build(directory: Path, *, missing: Collection[str] = ()) -> Path:
    """Build `libnvidia-ml.so.1` in `directory` and return its path.

    Args:
        directory: where the library goes; made if needed.
        missing: symbols that the library shall not have, such as `GENERATIONS["550"]`.

    Raises:
        ValueError: `missing` names a symbol that the library never has.
        LibraryBuildError: there is no gcc, or it failed.
    """
    unknown = set(missing) - SYMBOLS
    if unknown:
        raise ValueError(f"not symbols of the simulated library: {', '.join(sorted(unknown))}")
    library = directory / SONAME
    key = _key(missing)
    if library.exists() and f"podgpu build {key}".encode() in library.read_bytes():
        return library
    gcc = shutil.which("gcc")
    if gcc is None:
        raise LibraryBuildError("the simulated NVML library is written in C and needs gcc, which is not in PATH")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".build-") as scratch:
        fresh = Path(scratch, SONAME)
        script = Path(scratch, "symbols.map")
        hidden = "".join(f"{symbol}; " for symbol in sorted(missing))
        script.write_text(f"{{ global: nvml*; local: {hidden}*; }};\n")
        command = [gcc, *_FLAGS, f'-DBUILD_KEY="{key}"', f"-Wl,--version-script={script}", "-o", str(fresh)]
        result = subprocess.run(
            [*command, *map(str, _c_files())], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if result.returncode != 0:
            raise LibraryBuildError(f"gcc failed:\n{result.stderr}")
        fresh.replace(library)
    return library


def _c_files() -> list[Path]:
    return sorted(_SOURCES.glob("*.c"))


def _key(missing: Collection[str]) -> str:
    digest = hashlib.sha256(repr((_FLAGS, sorted(set(missing)))).encode())
    for source in [*_c_files(), *sorted(_SOURCES.glob("*.h")), _SOURCES / "symbols.def"]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()
