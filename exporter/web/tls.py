"""Builds the TLS context that the configuration asks for.

Guarantees that a file that cannot be used is one line that names the configuration file, the key and the file, and
that an encrypted private key is an error instead of a question on somebody's terminal.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path

from exporter.web.config_file import ClientAuth, TlsConfig, WebConfigError

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def tls_context(config: TlsConfig, *, origin: Path) -> ssl.SSLContext:
    """A server context with the files read now.

    Raises:
        WebConfigError: a file is missing, unreadable or does not fit; `origin` is the configuration file to name.
    """
    _check_readable(origin, "cert_file", config.cert_file)
    _check_readable(origin, "key_file", config.key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = config.min_version
    context.maximum_version = config.max_version
    context.set_alpn_protocols(["http/1.1"])
    if not config.prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if config.ciphers:
        try:
            context.set_ciphers(":".join(config.ciphers))
        except ssl.SSLError as error:
            raise _error(origin, "cipher_suites", "this machine's OpenSSL has none of them; remove the key") from error
    try:
        context.load_cert_chain(config.cert_file, config.key_file, password=_no_password)
    except _EncryptedKeyError:
        problem = f"{config.key_file} is encrypted; store the key without a pass phrase"
        raise _error(origin, "key_file", problem) from None
    except (ssl.SSLError, OSError, ValueError) as error:
        problem = f"{config.cert_file} and key_file {config.key_file} are no pair of PEM certificate and key ({error})"
        raise _error(origin, "cert_file", problem) from error
    context.verify_mode = _VERIFY[config.client_auth]
    if config.client_ca_file is not None:
        _check_readable(origin, "client_ca_file", config.client_ca_file)
        try:
            context.load_verify_locations(cafile=config.client_ca_file)
        except (ssl.SSLError, OSError) as error:
            problem = f"{config.client_ca_file} holds no PEM certificate ({error})"
            raise _error(origin, "client_ca_file", problem) from error
    return context


def san_values(certificate: object) -> Iterable[str]:
    """Every subject alternative name of a verified peer certificate, as `SSLSocket.getpeercert` gives it."""
    if isinstance(certificate, dict):
        yield from (value for _, value in certificate.get("subjectAltName", ()))


class _EncryptedKeyError(Exception):
    """The private key asks for a pass phrase."""


def _no_password() -> str:
    raise _EncryptedKeyError


def _check_readable(origin: Path, key: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _error(origin, key, f"cannot read {path}: {error.strerror}") from error


def _error(origin: Path, key: str, problem: str) -> WebConfigError:
    return WebConfigError(f"{origin}: tls_server_config.{key}: {problem}")
