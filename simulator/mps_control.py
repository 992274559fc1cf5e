"""The simulated `nvidia-cuda-mps-control`, as an executable that can be put anywhere.

It is a script of a few lines that an interpreter without site packages runs, because it is called as often as the real
one. Where its world is (see simulator/mps/world.py) it learns from the environment or, first, when it is installed:
whoever calls it need not know that it is not the real one.
"""

import sys
from pathlib import Path

from simulator.mps.world import ENVIRONMENT

NAME = "nvidia-cuda-mps-control"
_SOURCE = Path(__file__).parents[1]


def install(folder: Path, *, world: Path | None = None) -> Path:
    """Put the executable into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    interpreter = Path(sys.executable).resolve()
    path.write_text(
        f"#!{interpreter} -ISE\n"
        f"import os, sys; sys.path.append({str(_SOURCE)!r})\n"
        + (f"os.environ[{ENVIRONMENT!r}] = {str(world)!r}\n" if world else "")
        + "from simulator.mps.frontend import main; sys.exit(main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path
