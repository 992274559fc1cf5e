"""Where MPS control daemons are: the pipe directories that configured paths and patterns lead to.

Guarantees: looking is bounded, however many directories match; what cannot be looked into is told with its reason and
not taken for absent; one directory that is found under several names is one. It will not follow `**`.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from exporter.errors import Failure, Reason
from exporter.sources.mps_process import PID_FILE
from exporter.sources.regular_files import unreadable

_MOST_DIRECTORIES = 64
_MOST_ENTRIES = 4096  # of one folder that a pattern is matched with
_WILDCARD = re.compile(r"[*?[]")


def pipe_directories(patterns: Sequence[str]) -> Mapping[str, Failure | None]:
    """The pipe directories that there are, by path. A failure: it may be one, and can't be looked into.

    A directory counts when it has a daemon's socket or pid file, whether or not anybody answers there.
    """
    found: dict[str, Failure | None] = {}
    seen: set[tuple[int, int]] = set()
    for pattern in patterns:
        for path, problem in _expanded(pattern):
            if problem is None:
                outcome = _identity(path)
                if outcome is None or outcome in seen:
                    continue
                if isinstance(outcome, Failure):
                    problem = outcome
                else:
                    seen.add(outcome)
            if path in found:
                continue
            if len(found) >= _MOST_DIRECTORIES:
                found[pattern] = Failure(
                    Reason.TOO_LARGE, f"more than {_MOST_DIRECTORIES} pipe directories; narrow --mps.pipe-directory"
                )
                return found
            found[path] = problem
    return found


def _identity(path: str) -> tuple[int, int] | Failure | None:
    """Device and inode of a pipe directory; None where there is none."""
    try:
        if not (_is_there(f"{path}/control") or _is_there(f"{path}/{PID_FILE}")):
            return None
        status = os.stat(path)
    except PermissionError as error:
        return unreadable(path, error)
    except (OSError, ValueError):  # a link to itself, a name that is too long
        return None
    return status.st_dev, status.st_ino


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _expanded(pattern: str) -> Iterator[tuple[str, Failure | None]]:
    """The paths that a pattern may stand for, in order of their names."""
    yield from _below("", [part for part in pattern.split("/") if part])


def _below(folder: str, parts: Sequence[str]) -> Iterator[tuple[str, Failure | None]]:
    literal = 0
    while literal < len(parts) and not _WILDCARD.search(parts[literal]):
        literal += 1
    folder = "/".join([folder, *parts[:literal]])
    if literal == len(parts):
        yield folder, None
        return
    names = _names(folder or "/", parts[literal])
    if isinstance(names, Failure):
        yield folder, names
        return
    for name in names:
        yield from _below(f"{folder}/{name}", parts[literal + 1 :])


def _names(folder: str, pattern: str) -> list[str] | Failure:
    """The names in a folder that match; none where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for _, entry in zip(range(_MOST_ENTRIES), entries, strict=False)]
    except PermissionError as error:
        return unreadable(folder, error)
    except (OSError, ValueError):
        return []
    return sorted(fnmatch.filter((name for name in names if not name.startswith(".")), pattern))
