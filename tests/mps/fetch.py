"""Fetches the real MPS control daemon, two generations of it, as Debian packages it.

Only the packages' files are taken out, into a folder of this checkout: nothing is installed, no root is needed, and
apt's own lists and caches stay as they are. The mirror and its keyring are those of this machine's own apt sources, or
`PODGPU_DEBIAN_MIRROR`. The daemon needs neither a GPU nor a driver to start, to keep settings and to refuse commands.

    python -m tests.mps.fetch
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MIRROR = "PODGPU_DEBIAN_MIRROR"
SUITES: Mapping[str, str] = {"535": "bookworm", "550": "trixie"}  # driver generation: the release that has it
CACHE = Path(__file__).parents[2] / ".cache" / "mps"

_PACKAGE = "nvidia-cuda-mps"
_COMPONENT = "non-free"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_ONE_LINE = re.compile(r"deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+(.+)")
_TIMEOUT = 120.0  # seconds for one command


class FetchError(Exception):
    """The daemon can't be had here, in one line."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A Debian mirror, and the keys that sign it."""

    mirror: str
    keyring: str


def binary(major: str) -> Path:
    """Where the control daemon of a driver generation is, once fetched."""
    return CACHE / major / "usr" / "bin" / "nvidia-cuda-mps-control"


def archives(etc: Path) -> Iterator[Archive]:
    """The Debian mirrors in the sources of an apt configuration folder, in both of apt's formats."""
    for path in sorted(etc.glob("sources.list.d/*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            yield from _deb822(stanza)
    for path in [etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]:
        for line in path.read_text().splitlines() if path.exists() else []:
            match = _ONE_LINE.match(line.strip())
            if match is not None and _is_debian(match[3].split(), match[4].split()):
                options = dict(option.partition("=")[::2] for option in (match[1] or "").split())
                yield Archive(match[2], options.get("signed-by", _KEYRING))


def _deb822(stanza: str) -> Iterator[Archive]:
    lines = [line for line in stanza.splitlines() if not line.startswith("#")]
    fields = {key.strip().lower(): value.split() for key, _, value in (line.partition(":") for line in lines)}
    if "no" in fields.get("enabled", []) or "deb" not in fields.get("types", []):
        return
    if _is_debian(fields.get("suites", []), fields.get("components", [])):
        keyring = (fields.get("signed-by") or [_KEYRING])[0]
        for mirror in fields.get("uris", []):
            yield Archive(mirror, keyring)


def _is_debian(suites: list[str], components: list[str]) -> bool:
    """Tell the main archive from security updates and from other vendors' by the names of its releases."""
    known = {"stable", "oldstable", "bullseye", "forky", "sid", *SUITES.values()}
    return "main" in components and bool(known & set(suites))


def fetch() -> None:
    """Fetch what is not there yet. Raises FetchError."""
    missing = [major for major in SUITES if not binary(major).exists()]
    if not missing:
        return
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise FetchError(f"there is no {tool} on this machine")
    given = os.environ.get(MIRROR)
    archive = Archive(given, _KEYRING) if given else next(archives(Path("/etc/apt")), None)
    if archive is None:
        raise FetchError(f"apt has no Debian archive among its sources; name one in {MIRROR}")
    if not Path(archive.keyring).exists():
        raise FetchError(f"there is no {archive.keyring}")
    for major in missing:
        with tempfile.TemporaryDirectory(prefix="podgpu-apt-") as folder:
            _fetch(major, archive, Path(folder))


def _fetch(major: str, archive: Archive, folder: Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial", "preferences.d"):
        (folder / name).mkdir(parents=True)
    sources = folder / "only.list"
    sources.write_text(f"deb [signed-by={archive.keyring}] {archive.mirror} {SUITES[major]} {_COMPONENT}\n")
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::preferences": "-",
        "Dir::Etc::preferencesparts": folder / "preferences.d",
        "APT::Sandbox::User": "",
    }
    apt = ["apt-get", "-q"] + [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    _run([*apt, "-o", "APT::Update::Error-Mode=any", "update"], folder)
    _run([*apt, "download", _PACKAGE], folder)
    packages = list(folder.glob(f"{_PACKAGE}_*.deb"))
    if not packages:
        raise FetchError(f"apt-get download left no {_PACKAGE}")
    unpacked = folder / "unpacked"
    _run(["dpkg-deb", "-x", str(packages[0]), str(unpacked)], folder)
    place = CACHE / major
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(unpacked, place, symlinks=True)
    if not binary(major).exists():
        raise FetchError(f"{packages[0].name} has no {binary(major).name}")


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{command[0]} took more than {_TIMEOUT:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise FetchError(f"{command[0]} {command[-1]}: {said[0]}")


def main() -> int:
    """Fetch, and say where they are. Exit code 1: they can't be had here."""
    try:
        fetch()
    except (FetchError, OSError) as error:
        print(f"mps-control: {error}", file=sys.stderr)
        return 1
    for major in SUITES:
        print(binary(major))
    return 0


if __name__ == "__main__":
    sys.exit(main())
