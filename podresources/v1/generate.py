"""Generates the message and service code from podresources.proto.

Why a program and not a line in a Makefile: the test that compares the checked-in files with the text runs the same
code. It needs the `proto` dependency group, which no installation of podgpu has.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

PROTO = Path(__file__).with_name("podresources.proto")
ROOT = PROTO.parents[2]
GENERATED = ("podresources_pb2.py", "podresources_pb2.pyi", "podresources_pb2_grpc.py", "podresources_pb2_grpc.pyi")


def generate(target: Path) -> list[Path]:
    """Writes the generated files below `target`, in the package's own folders, and returns their paths."""
    from grpc_tools import protoc  # a build tool: missing where podgpu merely runs

    plugins = [f"--plugin={name}={_program(name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    status = protoc.main(["protoc", f"-I{ROOT}", *plugins, *outputs, str(PROTO.relative_to(ROOT))])
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")
    folder = target / PROTO.parent.relative_to(ROOT)
    return [folder / name for name in GENERATED]


def _program(name: str) -> str:
    """The path of a compiler plugin: beside this interpreter, whether or not its environment is activated."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed: install the dependency group 'proto'")
    return path


if __name__ == "__main__":
    for written in generate(ROOT):
        sys.stdout.write(f"{written.relative_to(ROOT)}\n")
