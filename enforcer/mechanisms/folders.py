"""Folders that are ours alone, and the small files in them.

Guarantees: a file is there whole or not at all, also after a crash; nothing is written or read through a link, or in a
folder of somebody else, or in one that somebody else may write to; reading is bounded. What goes wrong is a value.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterator

from exporter.errors import Failure, Reason

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_MOST_NAMES = 8192
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Folder:
    """A folder, made with `mode` when something is first written. `file_mode` is that of its files."""

    def __init__(self, path: str, *, mode: int = 0o700, file_mode: int = 0o600) -> None:
        self.path = path
        self._mode = mode
        self._file_mode = file_mode

    def write(self, name: str, content: bytes) -> Failure | None:
        """Replace or make a file, and wait until it is on the disk."""
        path = f"{self.path}/{_checked(name)}"
        try:
            make(self.path, self._mode)
            with opened(self.path) as folder:
                fresh = f".{name}.new"
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=folder)
                _put(folder, fresh, content, self._file_mode)
                os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
        except OSError as error:
            return changing(path, error)
        except ForeignError as error:
            return error.problem
        return None

    def read(self, name: str, *, most: int) -> bytes | Failure | None:
        """A file's content of at most `most` bytes; None where there is no such file, or no folder yet."""
        path = f"{self.path}/{_checked(name)}"
        try:
            with opened(self.path) as folder:
                return _content(folder, name, path, most)
        except FileNotFoundError:
            return None
        except OSError as error:
            return reading(path, error)
        except ForeignError as error:
            return error.problem

    def names(self) -> tuple[str, ...] | Failure:
        """The names in the folder, in order. What a crash left half written (its name begins with a dot) is none."""
        try:
            with opened(self.path) as folder, os.scandir(folder) as entries:
                names = [entry.name for _, entry in zip(range(_MOST_NAMES + 1), entries, strict=False)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            return reading(self.path, error)
        except ForeignError as error:
            return error.problem
        if len(names) > _MOST_NAMES:
            return Failure(Reason.TOO_LARGE, f"{self.path} has more than {_MOST_NAMES} files")
        return tuple(sorted(name for name in names if not name.startswith(".")))

    def remove(self, name: str) -> Failure | None:
        """Remove a file, if it is there."""
        try:
            with opened(self.path) as folder:
                os.unlink(_checked(name), dir_fd=folder)
                os.fsync(folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            return changing(f"{self.path}/{name}", error)
        except ForeignError as error:
            return error.problem
        return None


class ForeignError(Exception):
    """A folder is not ours alone."""

    def __init__(self, problem: Failure) -> None:
        super().__init__(str(problem))
        self.problem = problem


@contextlib.contextmanager
def opened(path: str, *, within: int | None = None) -> Iterator[int]:
    """A descriptor of a folder that is ours alone; `path` may be relative to another one.

    Raises:
        ForeignError: It is somebody else's, or others may write to it.
        OSError: It can't be opened, or is a link.
    """
    descriptor = os.open(path, _FOLDER, dir_fd=within)
    try:
        _check(os.fstat(descriptor), path)
        yield descriptor
    finally:
        os.close(descriptor)


def make(path: str, mode: int) -> None:
    """Make a folder, and those above it that are missing (0755), whatever the umask. Raises OSError."""
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        make(parent, 0o755)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    os.chmod(path, mode, follow_symlinks=False)


def changing(path: str, error: OSError) -> Failure:
    """Why something can't be changed."""
    if isinstance(error, PermissionError):
        return Failure(Reason.NO_PERMISSION, f"{path}: {error.strerror} for user {os.geteuid()}")
    return Failure(Reason.UNWRITABLE, f"{path}: {error.strerror}")


def reading(path: str, error: OSError) -> Failure:
    """Why something can't be read."""
    if isinstance(error, PermissionError):
        return Failure(Reason.NO_PERMISSION, f"{path}: {error.strerror} for user {os.geteuid()}")
    return Failure(Reason.UNREADABLE, f"{path}: {error.strerror}")


def is_ours(status: os.stat_result) -> bool:
    """Whether something is root's or our own, and nobody else may write to it."""
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & _OTHERS_WRITE


def _check(status: os.stat_result, path: str) -> None:
    if not is_ours(status):
        raise ForeignError(
            Failure(Reason.FOREIGN, f"{path} is user {status.st_uid}'s, or may be written to by others; remove it")
        )


def _put(folder: int, name: str, content: bytes, mode: int) -> None:
    descriptor = os.open(name, _WRITE, mode, dir_fd=folder)
    try:
        os.fchmod(descriptor, mode)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _content(folder: int, name: str, path: str, most: int) -> bytes | Failure:
    descriptor = os.open(name, _READ, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return Failure(Reason.FOREIGN, f"{path} is not a file; remove it")
        _check(status, path)
        content = bytearray()
        while len(content) <= most and (more := os.read(descriptor, most + 1 - len(content))):
            content += more
    finally:
        os.close(descriptor)
    return bytes(content) if len(content) <= most else Failure(Reason.TOO_LARGE, f"{path} has more than {most} bytes")


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"no name for a file: {name!r}")
    return name
