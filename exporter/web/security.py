"""The security settings in force, renewed when their files change.

Certificates, client CAs and users rotate without a restart: the files are looked at when a connection or request
arrives, at most once a second, by their identity and change time (which a renamed symlink, as Kubernetes swaps
secrets, changes too). Guarantees that a broken new set of files never replaces a working one: the old one stays in
force as a whole and one line is logged per change. Does not turn TLS on or off while running.
"""

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from exporter.web.config_file import WebConfig, WebConfigError, read_web_config
from exporter.web.tls import tls_context

_CHECK_INTERVAL_SECONDS = 1.0
_log = logging.getLogger("exporter.web")


@dataclass(frozen=True, slots=True)
class Security:
    """One consistent set of settings. `context` is None without TLS; no users means no authentication."""

    context: ssl.SSLContext | None = None
    allowed_sans: frozenset[str] = frozenset()
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))


class WatchedSecurity:
    """The settings of a configuration file, or none at all without one. For one thread.

    Raises WebConfigError when the files cannot be used at the start.
    """

    def __init__(self, origin: Path | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds and only ever grows."""
        self._origin = origin
        self._clock = clock
        self._security = Security()
        self._files: tuple[Path, ...] = ()
        self._seen: tuple[object, ...] = ()
        self._next_check = clock() + _CHECK_INTERVAL_SECONDS
        if origin is not None:
            config = read_web_config(origin)
            self._files = _files(config)
            self._seen = _identities(self._files)
            self._security = _load(config)

    def current(self) -> Security:
        """The settings in force now."""
        now = self._clock()
        if self._origin is not None and now >= self._next_check:
            self._next_check = now + _CHECK_INTERVAL_SECONDS
            identities = _identities(self._files)
            if identities != self._seen:
                self._seen = identities
                self._renew(self._origin)
        return self._security

    def _renew(self, origin: Path) -> None:
        try:
            config = read_web_config(origin)
            # Taken before loading, so that a change meanwhile is seen next time; and kept when loading fails, so that
            # the arrival of a missing file is seen.
            self._files = _files(config)
            self._seen = _identities(self._files)
            _check_tls_unchanged(config, encrypted=self._security.context is not None)
            renewed = _load(config)
        except WebConfigError as error:
            _log.warning("web configuration not renewed, the old one stays in force: %s", error)
            return
        self._security = renewed
        _log.info("web configuration renewed from %s", origin)


def _check_tls_unchanged(config: WebConfig, *, encrypted: bool) -> None:
    if (config.tls is not None) != encrypted:
        raise WebConfigError(f"{config.origin}: tls_server_config: TLS goes on or off only with a restart")


def _load(config: WebConfig) -> Security:
    tls = config.tls
    return Security(
        context=tls_context(tls, origin=config.origin) if tls is not None else None,
        allowed_sans=tls.client_allowed_sans if tls is not None else frozenset(),
        headers=config.headers,
        users=config.users,
    )


def _files(config: WebConfig) -> tuple[Path, ...]:
    tls = config.tls
    named = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls is not None else ()
    return (config.origin, *(path for path in named if path is not None))


def _identities(files: tuple[Path, ...]) -> tuple[object, ...]:
    return tuple(_identity(path) for path in files)


def _identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns
