"""The `--web.config.file` that Prometheus exporters share: TLS, response headers and basic authentication.

Understands the format of Prometheus' exporter-toolkit. Guarantees that what is accepted is also done: a setting that
we cannot honour is an error that says so, never ignored. The one exception is `http2`, which is checked but has no
effect: this server speaks HTTP/1.1 only, which every scraper falls back to. Reads the file itself and nothing it
points to.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from pathlib import Path
from types import MappingProxyType

from exporter.yaml_sections import ConfigFileError as WebConfigError
from exporter.yaml_sections import Section, read_root

__all__ = ["ClientAuth", "TlsConfig", "WebConfig", "WebConfigError", "read_web_config"]

_ROOT_KEYS = frozenset({"tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"})
_TLS_KEYS = frozenset(
    {
        "cert",
        "key",
        "client_ca",
        "cert_file",
        "key_file",
        "client_auth_type",
        "client_ca_file",
        "client_allowed_sans",
        "min_version",
        "max_version",
        "cipher_suites",
        "prefer_server_cipher_suites",
        "curve_preferences",
    }
)
_HTTP_KEYS = frozenset({"http2", "headers"})
_HEADERS: Mapping[str, frozenset[str]] = {  # the values each may have; any where none are listed
    "Content-Security-Policy": frozenset(),
    "Strict-Transport-Security": frozenset(),
    "X-Content-Type-Options": frozenset({"nosniff"}),
    "X-Frame-Options": frozenset({"deny", "sameorigin"}),
    "X-XSS-Protection": frozenset(),
}
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CIPHER = re.compile(
    r"TLS_ECDHE_(?P<signature>RSA|ECDSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM_SHA(?:256|384)|CBC_SHA)|CHACHA20_POLY1305_SHA256)"
)
_CIPHER_MODES = {  # (key bits, mode) that exist, and their endings in OpenSSL's names
    ("128", "GCM_SHA256"): "AES128-GCM-SHA256",
    ("256", "GCM_SHA384"): "AES256-GCM-SHA384",
    ("128", "CBC_SHA"): "AES128-SHA",
    ("256", "CBC_SHA"): "AES256-SHA",
    (None, None): "CHACHA20-POLY1305",
}
_BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}", re.ASCII)
_PRINTABLE = re.compile(r"[\x20-\x7e]*", re.ASCII)


@unique
class ClientAuth(StrEnum):
    """What is asked of clients. The two types that ask for a certificate without checking it are refused."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The `tls_server_config` section. Paths are absolute or relative to the working directory, ready to open."""

    cert_file: Path
    key_file: Path
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None
    client_allowed_sans: frozenset[str] = frozenset()
    min_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    max_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ciphers: tuple[str, ...] = ()  # OpenSSL names; empty: the library's choice
    prefer_server_ciphers: bool = True


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The whole file. `tls` is None without TLS; no users means no authentication."""

    origin: Path
    tls: TlsConfig | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))  # name -> bcrypt hash


def read_web_config(origin: Path) -> WebConfig:
    """Read and check the file.

    Raises:
        WebConfigError: one line with the file, the line number, the key and what to change.
    """
    root = read_root(origin, _ROOT_KEYS)
    if "rate_limit" in root:
        raise root.fail("rate_limit", "is not supported; remove it, and bound clients with --web.max-connections")
    http = root.section("http_server_config", _HTTP_KEYS)
    http.flag("http2", default=True)
    tls = root.section("tls_server_config", _TLS_KEYS)
    return WebConfig(
        origin=origin,
        tls=_tls(tls) if any(True for _ in tls) else None,
        headers=_headers(http.section("headers", frozenset(_HEADERS))),
        users=_users(root.section("basic_auth_users", None)),
    )


def _tls(section: Section) -> TlsConfig:
    for inline in ("cert", "key", "client_ca"):
        if inline in section:
            raise section.fail(inline, f"is not supported; write it to a file and name that in {inline}_file")
    if "curve_preferences" in section:
        raise section.fail("curve_preferences", "is not supported; remove it, the TLS library chooses the curve")
    cert_file, key_file = section.path("cert_file"), section.path("key_file")
    if cert_file is None:
        raise section.fail("cert_file", "is missing; name the server's certificate (PEM)")
    if key_file is None:
        raise section.fail("key_file", "is missing; name the private key of cert_file (PEM)")
    client_auth = _client_auth(section)
    client_ca_file = section.path("client_ca_file")
    if client_ca_file is None and client_auth is not ClientAuth.NONE:
        raise section.fail("client_ca_file", f"is missing; client_auth_type {client_auth} needs it")
    if client_ca_file is not None and client_auth is ClientAuth.NONE:
        raise section.fail("client_ca_file", f"has no effect; set client_auth_type to {ClientAuth.REQUIRED}")
    sans = frozenset(section.texts("client_allowed_sans"))
    if "client_allowed_sans" in section and client_auth is not ClientAuth.REQUIRED:
        raise section.fail("client_allowed_sans", f"has no effect; set client_auth_type to {ClientAuth.REQUIRED}")
    if "client_allowed_sans" in section and not sans:
        raise section.fail("client_allowed_sans", "is empty, which would refuse everybody; list names or remove it")
    minimum, maximum = _version(section, "min_version", "TLS12"), _version(section, "max_version", "TLS13")
    if minimum > maximum:
        raise section.fail("min_version", "is above max_version; lower it or raise the other")
    return TlsConfig(
        cert_file=cert_file,
        key_file=key_file,
        client_auth=client_auth,
        client_ca_file=client_ca_file,
        client_allowed_sans=sans,
        min_version=minimum,
        max_version=maximum,
        ciphers=tuple(_cipher(section, name) for name in section.texts("cipher_suites")),
        prefer_server_ciphers=section.flag("prefer_server_cipher_suites", default=True),
    )


def _client_auth(section: Section) -> ClientAuth:
    value = section.text("client_auth_type", default=ClientAuth.NONE)
    if value in ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"):
        raise section.fail(
            "client_auth_type",
            f"{value} accepts certificates of anybody and is not supported; "
            f"use {ClientAuth.IF_GIVEN} or {ClientAuth.REQUIRED}",
        )
    try:
        return ClientAuth(value)
    except ValueError:
        raise section.fail("client_auth_type", f"{value!r} is none of {', '.join(ClientAuth)}") from None


def _version(section: Section, key: str, default: str) -> ssl.TLSVersion:
    value = section.text(key, default=default)
    if value in ("TLS10", "TLS11"):
        raise section.fail(key, f"{value} is obsolete and not supported; use TLS12 or TLS13")
    if value not in _VERSIONS:
        raise section.fail(key, f"{value!r} is neither TLS12 nor TLS13")
    return _VERSIONS[value]


def _cipher(section: Section, name: str) -> str:
    """OpenSSL's name for a cipher suite that the file gives by its IANA name."""
    if name.startswith(("TLS_AES_", "TLS_CHACHA20_")):
        raise section.fail("cipher_suites", f"{name} belongs to TLS 1.3, where suites cannot be chosen; remove it")
    found = _CIPHER.fullmatch(name)
    ending = _CIPHER_MODES.get((found["bits"], found["mode"])) if found else None
    if found is None or ending is None:
        raise section.fail("cipher_suites", f"{name!r} is not a supported suite; use TLS_ECDHE_..._GCM_... suites")
    return f"ECDHE-{found['signature']}-{ending}"


def _headers(section: Section) -> tuple[tuple[str, str], ...]:
    headers = []
    for name in section:
        value, allowed = section.text(name), _HEADERS[name]
        if value and allowed and value not in allowed:
            raise section.fail(name, f"{value!r} is not allowed; use {' or '.join(sorted(allowed))}")
        if not _PRINTABLE.fullmatch(value):
            raise section.fail(name, "holds characters that a header cannot carry; use printable ASCII")
        if value:
            headers.append((name, value))
    return tuple(headers)


def _users(section: Section) -> Mapping[str, bytes]:
    users = {}
    for name in section:
        if ":" in name:
            raise section.fail(name, "a user name cannot hold ':'; basic authentication ends the name there")
        # The value is a secret even when it is not a hash (somebody's clear password): never in the message.
        value = section.text(name)
        if not _BCRYPT.fullmatch(value):
            raise section.fail(name, "is not a bcrypt hash; make one with: htpasswd -nBC 10 '' | tr -d ':\\n'")
        users[name] = value.encode("ascii")
    return MappingProxyType(users)
