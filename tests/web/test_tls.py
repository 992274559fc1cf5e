import os
import socket
import ssl
import subprocess
import time

import pytest
import trustme

from exporter.web.config_file import WebConfigError
from exporter.web.connections import Timeouts
from exporter.web.security import WatchedSecurity


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def write_pair(directory, certificate):
    (directory / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    (directory / "key.pem").write_bytes(certificate.private_key_pem.bytes())


def config(tmp_path, authority, extra="", *, certificate=None):
    write_pair(tmp_path, certificate or authority.issue_cert("localhost", "127.0.0.1"))
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    path = tmp_path / "web.yml"
    path.write_text("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n" + extra)
    return path


def client(*authorities, certificate=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for authority in authorities:
        authority.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


MUTUAL = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"


def refused(served, context):
    try:
        response, _ = served.get(tls=context)
    except OSError:
        return True
    raise AssertionError(f"answered with {response.status}")


def serial(served):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with served.raw() as sock, context.wrap_socket(sock) as tls:
        return tls.getpeercert(binary_form=True)


def test_pages_are_served_encrypted_and_in_clear_to_nobody(serve, tmp_path, authority, is_closed):
    text = b"x" * 1_500_000
    served = serve(text, config_file=config(tmp_path, authority))
    for _ in range(2):
        response, body = served.get(tls=client(authority))
        assert (response.status, body) == (200, text)
    assert refused(served, client(trustme.CA()))
    with served.raw() as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert is_closed(sock)


def test_connections_are_kept_over_tls(serve, tmp_path, authority):
    connection = serve(config_file=config(tmp_path, authority)).connection(client(authority))
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("GET", "/metrics")
        assert connection.getresponse().read() == b"up 1\n"
        assert connection.sock is first
    connection.close()


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(serve, tmp_path, authority):
    served = serve(config_file=config(tmp_path, authority))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client(authority).wrap_bio(incoming, outgoing, server_hostname="localhost")
    with served.raw() as sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                if outgoing.pending:
                    sock.sendall(outgoing.read())
                incoming.write(sock.recv(65536))
        tls.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        sock.sendall(outgoing.read())  # the end of the handshake and the request in one packet
        received = b""
        while not received.endswith(b"up 1\n"):
            try:
                received += tls.read(65536)
            except ssl.SSLWantReadError:
                data = sock.recv(65536)
                assert data, received
                incoming.write(data)


def test_only_certificates_of_the_client_authority_get_in(serve, tmp_path, authority):
    served = serve(config_file=config(tmp_path, authority, MUTUAL))
    assert served.get(tls=client(authority, certificate=authority.issue_cert("prometheus")))[0].status == 200
    assert refused(served, client(authority))
    assert refused(served, client(authority, certificate=trustme.CA().issue_cert("prometheus")))


def test_certificates_may_be_optional_but_not_wrong(serve, tmp_path, authority):
    extra = "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n"
    served = serve(config_file=config(tmp_path, authority, extra))
    assert served.get(tls=client(authority))[0].status == 200
    assert served.get(tls=client(authority, certificate=authority.issue_cert("prometheus")))[0].status == 200
    assert refused(served, client(authority, certificate=trustme.CA().issue_cert("prometheus")))


def test_only_the_allowed_names_get_in(serve, tmp_path, authority):
    extra = MUTUAL + "  client_allowed_sans: [prometheus.local, 10.1.2.3]\n"
    served = serve(config_file=config(tmp_path, authority, extra), max_connections=4)
    for names in (("prometheus.local",), ("other.local", "prometheus.local"), ("10.1.2.3",)):
        assert served.get(tls=client(authority, certificate=authority.issue_cert(*names)))[0].status == 200
    for names in (("other.local",), ("sub.prometheus.local",), ("10.1.2.4",)):
        assert refused(served, client(authority, certificate=authority.issue_cert(*names)))


def test_versions_are_bounded(serve, tmp_path, authority):
    served = serve(config_file=config(tmp_path, authority, "  min_version: TLS13\n"))
    old = client(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert refused(served, old)
    assert served.get(tls=client(authority))[0].status == 200


def test_suites_are_chosen(serve, tmp_path, authority):
    extra = "  max_version: TLS12\n  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]\n"
    served = serve(config_file=config(tmp_path, authority, extra))
    with served.raw() as sock, client(authority).wrap_socket(sock, server_hostname="localhost") as tls:
        assert tls.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)


def test_a_rotated_certificate_is_served_without_a_restart(serve, tmp_path, authority, wait, caplog):
    caplog.set_level("INFO", "exporter.web")
    served = serve(config_file=config(tmp_path, authority))
    old = serial(served)
    kept = served.connection(client(authority))
    kept.request("GET", "/metrics")
    assert kept.getresponse().read() == b"up 1\n"
    write_pair(tmp_path, authority.issue_cert("localhost", "127.0.0.1"))
    wait(lambda: serial(served) != old, "the new certificate")
    new = serial(served)
    caplog.clear()  # a look between the two files has rightly found a broken pair
    (tmp_path / "key.pem").write_text("broken")
    wait(lambda: serial(served) == new and "not renewed" in caplog.text, "a line about the broken key")
    assert serial(served) == new
    assert served.get(tls=client(authority))[0].status == 200
    kept.request("GET", "/metrics")  # a connection survives all of it
    assert kept.getresponse().read() == b"up 1\n"
    kept.close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_swapped_symlink_is_a_change(tmp_path, authority):
    path = config(tmp_path, authority)
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        write_pair(tmp_path / version, authority.issue_cert("localhost"))
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to(f"data/{name}")
    (tmp_path / "data").symlink_to("1")
    watched = WatchedSecurity(path, clock=Clock())
    first = watched.current().context
    assert watched.current().context is first
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").replace(tmp_path / "data")
    assert watched.current().context is not first


def test_a_half_rotated_pair_keeps_the_old_one_until_it_is_whole(tmp_path, authority, caplog):
    watched = WatchedSecurity(config(tmp_path, authority), clock=Clock())
    first = watched.current().context
    renewed = authority.issue_cert("localhost")
    key = (tmp_path / "key.pem").read_bytes()
    write_pair(tmp_path, renewed)
    (tmp_path / "key.pem").write_bytes(key)
    for _ in range(5):
        assert watched.current().context is first
    assert len(caplog.records) == 1
    assert "tls_server_config.cert_file" in caplog.text
    write_pair(tmp_path, renewed)
    assert watched.current().context is not first


def test_a_rotated_client_authority_counts_for_the_next_connection(serve, tmp_path, authority, wait):
    served = serve(config_file=config(tmp_path, authority, MUTUAL))
    other = trustme.CA()
    newcomer = client(authority, certificate=other.issue_cert("prometheus"))
    assert refused(served, newcomer)
    other.cert_pem.write_to_path(tmp_path / "ca.pem")

    def admitted():
        try:
            return served.get(tls=newcomer)[0].status == 200
        except OSError:
            return False

    wait(admitted, "certificates of the new authority")
    assert refused(served, client(authority, certificate=authority.issue_cert("prometheus")))


def test_files_of_a_renewed_configuration_are_awaited(tmp_path, authority):
    path = config(tmp_path, authority)
    watched = WatchedSecurity(path, clock=Clock())
    first = watched.current().context
    path.write_text(path.read_text().replace("cert.pem", "new/cert.pem").replace("key.pem", "new/key.pem"))
    assert watched.current().context is first
    (tmp_path / "new").mkdir()
    write_pair(tmp_path / "new", authority.issue_cert("localhost"))
    assert watched.current().context is not first


def test_encryption_is_not_turned_off_while_running(tmp_path, authority, caplog):
    path = config(tmp_path, authority)
    watched = WatchedSecurity(path, clock=Clock())
    path.write_text("basic_auth_users: {}\n")
    assert watched.current().context is not None
    assert "only with a restart" in caplog.text


def encrypt(path):
    subprocess.run(
        ["openssl", "pkey", "-in", path, "-aes256", "-passout", "pass:secret", "-out", f"{path}.new"], check=True
    )

    os.replace(f"{path}.new", path)


@pytest.mark.parametrize(
    ("spoil", "key", "says"),
    [
        (lambda d: (d / "cert.pem").unlink(), "cert_file", "No such file"),
        (lambda d: (d / "key.pem").unlink(), "key_file", "No such file"),
        (lambda d: (d / "ca.pem").unlink(), "client_ca_file", "No such file"),
        (lambda d: (d / "cert.pem").write_text("x"), "cert_file", "no pair of PEM certificate and key"),
        (lambda d: (d / "key.pem").write_text(""), "cert_file", "no pair of PEM certificate and key"),
        (lambda d: (d / "ca.pem").write_text("x"), "client_ca_file", "holds no PEM certificate"),
        (lambda d: os.replace(d / "ca.pem", d / "cert.pem") or (d / "ca.pem").touch(), "cert_file", "no pair"),
        (lambda d: encrypt(d / "key.pem"), "key_file", "without a pass phrase"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_with_its_key(serve, tmp_path, authority, spoil, key, says):
    path = config(tmp_path, authority, MUTUAL)
    spoil(tmp_path)
    with pytest.raises(WebConfigError) as caught:
        serve(config_file=path)
    message = str(caught.value)
    assert message.startswith(f"{path}: tls_server_config.{key}: ")
    assert says in message
    assert "\n" not in message


def test_who_does_not_finish_the_handshake_is_dropped_and_counts_as_a_connection(
    serve, tmp_path, authority, is_closed, wait
):
    served = serve(
        config_file=config(tmp_path, authority), max_connections=3, timeouts=Timeouts(read=1.5, write=5, idle=5)
    )
    socks = [served.raw() for _ in range(3)]
    socks[0].sendall(b"\x16")
    assert refused(served, client(authority))
    started = time.monotonic()
    assert all(is_closed(sock) for sock in socks)
    assert time.monotonic() - started < 10
    for sock in socks:
        sock.close()

    def admitted():
        try:
            return served.get(tls=client(authority))[0].status == 200
        except OSError:
            return False

    wait(admitted, "the places were given back")


def test_handshakes_that_fail_give_their_place_back(serve, tmp_path, authority, wait):
    served = serve(config_file=config(tmp_path, authority), max_connections=2)
    for hello in (b"", b"\x16\x03", b"GET / HTTP/1.0\r\n\r\n", b"\x00" * 1000):
        for _ in range(5):
            with served.raw() as sock:
                sock.sendall(hello)
    for _ in range(5):
        assert refused(served, client(trustme.CA()))

    def admitted():
        try:
            return served.get(tls=client(authority))[0].status == 200
        except OSError:
            return False

    wait(admitted, "the places were given back")


def test_slow_readers_are_dropped_over_tls_too(serve, tmp_path, authority, wait):
    served = serve(
        b"x" * 20_000_000,
        config_file=config(tmp_path, authority),
        max_connections=1,
        timeouts=Timeouts(read=5, write=1, idle=2),
    )
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(20)
    sock.connect(served.address)
    with client(authority).wrap_socket(sock, server_hostname="localhost") as tls:
        tls.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert tls.recv(1)

        def admitted():
            try:
                return served.get("/-/ready", tls=client(authority))[0].status == 200
            except OSError:
                return False

        wait(admitted, "the slow reader made room")


def test_stopping_ends_tls_connections_and_handshakes(serve, tmp_path, authority):
    served = serve(config_file=config(tmp_path, authority))
    kept = served.connection(client(authority))
    kept.request("GET", "/metrics")
    assert kept.getresponse().read() == b"up 1\n"
    with served.raw() as shaking:
        shaking.sendall(b"\x16")
        started = time.monotonic()
        served.server.stop(3)
        assert time.monotonic() - started < 6
    kept.close()
