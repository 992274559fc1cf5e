from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.application import Application
from exporter.web.messages import Request
from exporter.web.pages import Page, PageStore


def application(**settings):
    return Application(PageStore(), healthy=lambda: None, version="1", **settings)


def test_before_the_first_page_only_health_is_green(serve):
    served = serve(None)
    response, body = served.get("/metrics")
    assert (response.status, body) == (503, b"no snapshot yet\n")
    assert response.getheader("Retry-After") == "2"
    assert served.get("/-/ready")[0].status == 503
    assert served.get("/-/healthy")[1] == b"ok\n"
    served.store.publish(Page.of(text=b"", openmetrics=b"# EOF\n"))
    assert served.get("/-/ready")[0].status == 200
    response, body = served.get("/metrics")
    assert (response.status, response.getheader("Content-Length"), body) == (200, "0", b"")


def test_a_stuck_sampler_turns_health_red_and_leaves_the_page(serve):
    served = serve()
    served.stuck.append("no cycle for 42 s")
    response, body = served.get("/-/healthy")
    assert (response.status, body) == (503, b"no cycle for 42 s\n")
    assert served.get("/metrics")[0].status == 200
    assert served.get("/-/ready")[0].status == 200


def test_landing_page_links_and_escapes(serve):
    response, body = serve().get("/")
    assert response.status == 200
    assert response.getheader("Content-Type") == "text/html; charset=utf-8"
    assert b'href="/metrics"' in body
    assert b"1.2&lt;3" in body


def test_favicon_is_empty(serve):
    response, body = serve().get("/favicon.ico")
    assert (response.status, body) == (204, b"")


@pytest.mark.parametrize("path", ["/metrics/", "/metricsx", "/-/health", "//", "/%00", "/..%2fetc/passwd", "/METRICS"])
def test_other_paths_are_not_found_and_not_echoed(serve, path):
    response, body = serve().get(path)
    assert (response.status, body) == (404, b"not found\n")


def test_a_query_does_not_change_the_path(serve):
    assert serve().get("/metrics?name[]=up")[1] == b"up 1\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
def test_other_methods_are_refused_with_the_allowed_ones(serve, method):
    response, _ = serve().get(method=method)
    assert (response.status, response.getheader("Allow")) == (405, "GET, HEAD")


def test_every_response_is_dated_and_names_no_server_software(serve):
    response, _ = serve().get()
    assert response.getheader("Date")
    assert response.getheader("Server") is None


@pytest.mark.parametrize("path", ["metrics", "", "/-/healthy", "/-/ready", "/favicon.ico"])
def test_impossible_telemetry_paths_are_refused(path):
    with pytest.raises(ValueError, match="telemetry path"):
        application(telemetry_path=path)


def test_telemetry_may_take_the_place_of_the_landing_page():
    response = application(telemetry_path="/").answer(Request("GET", "/"))
    assert response.body == b"no snapshot yet\n"


def test_an_own_telemetry_path_is_linked():
    root = application(telemetry_path='/m"x').answer(Request("GET", "/"))
    assert b'href="/m&quot;x"' in root.body


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.text())))
def test_every_request_has_an_answer(method, path, headers):
    response = application().answer(Request(method, path, tuple(headers)))
    assert response.status in HTTPStatus
