"""A certificate for a server on this machine, as a cluster's installer makes one for its API server.

Made anew each time by the openssl command, because a private key that lies in a repository is one that somebody will
trust in the end.
"""

import shutil
import subprocess
from pathlib import Path


class CertificateError(Exception):
    """No certificate can be made here, in one line."""


def make(certificate: Path, *, key: Path, address: str = "127.0.0.1") -> None:
    """Write a certificate for an IP address, which is its own CA, and its key. Raises CertificateError."""
    openssl = shutil.which("openssl")
    if openssl is None:
        raise CertificateError("a simulated API server needs the openssl command for its certificate")
    result = subprocess.run(
        [
            openssl,
            *("req", "-x509", "-days", "3650", "-subj", "/CN=simulated-kube-apiserver"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-addext", f"subjectAltName=IP:{address}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise CertificateError(f"openssl: {' '.join(result.stderr.split())}")
