import contextlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def exchange(served, data):
    """Send all, as far as the server lets us, and read until it closes or has nothing to say."""
    received = b""
    with served.raw() as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
        sock.settimeout(0.3)
        with contextlib.suppress(OSError):
            while part := sock.recv(65536):
                received += part
    return received


def test_a_ten_megabyte_header_is_refused_early(serve, resident):
    served = serve()
    served.get()
    data = b"GET / HTTP/1.1\r\nX: " + b"a" * 10_000_000
    before = resident()
    received = exchange(served, data)
    assert received == b"" or received.startswith(b"HTTP/1.1 400")
    assert resident() - before < 5_000_000
    assert served.get()[0].status == 200


def test_endless_header_lines_are_refused(serve):
    served = serve()
    received = exchange(served, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200_000)
    assert received == b"" or received.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,  # a TLS hello
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"\r\n" * 100,
        b"\x00" * 5000,
    ],
)
def test_what_is_not_http_is_refused_without_a_word_in_the_log(serve, caplog, data):
    served = serve()
    received = exchange(served, data)
    assert received == b"" or received.split(b" ", 2)[1] in (b"400", b"501")
    assert served.get()[0].status == 200
    assert caplog.text == ""


@pytest.mark.parametrize("line", [b"GET /metrics HTTP/9.9", b"PRI * HTTP/2.0"])
def test_other_versions_of_http_are_answered_in_ours(serve, line):
    served = serve()
    assert exchange(served, line + b"\r\n\r\n").startswith(b"HTTP/1.1 ")


def test_pipelined_requests_are_answered_in_order(serve):
    served = serve()
    paths = (b"/metrics", b"/-/ready", b"/nothing", b"/-/healthy")
    data = b"".join(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path for path in paths)
    received = exchange(served, data)
    found = [received.find(part) for part in (b"up 1\n", b"ready\n", b"not found\n", b"ok\n")]
    assert -1 not in found
    assert found == sorted(found)


def test_garbage_after_a_request_does_not_spoil_its_answer(serve, caplog):
    served = serve(b"x" * 3_000_000)
    received = exchange(served, REQUEST + b"\x00\x01\x02 garbage\r\n\r\n")
    assert received.count(b"x") >= 3_000_000
    assert caplog.text == ""


def test_a_broken_body_after_good_headers_ends_the_connection(serve, caplog):
    served = serve()
    exchange(served, b"GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    assert served.get()[0].status == 200
    assert caplog.text == ""


def test_a_body_is_not_read_and_ends_the_connection(serve, is_closed):
    served = serve()
    with served.raw() as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\nabc")
        received = b""
        while part := sock.recv(4096):
            received += part
    assert received.endswith(b"up 1\n")
    assert b"connection: close" in received.lower()


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
def test_upgrades_are_declined(serve, caplog, upgrade):
    served = serve()
    received = exchange(
        served, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
    )
    assert received.startswith(b"HTTP/1.1 200")
    assert caplog.text == ""


def test_a_client_that_leaves_during_a_response_harms_nobody(serve, caplog):
    served = serve(b"x" * 20_000_000)
    for _ in range(10):
        with served.raw() as sock:
            sock.sendall(REQUEST)
            sock.recv(1)
    assert served.get("/-/ready")[0].status == 200
    assert caplog.text == ""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32), cuts=st.integers(0, 8))
def test_mangled_requests_never_end_the_server(serve_once, seed, cuts):
    served, caplog = serve_once
    chance = random.Random(seed)
    data = bytearray(
        REQUEST * 3 + b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    )
    for _ in range(cuts):
        position = chance.randrange(len(data))
        data[position : position + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
    with served.raw() as sock, contextlib.suppress(OSError):
        sock.sendall(data)
        sock.recv(10)
    assert served.get("/-/healthy")[0].status == 200
    assert caplog.text == ""


@pytest.fixture
def serve_once(serve, caplog):
    return serve(), caplog
