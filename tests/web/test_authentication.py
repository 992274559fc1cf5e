import asyncio
import base64
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.authentication import PasswordChecks, Verdict, basic_credentials
from exporter.web.connections import Timeouts
from exporter.web.security import WatchedSecurity


def hash_of(password: str, cost: int = 4) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


def config(tmp_path, users, extra=""):
    path = tmp_path / "web.yml"
    path.write_text("basic_auth_users:\n" + "".join(f"  {user}: {hashed}\n" for user, hashed in users.items()) + extra)
    return path


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def status(served, path="/metrics", **headers):
    return served.get(path, **headers)[0].status


def test_right_and_wrong_credentials(serve, tmp_path):
    served = serve(config_file=config(tmp_path, {"alice": hash_of("wonder"), "bob": hash_of("pass:word")}))
    for _ in range(2):  # the second time from memory
        assert status(served, Authorization=basic("alice", "wonder")) == 200
        assert status(served, Authorization=basic("bob", "pass:word")) == 200
        assert status(served, Authorization=basic("alice", "pass:word")) == 401
        assert status(served, Authorization=basic("carol", "wonder")) == 401
        assert status(served, Authorization=basic("", "")) == 401
        assert status(served, Authorization=basic("alice", "w" * 5000)) == 401
    response, body = served.get()
    assert (response.status, body) == (401, b"unauthorized\n")
    assert response.getheader("WWW-Authenticate") == 'Basic realm="podgpu"'


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/favicon.ico", "/nothing"])
def test_every_path_is_behind_it(serve, tmp_path, path):
    served = serve(config_file=config(tmp_path, {"a": hash_of("b")}))
    assert status(served, path) == 401
    assert status(served, path, Authorization=basic("a", "b")) != 401


def test_hashes_of_htpasswd_are_understood(serve, tmp_path):
    served = serve(config_file=config(tmp_path, {"a": hash_of("b").replace("$2b$", "$2y$")}))
    assert status(served, Authorization=basic("a", "b")) == 200


@given(st.text())
def test_no_authorization_header_is_an_error(header):
    basic_credentials(header)


@given(st.text(alphabet=st.characters(exclude_characters=":", exclude_categories=["Cs"])), st.binary())
def test_credentials_survive_the_header(user, password):
    header = "bAsIc " + base64.b64encode(user.encode() + b":" + password).decode()
    assert basic_credentials(header) == (user, password)


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !", "Bearer YTpi", "Basic YWI=", "Basic /zpi", "Basic YTpi, Basic YTpi"]
)
def test_other_headers_are_no_credentials(header):
    assert basic_credentials(header) is None


def test_a_password_is_hashed_once_however_many_scrape(serve, tmp_path):
    hashed = hash_of("b", cost=12)
    started = time.monotonic()
    bcrypt.checkpw(b"b", hashed.encode())
    once = time.monotonic() - started
    served = serve(config_file=config(tmp_path, {"a": hashed}))
    started = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        statuses = set(pool.map(lambda _: status(served, Authorization=basic("a", "b")), range(20)))
    first = time.monotonic() - started
    assert statuses == {200}
    assert first < 10 * once
    started = time.monotonic()
    assert status(served, Authorization=basic("a", "b")) == 200
    assert time.monotonic() - started < first / 3
    assert len([t for t in threading.enumerate() if t.name.startswith("exporter-web-passwords")]) == 1


def test_unknown_users_cost_as_much_as_wrong_passwords(serve, tmp_path):
    served = serve(config_file=config(tmp_path, {"a": hash_of("b", cost=10), "c": hash_of("d", cost=4)}))

    def seconds(user, attempt):
        started = time.monotonic()
        assert status(served, Authorization=basic(user, f"x{attempt}")) == 401
        return time.monotonic() - started

    wrong = min(seconds("a", attempt) for attempt in range(5))
    unknown = min(seconds("z", attempt) for attempt in range(5))
    assert 0.5 < unknown / wrong < 2


def test_a_flood_of_guesses_neither_delays_known_credentials_nor_piles_up(serve, tmp_path):
    served = serve(config_file=config(tmp_path, {"a": hash_of("b", cost=10)}), timeouts=Timeouts(10, 30, 60))
    assert status(served, Authorization=basic("a", "b")) == 200
    slowest = 0.0
    with ThreadPoolExecutor(40) as pool:
        guesses = [pool.submit(status, served, Authorization=basic("a", f"guess{i}")) for i in range(40)]
        while not all(guess.done() for guess in guesses):
            started = time.monotonic()
            assert status(served, Authorization=basic("a", "b")) == 200
            slowest = max(slowest, time.monotonic() - started)
    assert {guess.result() for guess in guesses} <= {401, 503}
    assert slowest < 1.5  # all guesses together take longer


def test_only_so_many_wait_for_their_check():
    users = {"a": hash_of("b", cost=8).encode()}

    async def flood():
        checks = PasswordChecks()
        return await asyncio.gather(*(checks.verdict(users, "a", b"%d" % i) for i in range(100)))

    verdicts = asyncio.run(flood())
    assert (verdicts.count(Verdict.REFUSED), verdicts.count(Verdict.BUSY)) == (32, 68)


def test_remembered_results_are_bounded_and_hold_no_password():
    users = {"a": hash_of("right").encode()}

    async def many():
        checks = PasswordChecks()
        assert await checks.verdict(users, "a", b"right") is Verdict.GRANTED
        for i in range(600):
            await checks.verdict(users, "a", b"wrong%d" % i)
        return checks

    remembered = [value for value in vars(asyncio.run(many())).values() if hasattr(value, "maxsize")]
    assert sorted(len(cache) for cache in remembered) == [1, 256]
    assert "right" not in repr(remembered)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_users_are_renewed_and_a_broken_file_keeps_the_old_ones(tmp_path, caplog):
    caplog.set_level("INFO", "exporter.web")
    clock = Clock()
    path = config(tmp_path, {"a": hash_of("1")})
    watched = WatchedSecurity(path, clock=clock)
    assert set(watched.current().users) == {"a"}
    config(tmp_path, {"b": hash_of("1")})
    assert set(watched.current().users) == {"a"}  # looked at once a second
    clock.now += 1.0
    assert set(watched.current().users) == {"b"}
    path.write_text("basic_auth_users:\n  c: clear\n")
    for _ in range(5):
        clock.now += 1.0
        assert set(watched.current().users) == {"b"}
    path.unlink()
    for _ in range(5):
        clock.now += 1.0
        assert set(watched.current().users) == {"b"}
    config(tmp_path, {"d": hash_of("1")})
    clock.now += 1.0
    assert set(watched.current().users) == {"d"}
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING", "INFO"]
    assert f"{path}:2: basic_auth_users.c: " in caplog.text


def test_a_changed_password_ends_the_old_one_at_once(tmp_path):
    async def verdicts():
        checks = PasswordChecks()
        old, new = {"a": hash_of("1").encode()}, {"a": hash_of("2").encode()}
        return [await checks.verdict(users, "a", b"1") for users in (old, new, old)]

    assert asyncio.run(verdicts()) == [Verdict.GRANTED, Verdict.REFUSED, Verdict.GRANTED]


def test_configured_headers_are_on_every_response(serve, tmp_path):
    extra = "http_server_config:\n  headers:\n    X-Content-Type-Options: nosniff\n"
    served = serve(config_file=config(tmp_path, {"a": hash_of("b")}, extra))
    for headers in ({}, {"Authorization": basic("a", "b")}):
        assert served.get("/", **headers)[0].getheader("X-Content-Type-Options") == "nosniff"
