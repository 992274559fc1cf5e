"""What each path answers: the page, a landing page, and the two questions of the kubelet.

Guarantees that no request reads anything but the last published page and one health callable. `/-/healthy` is about
the process, not about the node: a sick GPU keeps it green, only a stuck sampler turns it red, because only that is
cured by a restart. Nothing that a client sends is ever echoed.
"""

from collections.abc import Callable
from html import escape
from http import HTTPStatus

from exporter.web.messages import Receive, Request, Response, Scope, Send, send_response
from exporter.web.negotiation import Format, accepts_gzip, choose_format
from exporter.web.pages import Page, PageStore

HEALTHY_PATH = "/-/healthy"
READY_PATH = "/-/ready"
_FAVICON_PATH = "/favicon.ico"
_RETRY_AFTER_SECONDS = "2"  # a first snapshot takes no longer


class Application:
    """The ASGI application.

    Raises ValueError for a telemetry path that is no path or hides one of the fixed ones.
    """

    def __init__(
        self,
        store: PageStore,
        *,
        healthy: Callable[[], str | None],
        version: str,
        telemetry_path: str = "/metrics",
    ) -> None:
        """`healthy` answers None, or one line that says what is stuck; it must return at once."""
        if not telemetry_path.startswith("/") or telemetry_path in (HEALTHY_PATH, READY_PATH, _FAVICON_PATH):
            raise ValueError(
                f"the telemetry path {telemetry_path!r} must start with '/' and be none of "
                f"{HEALTHY_PATH}, {READY_PATH}, {_FAVICON_PATH}"
            )
        self._store = store
        self._healthy = healthy
        self._routes: dict[str, Callable[[Request], Response]] = {
            "/": lambda _: landing,
            HEALTHY_PATH: self._health,
            READY_PATH: self._readiness,
            _FAVICON_PATH: lambda _: Response(HTTPStatus.NO_CONTENT),
            telemetry_path: self._telemetry,  # last: it may take the place of the landing page
        }
        landing = _landing_page(version, telemetry_path)

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request.of(scope)
        await send_response(request, self.answer(request), send)

    def answer(self, request: Request) -> Response:
        """The response to `request`; reads the current page at most once."""
        route = self._routes.get(request.path)
        if route is None:
            return Response.line(HTTPStatus.NOT_FOUND, "not found")
        if request.method not in ("GET", "HEAD"):
            return Response.line(
                HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed", headers=(("Allow", "GET, HEAD"),)
            )
        return route(request)

    def _telemetry(self, request: Request) -> Response:
        page = self._store.current()
        if page is None:
            return Response.line(
                HTTPStatus.SERVICE_UNAVAILABLE, "no snapshot yet", headers=(("Retry-After", _RETRY_AFTER_SECONDS),)
            )
        chosen = choose_format(request.header("accept"))
        compressed = accepts_gzip(request.header("accept-encoding"))
        return Response(
            HTTPStatus.OK,
            body=_bytes_of(page, chosen, compressed=compressed),
            content_type=chosen.content_type,
            headers=(("Vary", "Accept, Accept-Encoding"), *((("Content-Encoding", "gzip"),) if compressed else ())),
        )

    def _health(self, _request: Request) -> Response:
        stuck = self._healthy()
        if stuck is None:
            return Response.line(HTTPStatus.OK, "ok")
        return Response.line(HTTPStatus.SERVICE_UNAVAILABLE, stuck)

    def _readiness(self, _request: Request) -> Response:
        if self._store.current() is None:
            return Response.line(HTTPStatus.SERVICE_UNAVAILABLE, "no snapshot yet")
        return Response.line(HTTPStatus.OK, "ready")


def _bytes_of(page: Page, chosen: Format, *, compressed: bool) -> bytes:
    if chosen is Format.OPENMETRICS:
        return page.openmetrics_gzip if compressed else page.openmetrics
    return page.text_gzip if compressed else page.text


def _landing_page(version: str, telemetry_path: str) -> Response:
    links = "".join(
        f'<li><a href="{escape(path)}">{escape(label)}</a></li>\n'
        for path, label in ((telemetry_path, "Metrics"), (HEALTHY_PATH, "Health"), (READY_PATH, "Readiness"))
    )
    html = (
        '<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>podgpu exporter</title></head>\n'
        "<body>\n<h1>podgpu exporter</h1>\n"
        "<p>GPU memory and MPS shares of the pods on this node.</p>\n"
        f"<p>Version {escape(version)}</p>\n<ul>\n{links}</ul>\n</body>\n</html>\n"
    )
    return Response(HTTPStatus.OK, body=html.encode(), content_type="text/html; charset=utf-8")
