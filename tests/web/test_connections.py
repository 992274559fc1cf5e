import contextlib
import gc
import socket
import threading
import time

import pytest

from exporter.web.connections import Timeouts

SHORT = Timeouts(read=0.4, write=0.4, idle=1)
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(sock):
    """Read up to the end of the page."""
    received = b""
    while not received.endswith(b"up 1\n"):
        part = sock.recv(4096)
        assert part, received
        received += part
    return received


def threads_named(prefix):
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefix)]


@contextlib.contextmanager
def many(served, count):
    socks = [served.raw() for _ in range(count)]
    try:
        yield socks
    finally:
        for sock in socks:
            sock.close()


def test_idle_and_dripping_clients_cost_no_thread_delay_nobody_and_are_closed(serve, is_closed):
    served = serve(max_connections=300, timeouts=Timeouts(read=1.5, write=5, idle=5))
    served.get()
    threads = threading.active_count()
    with many(served, 200) as idle, many(served, 10) as dripping:
        stop = time.monotonic() + 6
        slowest, rounds = 0.0, 0
        alive = list(dripping)
        while alive and time.monotonic() < stop:
            for sock in list(alive):
                try:
                    sock.sendall(b"G" if rounds == 0 else b"E")
                except OSError:
                    alive.remove(sock)
            started = time.monotonic()
            assert served.get()[0].status == 200
            slowest = max(slowest, time.monotonic() - started)
            assert threading.active_count() == threads
            rounds += 1
            threading.Event().wait(0.05)
        assert not alive, "a byte now and then kept a connection open"
        assert slowest < 0.5
        assert all(is_closed(sock) for sock in idle)


def test_dripping_headers_do_not_extend_the_deadline(serve):
    served = serve(timeouts=SHORT)
    with served.raw() as sock:
        started = time.monotonic()
        with contextlib.suppress(OSError):
            sock.sendall(b"GET /metrics HTTP/1.1\r\n")
            while time.monotonic() - started < 10:
                sock.sendall(b"X-A: b\r\n")
                threading.Event().wait(0.02)
        assert time.monotonic() - started < 5


def test_a_second_request_has_its_own_deadline(serve, is_closed):
    served = serve(timeouts=Timeouts(read=0.4, write=5, idle=30))
    with served.raw() as sock:
        sock.sendall(REQUEST)
        assert answer(sock).endswith(b"up 1\n")
        sock.sendall(b"G")
        started = time.monotonic()
        assert is_closed(sock)
        assert time.monotonic() - started < 10


def test_a_pause_between_requests_may_be_longer_than_a_request(serve):
    served = serve(timeouts=Timeouts(read=0.2, write=0.2, idle=30))
    with served.raw() as sock:
        for _ in range(2):
            sock.sendall(REQUEST)
            assert answer(sock).endswith(b"up 1\n")
            sock.settimeout(0.6)
            with pytest.raises(TimeoutError):  # stays open, three deadlines later
                sock.recv(1)
            sock.settimeout(10)


def test_a_pause_that_is_too_long_closes(serve, is_closed):
    served = serve(timeouts=SHORT)
    with served.raw() as sock:
        sock.sendall(REQUEST)
        assert answer(sock).endswith(b"up 1\n")
        assert is_closed(sock)


def slow_reader(served):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(20)
    sock.connect(served.address)
    sock.sendall(REQUEST)
    return sock


def test_slow_readers_hold_little_memory_and_are_dropped(serve, resident, wait):
    served = serve(b"x" * 30_000_000, timeouts=Timeouts(read=5, write=1.5, idle=30), max_connections=20)
    served.get()
    before = resident()
    socks = [slow_reader(served) for _ in range(20)]
    try:
        assert all(sock.recv(1) for sock in socks)
        assert resident() - before < 20 * 1_000_000  # a buffered body would be 20 times 30 MB
        wait(lambda: _admitted(served), "the slow readers made room")
        received = sum(len(_rest(sock)) for sock in socks[:1])
        assert received < 30_000_000
    finally:
        for sock in socks:
            sock.close()


def test_a_reader_is_dropped_even_when_the_application_is_done(serve, wait):
    async def application(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 20_000_000})  # all at once, into the buffer

    served = serve(application=application, timeouts=Timeouts(read=5, write=0.5, idle=600), max_connections=1)
    with slow_reader(served) as sock:
        assert sock.recv(1)
        wait(lambda: _admitted(served), "the slow reader made room")


def _admitted(served):
    try:
        return served.get("/-/healthy")[0].status == 200
    except OSError:
        return False


def _rest(sock):
    data = b""
    try:
        while part := sock.recv(1 << 20):
            data += part
    except OSError:
        pass
    return data


def test_newcomers_over_the_limit_are_turned_away_and_the_others_stay(serve, wait, caplog):
    served = serve(max_connections=3)
    first = served.connection()
    first.request("GET", "/metrics")
    assert first.getresponse().read() == b"up 1\n"
    with many(served, 2):
        for _ in range(5):
            response, body = served.get()
            assert (response.status, body) == (503, b"too many connections\n")
        first.request("GET", "/metrics")
        assert first.getresponse().read() == b"up 1\n"
    wait(lambda: _admitted(served), "places were given back")
    first.close()
    assert [record.message for record in caplog.records if "turning newcomers away" in record.message] == [
        "all 3 connections are in use, turning newcomers away (--web.max-connections)"
    ]


def test_places_are_given_back_however_a_connection_ends(serve, wait):
    served = serve(max_connections=2)
    endings = (b"", b"G", REQUEST, b"\x00garbage\r\n\r\n", REQUEST * 3, b"GET / HTTP/1.0\r\n\r\n")
    for ending in endings * 3:
        with served.raw() as sock:
            sock.sendall(ending)
        wait(lambda: _admitted(served), f"a place after {ending!r}")


def test_stopping_lets_a_response_finish_and_closes_idle_connections(serve, is_closed):
    body = b"x" * 20_000_000
    served = serve(body)
    idle, busy = served.raw(), served.connection()
    busy.request("GET", "/metrics")
    response = busy.getresponse()
    stopper = threading.Thread(target=served.server.stop, args=(20,))
    stopper.start()
    assert is_closed(idle)
    assert response.read() == body
    stopper.join(20)
    assert not stopper.is_alive()
    with pytest.raises(ConnectionRefusedError):
        served.raw()
    idle.close()
    busy.close()


def test_stopping_drops_who_does_not_finish(serve, caplog):
    served = serve(b"x" * 20_000_000)
    with slow_reader(served) as sock:
        assert sock.recv(1)
        started = time.monotonic()
        served.server.stop(0.3)
        assert time.monotonic() - started < 5
    assert "1 connections did not finish" in caplog.text
    assert not threads_named("exporter-web")
    served.server.stop()  # a second time does nothing


def test_a_failing_application_answers_500_and_the_server_lives(serve, caplog):
    failing = [True]

    async def application(_scope, _receive, send):
        if failing[0]:
            raise RuntimeError("broken")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    served = serve(application=application)
    response, body = served.get()
    assert (response.status, body) == (500, b"Internal Server Error")
    failing.clear()
    failing.append(False)
    assert served.get()[0].status == 204
    assert "broken" in caplog.text


def test_stopping_closes_whoever_is_just_being_accepted(serve):
    # Unclosed transports are warnings, and warnings are errors.
    for _ in range(30):
        served = serve()
        with many(served, 5):
            served.server.stop()
    gc.collect()
