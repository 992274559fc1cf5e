"""The cluster's policy file, read again whenever it has changed."""

import os
from pathlib import Path

from exporter.caps.policy import Policy
from exporter.caps.policy_file import ConfigFileError, read_policy
from exporter.clock import Clock
from exporter.errors import Failure, Reason
from exporter.model import Reading

SOURCE = "policy"


class PolicyFile:
    """Source "policy". A file that can't be used is a failure: caps under an old policy would be wrong ones."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._outcome: Policy | Failure = Failure(Reason.MISSING, f"{path}: not read yet")

    def read(self) -> Reading[Policy]:
        """The policy that holds now."""
        begun = self._clock.monotonic()
        identity = self._identity()
        if identity is None:
            self._outcome = Failure(Reason.MISSING, f"{self._path}: no such file, or it may not be read")
        elif identity != self._seen:
            try:
                self._outcome = read_policy(self._path)
            except ConfigFileError as error:
                self._outcome = Failure(Reason.MALFORMED, str(error))
        self._seen = identity
        return Reading(SOURCE, self._outcome, self._clock.monotonic() - begun)

    def _identity(self) -> tuple[int, ...] | None:
        """What changes with the file. A mounted ConfigMap changes by a link, so the file behind it is looked at."""
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
