import gzip
import http.client
import time
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from exporter.web.messages import CHUNK_BYTES
from exporter.web.pages import Page, PageStore

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@given(st.binary(), st.binary())
def test_compressed_bytes_are_the_plain_ones_and_depend_on_nothing_else(text, openmetrics):
    page = Page.of(text=text, openmetrics=openmetrics)
    assert gzip.decompress(page.text_gzip) == text
    assert gzip.decompress(page.openmetrics_gzip) == openmetrics
    assert page == Page.of(text=text, openmetrics=openmetrics)


def test_store_is_empty_until_the_first_page():
    store = PageStore()
    assert store.current() is None
    page = Page.of(text=b"a", openmetrics=b"b")
    store.publish(page)
    assert store.current() is page


def test_each_format_and_encoding_is_served(serve):
    served = serve(b"up 1\n")
    for accept, content_type, body in (("*/*", TEXT, b"up 1\n"), (OPENMETRICS, OPENMETRICS, b"up 1\n# EOF\n")):
        plain, content = served.get(Accept=accept)
        assert (plain.status, plain.getheader("Content-Type"), content) == (200, content_type, body)
        assert plain.getheader("Content-Encoding") is None
        assert plain.getheader("Vary") == "Accept, Accept-Encoding"
        assert plain.getheader("Content-Length") == str(len(body))
        packed, content = served.get(Accept=accept, Accept_Encoding="gzip")
        assert packed.getheader("Content-Encoding") == "gzip"
        assert packed.getheader("Content-Length") == str(len(content))
        assert gzip.decompress(content) == body


def test_scrapers_keep_their_connection(serve):
    connection = serve().connection()
    connection.connect()
    first = connection.sock
    for _ in range(3):
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert (response.version, response.read()) == (11, b"up 1\n")
        assert connection.sock is first
    connection.close()


def test_a_short_response_is_one_packet_and_is_not_held_back(serve):
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    with serve().raw() as sock:
        started = time.monotonic()
        for _ in range(20):
            sock.sendall(request)
            received = sock.recv(65536)
            assert received.startswith(b"HTTP/1.1 200")
            assert received.endswith(b"up 1\n")
        assert time.monotonic() - started < 2  # the kernel gives up holding back after 0.2 s each


def test_head_announces_the_length_and_sends_nothing(serve):
    served = serve(b"x" * 300_000)
    connection = served.connection()
    connection.request("HEAD", "/metrics")
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Length"), response.read()) == (200, "300000", b"")
    connection.request("GET", "/-/ready")  # nothing of the page is left in the stream
    assert connection.getresponse().read() == b"ready\n"
    connection.close()


def test_b111_twenty_scrapes_at_once_get_identical_bytes(serve):
    text = b"".join(b'podgpu_container_memory_used_bytes{pod="p%d"} %d\n' % (i, i) for i in range(20_000))
    served = serve(text)
    with ThreadPoolExecutor(20) as pool:
        bodies = list(pool.map(lambda _: served.get()[1], range(20)))
    assert set(bodies) == {text}


def test_a_page_swapped_during_a_response_does_not_mix(serve, make_page):
    old, new = b"a" * (40 * CHUNK_BYTES), b"b" * (40 * CHUNK_BYTES)
    served = serve(old)
    connection = served.connection()
    connection.request("GET", "/metrics")
    response = connection.getresponse()
    first = response.read(1000)
    served.store.publish(make_page(new))
    assert first + response.read() == old
    connection.request("GET", "/metrics")
    assert connection.getresponse().read() == new
    connection.close()


def test_http_1_0_is_answered_and_closed(serve, is_closed):
    served = serve()
    with served.raw() as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        response = http.client.HTTPResponse(sock)
        response.begin()
        assert (response.status, response.read()) == (200, b"up 1\n")
        assert is_closed(sock)
        response.close()
