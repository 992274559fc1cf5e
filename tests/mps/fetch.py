"""Fetches the real MPS control daemon, two generations of it, as Debian packages it (component non-free).

The daemon needs neither a GPU nor a driver to start, to keep settings and to refuse commands. Each release is a source
of its own, for this one package.

    python -m tests.mps.fetch
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from tools.debian_packages import FetchError, codename, fetch, machine_sources, release_sources

SUITES: Mapping[str, str] = {"535": "bookworm", "550": "trixie"}  # driver generation: the release that has it
CACHE = Path(__file__).parents[2] / ".cache" / "mps"
_PACKAGE = "nvidia-cuda-mps"


def binary(major: str) -> Path:
    """Where the control daemon of a driver generation is, once fetched."""
    return CACHE / major / "usr" / "bin" / "nvidia-cuda-mps-control"


def main() -> int:
    """Fetch what is not there yet, and say where it is. Exit code 1: it can't be had here."""
    try:
        for major, suite in SUITES.items():
            if not binary(major).exists():
                sources = release_sources(machine_sources(), codename=codename(), suite=suite, component="non-free")
                fetch([_PACKAGE], into=CACHE / major, sources=sources)
            print(binary(major))
    except (FetchError, OSError) as error:
        print(f"tests.mps.fetch: {_PACKAGE}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
