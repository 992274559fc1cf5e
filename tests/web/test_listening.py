import socket

import pytest

from exporter.web.listening import ListenError, listen


def test_a_port_alone_listens_on_both_families(serve):
    served = serve(listen_addresses=(":0",))
    _, port = served.address
    for host in ("127.0.0.1", "::1"):
        try:
            sock = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            if host == "::1" and not socket.has_dualstack_ipv6():
                continue
            raise AssertionError(host) from error
        sock.close()


def test_several_addresses_serve_the_same(serve):
    served = serve(listen_addresses=("127.0.0.1:0", "127.0.0.2:0", "localhost:0"))
    assert [host for host, _ in served.server.addresses][1] == "127.0.0.2"
    for address in served.server.addresses:
        with socket.create_connection(address, timeout=5) as sock:
            sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert sock.recv(1000).startswith(b"HTTP/1.1 200")


def test_a_taken_port_is_one_clear_line(serve):
    host, port = serve().address
    with pytest.raises(ListenError, match=rf"^cannot listen on {host}:{port}: the port is taken; [^\n]+$"):
        serve(listen_addresses=(f"{host}:{port}",))


def test_a_failure_leaves_no_socket_behind(serve):
    host, taken = serve().address
    with socket.socket() as probe:
        probe.bind((host, 0))
        free = probe.getsockname()[1]
    with pytest.raises(ListenError):
        listen([f"{host}:{free}", f"{host}:{taken}"])
    (again,) = listen([f"{host}:{free}"])
    again.close()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("9836", "write HOST:PORT"),
        ("::1:9836", "write HOST:PORT"),
        ("127.0.0.1:", "the port must be a number"),
        ("127.0.0.1:http", "the port must be a number"),
        ("127.0.0.1:-1", "the port must be a number"),
        ("127.0.0.1:65536", "the port must be a number"),
        (f"127.0.0.1:{'9' * 5000}", "the port must be a number"),
        ("no such host:1", "unknown host"),
        ("192.0.2.1:0", "no such address"),
    ],
)
def test_a_bad_address_is_one_clear_line(address, says):
    with pytest.raises(ListenError, match=says) as caught:
        listen([address])
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_address_at_all_is_an_error():
    with pytest.raises(ListenError, match="no listen address"):
        listen([])
