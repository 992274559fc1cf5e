"""Writes the pages that are generated from tables of both programs: run by `make docs`.

`python -m enforcer.documentation metrics` prints docs/metrics.md, and `... configuration` docs/configuration.md. They
are made here, because the exporter knows nothing of the enforcer.
"""

import sys
from collections.abc import Sequence

from enforcer.metrics import GROUP
from enforcer.model import CapState
from enforcer.settings import FLAGS, PROG
from exporter.caps.requests import Reaction
from exporter.metrics.documentation import document
from exporter.settings_page import Command, page

_COMMAND = Command(
    PROG,
    "What it does and how to begin with it is in [enforcement.md](enforcement.md).",
    FLAGS,
)


def metrics() -> str:
    """The whole of docs/metrics.md."""
    return document([GROUP], {"`state` of a cap": CapState, "`reaction`": Reaction})


def configuration() -> str:
    """The whole of docs/configuration.md."""
    return page([_COMMAND])


_PAGES = {"metrics": metrics, "configuration": configuration}


def main(arguments: Sequence[str]) -> int:
    """Print a page. Returns the exit code: 0, or 2 for a name that is none."""
    if len(arguments) != 1 or arguments[0] not in _PAGES:
        sys.stderr.write(f"takes one of {', '.join(_PAGES)}\n")
        return 2
    sys.stdout.write(_PAGES[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
