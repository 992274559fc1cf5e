"""Basic authentication in front of every path.

A bcrypt check takes tens of milliseconds by design, so it runs off the event loop, one at a time, and its result is
remembered under a keyed hash of the credentials; clear passwords are never kept. Guarantees that an unknown user costs
the same time as a wrong password, and that a flood of wrong passwords neither delays requests whose credentials are
known nor piles up. Does not limit attempts per client.
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections.abc import Mapping, MutableMapping
from enum import Enum, auto, unique
from http import HTTPStatus
from typing import Any

import bcrypt
from cachetools import LRUCache

from exporter.web.messages import Asgi, Receive, Request, Response, Scope, Send, send_response
from exporter.web.security import Security, WatchedSecurity

_REMEMBERED = 256  # results of each kind; far more than there are scrapers
_MAX_WAITING = 32  # unknown credentials waiting for their check; more are turned away
_BCRYPT_BYTES = 72  # bcrypt never looks further
_UNAUTHORIZED = Response.line(
    HTTPStatus.UNAUTHORIZED, "unauthorized", headers=(("WWW-Authenticate", 'Basic realm="podgpu"'),)
)
_BUSY = Response.line(HTTPStatus.SERVICE_UNAVAILABLE, "too many logins at once", headers=(("Retry-After", "5"),))


@unique
class Verdict(Enum):
    """What became of a login."""

    GRANTED = auto()
    REFUSED = auto()
    BUSY = auto()


class PasswordChecks:
    """Checks credentials against bcrypt hashes. For one event loop, whose default executor does the hashing."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        # Apart, so that guesses cannot push the credentials of a working scraper out.
        self._granted: LRUCache[bytes, bool] = LRUCache(_REMEMBERED)
        self._refused: LRUCache[bytes, bool] = LRUCache(_REMEMBERED)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def verdict(self, users: Mapping[str, bytes], user: str, password: bytes) -> Verdict:
        """Whether `user` may enter with `password`; `users` maps names to bcrypt hashes."""
        known = users.get(user)
        hashed = known if known is not None else _dummy_hash(users)
        key = self._key(user, hashed, password)
        if (result := self._remembered(key)) is not None:
            return result
        if self._waiting >= _MAX_WAITING:
            return Verdict.BUSY
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                # Somebody with the same credentials may have been checked while we waited.
                if (result := self._remembered(key)) is not None:
                    return result
                matches = await asyncio.to_thread(bcrypt.checkpw, password[:_BCRYPT_BYTES], hashed)
        finally:
            self._waiting -= 1
        granted = matches and known is not None
        (self._granted if granted else self._refused)[key] = True
        return Verdict.GRANTED if granted else Verdict.REFUSED

    def _remembered(self, key: bytes) -> Verdict | None:
        # Reading, unlike `in`, marks an entry as recently used.
        if self._granted.get(key):
            return Verdict.GRANTED
        return Verdict.REFUSED if self._refused.get(key) else None

    def _key(self, user: str, hashed: bytes, password: bytes) -> bytes:
        # The hash is part of the key, so that a changed password makes the old one unknown at once.
        digest = hashlib.blake2b(key=self._secret)
        for part in (user.encode(), hashed, password):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()


class Guard:
    """Puts authentication and the configured headers before an ASGI application."""

    def __init__(self, application: Asgi, security: WatchedSecurity) -> None:
        self._application = application
        self._security = security
        self._checks = PasswordChecks()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        security = self._security.current()
        send = _with_headers(send, security)
        if not security.users:
            await self._application(scope, receive, send)
            return
        request = Request.of(scope)
        credentials = basic_credentials(request.header("authorization"))
        verdict = Verdict.REFUSED
        if credentials is not None:
            verdict = await self._checks.verdict(security.users, *credentials)
        if verdict is Verdict.GRANTED:
            await self._application(scope, receive, send)
        else:
            await send_response(request, _BUSY if verdict is Verdict.BUSY else _UNAUTHORIZED, send)


def basic_credentials(header: str) -> tuple[str, bytes] | None:
    """User and password of an Authorization header; None for anything that is not basic authentication."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def _dummy_hash(users: Mapping[str, bytes]) -> bytes:
    """A hash that is as costly to check as the costliest real one; whether it matches is never asked."""
    cost = max(hashed[4:6] for hashed in users.values())
    return b"$2b$" + cost + b"$" + b"." * 53


def _with_headers(send: Send, security: Security) -> Send:
    if not security.headers:
        return send
    extra = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in security.headers]

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *extra]
        await send(message)

    return send_with_headers
