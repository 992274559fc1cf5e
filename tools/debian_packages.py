"""Fetches programs from Debian packages into a folder, without root and without a trace on the system.

    python -m tools.debian_packages prometheus prometheus-alertmanager --into .cache/debian

Tests need real programs (promtool, Prometheus, Alertmanager) in the version that a distribution ships. apt does the
fetching, with a state of its own: mirror and keyring are those that the machine's own sources name for its release, so
signatures are checked as always. Packages are unpacked, not installed: no script of theirs runs.

It will not resolve what a package needs unless asked to (`--with-dependencies`, less what the system has), and it does
nothing at all where the programs of `--programs` are on the PATH or were fetched before.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "debian"
_SOURCES = Path("/etc/apt")
_RELEASE = Path("/etc/os-release")
_FOLDERS = ("usr/bin", "bin", "usr/sbin")
_PATIENCE = 300.0  # seconds for one command of apt


class FetchError(Exception):
    """Packages that can't be had, in one line."""


@dataclass(frozen=True, slots=True)
class Source:
    """One place that packages come from, as apt describes it."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""

    @property
    def line(self) -> str:
        """The source in apt's one-line form."""
        options = f"[signed-by={self.signed_by}] " if self.signed_by else ""
        return f"deb {options}{self.uri} {self.suite} {' '.join(self.components)}"


def one_line_sources(text: str) -> Iterator[Source]:
    """The sources of a `.list` file."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words or words.pop(0) != "deb":
            continue
        options: list[str] = []
        if words and words[0].startswith("["):
            while words:
                options.append(words.pop(0))
                if options[-1].endswith("]"):
                    break
        pairs = dict(option.strip("[]").partition("=")[::2] for option in options)
        if len(words) >= 2:
            yield Source(words[0], words[1], tuple(words[2:]), pairs.get("signed-by", ""))


def deb822_sources(text: str) -> Iterator[Source]:
    """The sources of a `.sources` file. A key that is in the file itself is left to apt's default."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in lines.split("\n\n"):
        fields = dict(line.partition(":")[::2] for line in stanza.splitlines() if not line.startswith((" ", "\t")))
        named = {name.strip().lower(): value.strip() for name, value in fields.items()}
        if "deb" not in named.get("types", "").split() or named.get("enabled", "yes").lower() == "no":
            continue
        for uri in named.get("uris", "").split():
            for suite in named.get("suites", "").split():
                yield Source(uri, suite, tuple(named.get("components", "").split()), named.get("signed-by", ""))


def machine_sources(folder: Path = _SOURCES) -> list[Source]:
    """Every source that the machine's apt has."""
    parts = folder / "sources.list.d"
    lists = [folder / "sources.list", *sorted(parts.glob("*.list"))]
    found = [source for path in lists if path.exists() for source in one_line_sources(path.read_text())]
    return found + [source for path in sorted(parts.glob("*.sources")) for source in deb822_sources(path.read_text())]


def release_sources(sources: Sequence[Source], *, codename: str, suite: str = "", component: str = "") -> list[Source]:
    """The sources of the machine's release; with `suite`, the same archive's other release or component."""
    own = [source for source in sources if source.suite.partition("-")[0] == codename]
    if not own:
        raise FetchError(f"the machine's apt sources have nothing for {codename or 'an unknown release'}")
    if suite:
        own = [replace(source, suite=suite) for source in own if source.suite == codename]
    return [replace(source, components=(component,)) for source in own] if component else own


def find(program: str) -> Path | None:
    """A program that is on the PATH, or was fetched."""
    on_path = shutil.which(program)
    if on_path is not None:
        return Path(on_path)
    return next((path for folder in _FOLDERS if (path := CACHE / folder / program).exists()), None)


def fetch(
    packages: Sequence[str], *, into: Path, sources: Sequence[Source], with_dependencies: bool = False
) -> list[str]:
    """Unpack packages into a folder; returns the file names. Raises FetchError."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise FetchError(f"no {program} here; put the programs on the PATH instead")
    with tempfile.TemporaryDirectory(prefix="podgpu-apt-") as name:
        state = Path(name)
        # apt gives its downloads to an unprivileged user when root runs it, who must get into the folder.
        state.chmod(0o755)
        for folder in ("lists/partial", "cache/archives/partial", "downloads"):
            (state / folder).mkdir(parents=True)
        (state / "sources.list").write_text("".join(f"{source.line}\n" for source in sources))
        apt = _apt(state, system=with_dependencies)
        _run([*apt, "update"], cwd=state)
        if with_dependencies:
            _run([*apt, "install", "--download-only", "--yes", "--no-install-recommends", *packages], cwd=state)
            files = sorted((state / "cache/archives").glob("*.deb"))
        else:
            _run([*apt, "download", *packages], cwd=state / "downloads")
            files = sorted((state / "downloads").glob("*.deb"))
        into.mkdir(parents=True, exist_ok=True)
        for file in files:
            _run(["dpkg-deb", "-x", str(file), str(into)], cwd=state)
        return [file.name for file in files]


def _apt(state: Path, *, system: bool) -> list[str]:
    """apt-get with a state of its own. `system`: it knows what is installed here, and asks only for what is not."""
    settings = {
        "Dir::State": str(state),
        "Dir::State::status": "/var/lib/dpkg/status" if system else "/dev/null",
        "Dir::Cache": str(state / "cache"),
        "Dir::Etc::sourcelist": str(state / "sources.list"),
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "",
        "APT::Get::List-Cleanup": "0",
        "Debug::NoLocking": "1",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in settings.items())]


def _run(command: Sequence[str], *, cwd: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        raise FetchError(f"{command[0]} gave no answer within {_PATIENCE:.0f} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "dpkg-deb:"))] or [done.stderr]
        raise FetchError(f"{command[0]}: {' '.join(' '.join(said).split())}")


def _codename() -> str:
    fields = dict(line.partition("=")[::2] for line in _RELEASE.read_text().splitlines()) if _RELEASE.exists() else {}
    return fields.get("VERSION_CODENAME", "").strip('"')


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch packages. Exit codes: 0 they are there, 1 they can't be had, in one line."""
    parser = argparse.ArgumentParser(prog="python -m tools.debian_packages", description=main.__doc__)
    parser.add_argument("packages", nargs="+")
    parser.add_argument("--into", type=Path, default=CACHE, help="folder to unpack them into (default: %(default)s)")
    parser.add_argument("--programs", nargs="*", default=[], help="do nothing where these can be found already")
    parser.add_argument("--suite", default="", help="another release of the same archive, such as trixie")
    parser.add_argument("--component", default="", help="another component, such as non-free")
    parser.add_argument("--with-dependencies", action="store_true", help="also what they need and the system lacks")
    given = parser.parse_args(arguments)
    if given.programs and all(find(program) for program in given.programs):
        return 0
    try:
        sources = release_sources(machine_sources(), codename=_codename(), suite=given.suite, component=given.component)
        files = fetch(given.packages, into=given.into, sources=sources, with_dependencies=given.with_dependencies)
    except (FetchError, OSError) as error:
        print(f"tools.debian_packages: {' '.join(given.packages)}: {error}", file=sys.stderr)
        return 1
    print("\n".join(files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
