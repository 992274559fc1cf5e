import importlib.util
import os
import shutil
import sys
from ctypes import CDLL
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from simulator.nvml import counters, library
from simulator.nvml.state import ENVIRONMENT as STATE_ENVIRONMENT
from simulator.nvml.state import Gpu, Memory, State, write

GIB = 2**30


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012d}"


def gpu(number: int = 0, **changes: object) -> Gpu:
    fields: dict[str, object] = {
        "memory": Memory(80 * GIB, used=10 * GIB, reserved=GIB),
        "minor": number,
        "pci_bus_id": f"00000000:{0x17 + number:02X}:00.0",
    }
    return Gpu(uuid(number), **(fields | changes))


class Node:
    """The real pynvml over a library of its own, so that no test sees another's handles, counts or limits."""

    def __init__(self, directory: Path, built: Path) -> None:
        self.directory = directory
        self.state_path = directory / "state"
        self.counters_path = directory / "counters"
        # The loader knows a library by its file: a copy is another library.
        self.library = CDLL(str(shutil.copy(built, directory / library.SONAME)))
        self.nvml = _fresh_pynvml()
        self.nvml.nvmlLib = self.library
        os.environ[STATE_ENVIRONMENT] = str(self.state_path)
        os.environ[counters.ENVIRONMENT] = str(self.counters_path)

    def write(self, *gpus: Gpu, **fields: object) -> None:
        write(self.state_path, State(gpus, **fields))

    def start(self, *gpus: Gpu, **fields: object) -> ModuleType:
        self.write(*gpus, **fields)
        self.nvml.nvmlInit()
        return self.nvml

    def calls(self, symbol: str) -> int:
        counted = counters.read(self.counters_path).get(symbol)
        return counted.total if counted else 0


def _fresh_pynvml() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pynvml_of_one_test", pynvml.__file__)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # it looks itself up there while it loads
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (STATE_ENVIRONMENT, counters.ENVIRONMENT, "NVML_MPS_DEVICE_ENUMERATION"):
        monkeypatch.setenv(name, "")


@pytest.fixture
def node(tmp_path: Path, built: Path, clean_environment: None) -> Node:
    return Node(tmp_path, built)


@pytest.fixture
def node_of(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, clean_environment: None):
    """A node with the driver of a generation."""

    def make(generation: str) -> Node:
        directory = tmp_path_factory.mktemp("generation")
        return Node(tmp_path, library.build(directory, missing=library.GENERATIONS[generation]))

    return make


@pytest.fixture(name="gpu")
def gpu_factory():
    return gpu
