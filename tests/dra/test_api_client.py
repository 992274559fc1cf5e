"""One GET over real TLS: what each fault of server, credentials and network becomes, and that none is waited for."""

import contextlib
import socket
import ssl
import threading
import time as real_time

import pytest
import trustme

from exporter.errors import Failure, Reason
from exporter.sources import apiserver as client_module
from exporter.sources.apiserver import Answer, ApiServer, is_mounted, refusal
from simulator import apiserver

PATH = "/apis/resource.k8s.io/v1/resourceslices"
SOON = 10.0  # seconds; far below what a test would wait if a deadline did not hold


def failure(outcome):
    assert isinstance(outcome, Failure), outcome
    assert "\n" not in outcome.detail
    return outcome


def test_an_answer_has_status_and_body(cluster):
    answer = cluster.client().get(PATH)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    assert answer.body.startswith(b'{"kind": "ResourceSliceList"')
    assert answer.retry_after is None


@pytest.mark.parametrize(("text", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)])
def test_retry_after(cluster, text, seconds):
    cluster.says(faults=[{"status": 429, "headers": {"Retry-After": text}}])
    answer = cluster.client().get(PATH)
    assert (answer.status, answer.retry_after) == (429, seconds)


def test_k57_a_token_that_is_replaced_is_used_at_once(cluster):
    client = cluster.client()
    cluster.says(tokens=["second-token"])
    assert client.get(PATH).status == 401
    (cluster.folder / "token").write_text("second-token")
    assert client.get(PATH).status == 200


def test_a_token_goes_to_no_server_that_the_ca_does_not_vouch_for(cluster):
    trustme.CA().cert_pem.write_to_path(cluster.folder / "ca.crt")
    found = failure(cluster.client().get(PATH))
    assert found.reason is Reason.UNAVAILABLE
    assert "ca.crt" in found.detail
    assert cluster.requests == 0


def test_a_certificate_for_another_host_is_refused(cluster, authority, tmp_path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("10.9.9.9").configure_cert(tls)
    with apiserver.serve(tmp_path / "apiserver.json", tls=tls) as other:
        port = other.address.rpartition(":")[2]
        found = failure(cluster.client(KUBERNETES_SERVICE_PORT=port).get(PATH))
        assert found.reason is Reason.UNAVAILABLE
        assert other.calls == {}


def test_a_ca_that_is_replaced_is_used_at_once(cluster, authority):
    trustme.CA().cert_pem.write_to_path(cluster.folder / "ca.crt")
    client = cluster.client()
    failure(client.get(PATH))
    authority.cert_pem.write_to_path(cluster.folder / "ca.crt")
    assert client.get(PATH).status == 200


def test_plain_http_gets_nothing(cluster, tmp_path):
    with apiserver.serve(tmp_path / "apiserver.json") as plain:
        port = plain.address.rpartition(":")[2]
        assert failure(cluster.client(KUBERNETES_SERVICE_PORT=port).get(PATH)).reason is Reason.UNAVAILABLE
        assert plain.calls == {}


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("token", None, Reason.MISSING),
        ("token", "", Reason.MALFORMED),
        ("token", "a\r\nX-Evil: 1", Reason.MALFORMED),
        ("token", "café", Reason.MALFORMED),
        ("ca.crt", None, Reason.MISSING),
        ("ca.crt", "no certificate", Reason.MALFORMED),
    ],
)
def test_credentials_that_cannot_be_used_are_a_failure_and_no_request(cluster, name, content, reason):
    path = cluster.folder / name
    path.unlink() if content is None else path.write_text(content, encoding="utf-8")
    found = failure(cluster.client().get(PATH))
    assert found.reason is reason
    assert str(path) in found.detail
    assert cluster.requests == 0


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_credentials_that_cannot_be_read(cluster, name):
    path = cluster.folder / name
    path.unlink()
    path.mkdir()
    assert failure(cluster.client().get(PATH)).reason is Reason.UNREADABLE


def test_outside_a_cluster_there_is_no_address(cluster):
    assert failure(ApiServer(cluster.folder, environment={}, deadline=1).get(PATH)).reason is Reason.MISSING


def test_whether_a_service_account_is_mounted(cluster, tmp_path):
    assert is_mounted(cluster.folder)
    assert not is_mounted(tmp_path / "nowhere")


def test_nobody_listens(cluster):
    cluster.server.stop()
    found = failure(cluster.client().get(PATH))
    assert (found.reason, "refused" in found.detail) == (Reason.UNAVAILABLE, True)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"cut": True}, Reason.UNAVAILABLE),
        ({"headers": {"Content-Length": "9000"}, "cut": True}, Reason.UNAVAILABLE),
        ({"hang": True}, Reason.TIMEOUT),
        ({"delay": 60.0}, Reason.TIMEOUT),
        ({"drip": True}, Reason.TIMEOUT),
        ({"headers": {"Transfer-Encoding": "chunked"}, "body": "zz\r\n"}, Reason.UNAVAILABLE),
        ({"headers": {f"X-{number}": "1" for number in range(200)}}, Reason.MALFORMED),
    ],
    ids=["cut", "cut-early", "hang", "delay", "drip", "bad-chunk", "many-headers"],
)
def test_what_goes_wrong_on_the_way(cluster, fault, reason):
    cluster.says(faults=[fault])
    begun = real_time.monotonic()
    assert failure(cluster.client(deadline=0.5).get(PATH)).reason is reason
    assert real_time.monotonic() - begun < SOON


def test_an_answer_that_is_too_large_is_not_held(cluster, monkeypatch):
    monkeypatch.setattr(client_module, "LARGEST_ANSWER", 1 << 10)
    cluster.says(faults=[{"body": "x" * 1024}])
    assert len(cluster.client().get(PATH).body) == 1024
    cluster.says(faults=[{"body": "x" * 1025}])
    assert failure(cluster.client().get(PATH)).reason is Reason.TOO_LARGE


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_server_that_speaks_no_tls(cluster, greeting):
    """One that says nothing costs the deadline, one that says something else costs nothing."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        thread = threading.Thread(target=_greet, args=(other, greeting))
        thread.start()
        client = cluster.client(deadline=0.5, KUBERNETES_SERVICE_PORT=str(other.getsockname()[1]))
        begun = real_time.monotonic()
        found = failure(client.get(PATH))
        assert real_time.monotonic() - begun < SOON
        thread.join()
    assert found.reason is (Reason.UNAVAILABLE if greeting else Reason.TIMEOUT)


def _greet(server, greeting):
    connection, _ = server.accept()
    with connection, contextlib.suppress(ConnectionResetError):
        connection.sendall(greeting)
        while connection.recv(1 << 16):
            pass


def test_a_redirect_is_not_followed(cluster):
    cluster.says(faults=[{"status": 302, "headers": {"Location": "/elsewhere"}}])
    assert cluster.client().get(PATH).status == 302
    assert cluster.requests == 1


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (401, Reason.NO_PERMISSION, "token"),
        (403, Reason.NO_PERMISSION, "the rule R"),
        (429, Reason.RATE_LIMITED, "fewer"),
        (410, Reason.UNAVAILABLE, "410"),
        (500, Reason.UNAVAILABLE, "500"),
        (302, Reason.UNAVAILABLE, "302"),
    ],
)
def test_what_a_status_means(status, reason, says):
    found = refusal(Answer(status, b""), right="the rule R")
    assert found.reason is reason
    assert says in found.detail
