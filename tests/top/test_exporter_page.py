"""Views over HTTP, from the exporter's own web server: TLS, basic authentication, and what is refused."""

import http.server
import threading

import bcrypt
import pytest
import trustme

from exporter.settings import SettingsError
from exporter.top.pages import Credentials, ExporterPage
from exporter.top.view import PageError
from exporter.web.application import Application
from exporter.web.pages import Page, PageStore
from exporter.web.server import WebServer

TEXT = b"podgpu_snapshot_timestamp_seconds 1000.5\n"


@pytest.fixture
def serve(tmp_path):
    """Starts servers with a web config; answers the address."""
    running = []

    def start(config="", *, text=TEXT):
        store = PageStore()
        if text is not None:
            store.publish(Page.of(text=text, openmetrics=text + b"# EOF\n"))
        file = tmp_path / "web.yml"
        file.write_text(config)
        server = WebServer(
            Application(store, healthy=lambda: None, version="0"),
            listen_addresses=("127.0.0.1:0",),
            config_file=file if config else None,
            max_connections=10,
        )
        server.start()
        running.append(server)
        return "{}:{}".format(*server.addresses[0])

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def secured(serve, tmp_path):
    """A server with TLS and a user, and the files that a client needs."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "password").write_text("s3cret\n")
    hashed = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    return serve(
        f"tls_server_config: {{cert_file: cert.pem, key_file: key.pem}}\nbasic_auth_users: {{ops: {hashed}}}\n"
    )


def read(url, **credentials):
    return ExporterPage(url, Credentials(**credentials)).view()


def refusal(url, **credentials):
    with pytest.raises(PageError) as error:
        read(url, **credentials)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_page_in_the_clear(serve):
    address = serve()
    assert read(f"http://{address}/metrics").timestamp == 1000.5
    assert read(f"http://{address}").timestamp == 1000.5


def test_a_page_behind_tls_and_a_password(secured, tmp_path):
    url = f"https://{secured}/metrics"
    files = {"ca_file": str(tmp_path / "ca.pem"), "password_file": str(tmp_path / "password")}
    assert read(url, user="ops", **files).timestamp == 1000.5
    assert read(f"https://ops:s3cret@{secured}/metrics", insecure=True).timestamp == 1000.5
    assert "HTTP 401 Unauthorized; give --user" in refusal(url, ca_file=files["ca_file"])
    assert "HTTP 401" in refusal(url, user="other", **files)
    assert "certificate is not trusted" in refusal(url, user="ops", password_file=files["password_file"])
    assert refusal(f"http://{secured}/metrics").startswith(f"http://{secured}/metrics: ")


def test_a_password_in_the_url_is_never_shown(secured):
    page = ExporterPage(f"https://ops:wrong@{secured}/metrics", Credentials(insecure=True))
    assert page.shown == f"https://{secured}/metrics"
    with pytest.raises(PageError) as error:
        page.view()
    assert "wrong" not in str(error.value)


def test_servers_that_have_no_page(serve):
    assert refusal(f"http://{serve(text=None)}/metrics").endswith("HTTP 503 no snapshot yet")
    assert refusal(f"http://{serve(text=b'up 1')}/metrics") == (
        "no page of podgpu: it has no podgpu_snapshot_timestamp_seconds"
    )
    assert refusal(f"http://{serve()}/nothing").endswith("HTTP 404 Not Found")
    assert "refused" in refusal("http://127.0.0.1:1/metrics").lower()


class _Redirecting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/stolen")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_redirects_are_not_followed():
    with http.server.HTTPServer(("127.0.0.1", 0), _Redirecting) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        told = refusal(f"http://127.0.0.1:{server.server_port}/metrics", user="ops")
        thread.join()
    assert told.endswith("HTTP 302 Found; redirects are not followed")


@pytest.mark.parametrize("url", ["127.0.0.1:9836", "ftp://x/metrics", "http://", "http://x:port/", "http://[::1/x"])
def test_a_url_that_is_none_is_refused_at_once(url):
    with pytest.raises(SettingsError, match="--url"):
        ExporterPage(url, Credentials())


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "password_file"])
def test_a_file_that_cant_be_read_is_named(name):
    with pytest.raises(SettingsError, match="/nowhere"):
        ExporterPage("https://x/metrics", Credentials(user="u", **{name: "/nowhere"}))
