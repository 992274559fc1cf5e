"""Builds the images of the Dockerfile without a registry and without a container engine, and runs them.

    python -m tools.image [--no-demo]

The base is made of Debian packages by mmdebstrap, the build is buildah's with chroot isolation, and the Python packages
come from the lock file, by hash, through a folder. Everything lies in .cache/image; the finished image goes to
build/podgpu-VERSION.tar, for `docker load`, `ctr images import` or `skopeo copy`. It needs root and a machine with apt;
what of buildah and mmdebstrap is missing it installs.

Guarantees: an image that is reported has been run: `podgpu --version` and `podgpu doctor` in the one, a whole
`podgpu demo --once` in the other.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_CACHE = _ROOT / ".cache" / "image"
_WHEELS = _CACHE / "wheels"
_BUILDAH = ("buildah", "--storage-driver", "vfs", "--root", str(_CACHE / "root"), "--runroot", str(_CACHE / "runroot"))
_BASE = "localhost/podgpu-python"
_RELEASE = "bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"
_LEFT_OUT = ("doc", "man", "locale", "info")
_PATIENCE = 900.0  # seconds for one step


class ImageError(Exception):
    """A step that failed, in one line."""


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, cwd=_ROOT)
    if done.returncode:
        raise ImageError(f"{' '.join(command[:2])}: {' '.join((done.stderr or done.stdout).split())[-600:]}")
    return done.stdout


def _buildah(*arguments: str) -> str:
    return _run(*_BUILDAH, *arguments)


def _prepare() -> None:
    """See that everything is here that a build needs."""
    if os.geteuid() != 0:
        raise ImageError("needs root, for chroot and for file owners in the image")
    missing = [program for program in ("buildah", "mmdebstrap") if shutil.which(program) is None]
    if missing:
        if shutil.which("apt-get") is None:
            raise ImageError(f"needs {' and '.join(missing)}")
        _run("apt-get", "update", "-qq")
        _run("apt-get", "install", "-qq", "--yes", "--no-install-recommends", *missing)


def _base() -> None:
    """The base image, of Debian packages, unless it is there."""
    if _BASE in _buildah("images", "--format", "{{.Name}}").split():
        return
    archive = _CACHE / "base.tar"
    if not archive.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
        _run("mmdebstrap", "--variant=minbase", f"--include={_PACKAGES}", *left_out, _RELEASE, f"{archive}.new")
        Path(f"{archive}.new").rename(archive)
    container = _buildah("from", "scratch").strip()
    _buildah("add", container, str(archive), "/")
    _buildah("commit", "--quiet", "--rm", container, _BASE)


def _wheels() -> None:
    """The locked packages, for the base's Python."""
    container = _buildah("from", "--pull-never", _BASE).strip()
    version = _buildah("run", "--isolation", "chroot", container, "--", "python3", "-V").split()[-1]
    _buildah("rm", container)
    major, minor = version.split(".")[:2]
    machine = platform.machine()
    platforms = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17", "_2_28", "_2_31", "_2_34")]
    target = ["--only-binary=:all:", f"--python-version={major}.{minor}", "--implementation=cp", *platforms]
    shutil.rmtree(_WHEELS, ignore_errors=True)
    for name in ("requirements.txt", "requirements-build.txt"):
        arguments = ("download", "--quiet", "--require-hashes", "--dest", str(_WHEELS), *target, "-r", name)
        _run(sys.executable, "-m", "pip", *arguments)


def _build(target: str, tag: str, *, version: str) -> None:
    revision = _run("git", "rev-parse", "HEAD").strip() if (_ROOT / ".git").exists() else ""
    values: Mapping[str, str] = {
        "PYTHON_IMAGE": _BASE,
        "PIP_OPTIONS": "--no-index --find-links=/wheels",
        "VERSION": version,
        "REVISION": revision,
    }
    arguments = [f"--build-arg={name}={value}" for name, value in values.items()]
    options = ("--isolation", "chroot", "--pull-never", "--layers", f"--volume={_WHEELS}:/wheels:ro")
    _buildah("build", *options, *arguments, "--target", target, "--tag", tag, ".")


def _size(image: str) -> int:
    """Bytes of an image's files."""
    container = _buildah("from", "--pull-never", image).strip()
    folder = _buildah("mount", container).strip()
    size = int(_run("du", "--summarize", "--bytes", folder).split()[0])
    _buildah("rm", container)
    return size


def _in(image: str, *command: str) -> tuple[int, str]:
    """Run a command in a container of an image, as its user; the exit code and what it prints."""
    container = _buildah("from", "--pull-never", image).strip()
    begin = (*_BUILDAH, "run", "--isolation", "chroot", container, "--", *command)
    done = subprocess.run(begin, capture_output=True, text=True, timeout=_PATIENCE)
    _buildah("rm", container)
    return done.returncode, done.stdout + ("" if done.returncode == 0 else done.stderr)


def _try_runtime(image: str, version: str) -> None:
    code, said = _in(image, "podgpu", "--version")
    if code or said.strip() != f"podgpu {version}":
        raise ImageError(f"podgpu --version: {said}")
    code, said = _in(image, "podgpu", "doctor")
    if code != 1 or "libnvidia-ml.so.1" not in said:
        raise ImageError(f"podgpu doctor, where there is no driver: exit code {code}: {said[-600:]}")


def _try_demo(image: str) -> int:
    """The number of samples of one page in the demo."""
    code, said = _in(image, "podgpu", "demo", "--once")
    samples = len(re.findall(r"^podgpu_", said, re.MULTILINE))
    if code or "podgpu_container_memory_used_bytes{" not in said:
        raise ImageError(f"podgpu demo --once: exit code {code}: {said[-600:]}")
    return samples


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and run the images. Exit codes: 0 done, 1 something failed, in one line."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=main.__doc__)
    parser.add_argument("--no-demo", action="store_true", help="only the image for clusters")
    given = parser.parse_args(arguments)
    found = re.search(r'^version = "(.*)"', (_ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    version = found[1] if found else ""
    image, demo = f"localhost/podgpu:{version}", f"localhost/podgpu-demo:{version}"
    archive = _ROOT / "build" / f"podgpu-{version}.tar"
    begun = time.monotonic()
    try:
        _prepare()
        _base()
        _wheels()
        _build("runtime", image, version=version)
        _try_runtime(image, version)
        report = {"image": image, "bytes": _size(image), "bytes_beside_base": _size(image) - _size(_BASE)}
        if not given.no_demo:
            _build("demo", demo, version=version)
            report |= {"demo": demo, "demo_bytes": _size(demo), "demo_samples": _try_demo(demo)}
        archive.parent.mkdir(exist_ok=True)
        archive.unlink(missing_ok=True)
        _buildah("push", "--quiet", image, f"docker-archive:{archive}:podgpu:{version}")
    except (ImageError, OSError, subprocess.TimeoutExpired) as error:
        print(f"tools.image: {error}", file=sys.stderr)
        return 1
    report |= {"archive": str(archive.relative_to(_ROOT)), "seconds": round(time.monotonic() - begun)}
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
