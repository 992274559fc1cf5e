"""The live screen: asks for views in the background, so that keys are obeyed while a slow node answers."""

import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from exporter.top.choice import Choice
from exporter.top.frame import Frame, State, framed, keys, pressed
from exporter.top.pages import Views
from exporter.top.terminal import Terminal
from exporter.top.view import PageError, View

_TICK = 1.0  # seconds until the age of what is shown is told anew


def watch(
    views: Views,
    choice: Choice,
    *,
    interval: float,
    source: str,
    environment: Mapping[str, str] = os.environ,
    until: float = float("inf"),
) -> None:
    """Show views on the terminal, a new one every `interval` seconds, until the user ends it.

    `until` is a monotonic time at which it ends by itself. SIGTERM, SIGINT and a terminal that goes end it too.
    """
    background = ThreadPoolExecutor(1, "views")
    try:
        with Terminal(environment) as terminal, suppress(EOFError):  # then the terminal has gone
            _show(terminal, background, views, State(choice), interval=interval, source=source, until=until)
    finally:
        background.shutdown(wait=False, cancel_futures=True)


def _show(
    terminal: Terminal,
    background: ThreadPoolExecutor,
    views: Views,
    state: State,
    *,
    interval: float,
    source: str,
    until: float,
) -> None:
    seen: View | str | None = None
    asked: Future[View] | None = None
    due = time.monotonic()
    while not (state.ended or terminal.ended) and (now := time.monotonic()) < until:
        if asked is not None and asked.done():
            seen, asked = _result(asked), None
        if asked is None and now >= due:
            asked = background.submit(views)
            asked.add_done_callback(lambda _: terminal.wake())
            due = max(now, due + interval)
        frame = _draw(terminal, seen, state, source=source)
        for key in keys(terminal.wait(min(_TICK, until - now, *([due - now] if asked is None else [])))):
            state = pressed(state, key, frame=frame)


def _result(asked: "Future[View]") -> View | str:
    """The view, or why there is none: one that failed takes the place of the one before, which is the past."""
    try:
        return asked.result()
    except PageError as error:
        return str(error)


def _draw(terminal: Terminal, seen: View | str | None, state: State, *, source: str) -> Frame:
    frame = framed(seen, state, size=terminal.size(), now=time.time(), glyphs=terminal.glyphs, source=source)
    terminal.draw(frame.lines)
    return frame
