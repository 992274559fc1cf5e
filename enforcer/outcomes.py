"""What became of an action: done, not yet, or failed. Values; nothing is raised past a mechanism's edge.

Done is said only of what was read back; a command that exited well or a call that returned 0 is none.
"""

from dataclasses import dataclass
from typing import TypeAlias

from exporter.errors import Failure


@dataclass(frozen=True, slots=True)
class Done:
    """Read back as it was wanted. `detail` says what was read, in one line for a person."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """Nothing is wrong, and it is not so yet: the present use or clients stand in the way. To be repeated."""

    why: str


Outcome: TypeAlias = Done | Pending | Failure
