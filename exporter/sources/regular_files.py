"""Reads files that others may have put there: bounded, and never through a link or from what is not a file.

A directory that pods can write to may hold a link to somewhere else, a pipe that nobody ever writes into, or a file
without end.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from exporter.errors import Failure, Reason

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a file, and what the kernel says of it. `start` is where they begin."""

    data: bytes
    status: os.stat_result
    start: int = 0


def read_regular(path: str, *, most: int) -> Content | Failure:
    """A whole file of at most `most` bytes; MISSING where there is none."""
    content = read_part(path, start=lambda _: 0, most=most + 1)
    if isinstance(content, Content) and len(content.data) > most:
        return Failure(Reason.TOO_LARGE, f"{path} has more than {most} bytes")
    return content


def read_part(path: str, *, start: Callable[[os.stat_result], int], most: int) -> Content | Failure:
    """At most `most` bytes of a file from where `start` says on; MISSING where there is no file."""
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        return unreadable(path, error)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Failure(Reason.UNREADABLE, f"{path} is not a file")
        begin = start(status)
        data = bytearray()
        while len(data) < most and (more := os.pread(descriptor, most - len(data), begin + len(data))):
            data += more
        return Content(bytes(data), status, begin)
    except OSError as error:
        return unreadable(path, error)
    finally:
        os.close(descriptor)


def unreadable(path: str, error: OSError) -> Failure:
    """Why a path can't be read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Failure(Reason.MISSING, f"{path}: {error.strerror}")
    if isinstance(error, PermissionError):
        return Failure(Reason.NO_PERMISSION, f"{path}: {error.strerror} for user {os.geteuid()}")
    return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")
