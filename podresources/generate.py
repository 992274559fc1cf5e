"""Generates the message and service code from the .proto files of this package.

Why a program and not a line in a Makefile: the test that compares the checked-in files with the text runs the same
code. It needs the `proto` dependency group, which no installation of podgpu has.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

PACKAGE = Path(__file__).parent
ROOT = PACKAGE.parent
SERVICES = (PACKAGE / "v1" / "podresources.proto", PACKAGE / "v1alpha1" / "pods.proto")
MESSAGES = (PACKAGE / "v1alpha1" / "pod.proto",)  # without a service


def generate(target: Path) -> list[Path]:
    """Writes the generated files below `target`, in the package's own folders, and returns their paths."""
    _compile(target, *SERVICES, *MESSAGES, kinds=("python", "mypy"))
    _compile(target, *SERVICES, kinds=("grpc_python", "mypy_grpc"))
    written = [(proto, "_pb2") for proto in (*SERVICES, *MESSAGES)] + [(proto, "_pb2_grpc") for proto in SERVICES]
    return [
        target / proto.parent.relative_to(ROOT) / f"{proto.stem}{part}.{suffix}"
        for proto, part in written
        for suffix in ("py", "pyi")
    ]


def _compile(target: Path, *protos: Path, kinds: tuple[str, ...]) -> None:
    # A build tool, without types, and missing where podgpu merely runs.
    from grpc_tools import protoc  # type: ignore[import-untyped]

    plugins = [f"--plugin={name}={_program(name)}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    outputs = [f"--{kind}_out={target}" for kind in kinds]
    status = protoc.main(["protoc", f"-I{ROOT}", *plugins, *outputs, *(str(p.relative_to(ROOT)) for p in protos)])
    if status != 0:
        raise RuntimeError(f"protoc ended with status {status}")


def _program(name: str) -> str:
    """The path of a compiler plugin: beside this interpreter, whether or not its environment is activated."""
    path = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed: install the dependency group 'proto'")
    return path


if __name__ == "__main__":
    for written in generate(ROOT):
        sys.stdout.write(f"{written.relative_to(ROOT)}\n")
