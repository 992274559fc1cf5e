"""The simulated `nvidia-cuda-mps-control`, as an executable that can be put anywhere.

It is a script of three lines that an interpreter without site packages runs, because it is called as often as the real
one. Where its world is, it learns from the environment (see simulator/mps/world.py).
"""

import sys
from pathlib import Path

NAME = "nvidia-cuda-mps-control"
_SOURCE = Path(__file__).parents[1]


def install(folder: Path) -> Path:
    """Put the executable into a folder, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    interpreter = Path(sys.executable).resolve()
    path.write_text(
        f"#!{interpreter} -ISE\n"
        f"import sys; sys.path.append({str(_SOURCE)!r})\n"
        "from simulator.mps.frontend import main; sys.exit(main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path
