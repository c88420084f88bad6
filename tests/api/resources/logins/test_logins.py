"""Logins: the pages that may use them, how long they hold, and how soon one may try again."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from api.auth import directory
from api.auth.directory import Person
from api.auth.policy import UserRole
from api.clock import now
from api.resources.logins import callers, throttle
from api.tables.logins import Login, LoginTries
from api.tables.users import User, UserSource
from common.errors import ThrottledError, UnavailableError
from tests.api.cluster import V1, Cluster, ok, problems, refused, sign_in
from tests.api.endpoints.routes import open_websocket
from tests.installed import PASSWORD

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = now()

    def __call__(self) -> Any:
        return self.at

    def forward(self, **span: float) -> None:
        self.at += timedelta(**span)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("endpoints.logins", "resources.logins.service", "endpoints.access", "resources.api_keys.service"):
        monkeypatch.setattr(f"api.{module}.now", clock)
    return clock


async def attempt(guest: httpx.AsyncClient, password: str = "Wrong1horse!", name: str = "admin") -> httpx.Response:
    return await guest.post(f"{V1}/auth/login", json={"name": name, "password": password})


# --- pages that may use a login --------------------------------------------------------------------------------------


async def test_a_change_by_cookie_needs_the_logins_token(cluster: Cluster) -> None:
    async with cluster.client() as page, cluster.client() as other:
        login = await sign_in(page, "admin")
        other_login = await sign_in(other, "admin")
        token = page.headers.pop("X-CSRF-Token")
        body = {"name": "laptop"}
        for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "x"}, {"X-CSRF-Token": other_login["csrf_token"]}):
            error = await refused(page.post(f"{V1}/api-keys", json=body, headers=wrong), 403)
            assert error["where"] == "X-CSRF-Token"
        assert token == login["csrf_token"] == (await ok(page.get(f"{V1}/auth/csrf")))["csrf_token"]
        await ok(page.post(f"{V1}/api-keys", json=body, headers={"X-CSRF-Token": token}))


async def test_a_key_needs_no_token(cluster: Cluster) -> None:
    await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "laptop"}))
    await refused(cluster.admin.get(f"{V1}/auth/csrf"), 409)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://penstock:8443"},
        {"Origin": "http://penstock"},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_the_apps_of_sessions_on_another_port_cannot_use_the_login(
    cluster: Cluster, headers: dict[str, str]
) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        await refused(page.get(f"{V1}/auth/me", headers=headers), 403)
        await refused(page.get(f"{V1}/auth/csrf", headers=headers), 403)
        await refused(page.post(f"{V1}/api-keys", json={"name": "x"}, headers=headers), 403)


async def test_a_page_of_our_own_may(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        headers = {"Origin": "https://penstock", "Sec-Fetch-Site": "same-origin"}
        await ok(page.post(f"{V1}/api-keys", json={"name": "x"}, headers=headers))


@pytest.mark.parametrize(
    ("origin", "allowed"), [(None, False), ("https://penstock:8443", False), ("https://penstock", True)]
)
async def test_a_websocket_by_cookie_says_which_page_opens_it(
    cluster: Cluster, origin: str | None, allowed: bool
) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        cookie = f"__Host-penstock_session={page.cookies['__Host-penstock_session']}"
    headers = {"host": "penstock", "cookie": cookie} | ({"origin": origin} if origin else {})
    sent = await open_websocket(cluster.app, f"{V1}/sessions/nothing/exec", headers)
    assert (sent[0]["type"] == "websocket.accept") is allowed
    assert allowed or sent[0]["status"] == 403


# --- how long logins hold --------------------------------------------------------------------------------------------


async def test_a_login_that_is_not_used_ends(cluster: Cluster, clock: Clock) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        for _ in range(3):
            clock.forward(seconds=cluster.settings.login_idle_s - 61)
            await ok(page.get(f"{V1}/auth/me"))
        clock.forward(seconds=cluster.settings.login_idle_s + 1)
        await refused(page.get(f"{V1}/auth/me"), 401)


async def test_a_login_ends_even_if_it_is_used_all_the_time(cluster: Cluster, clock: Clock) -> None:
    async with cluster.client() as page:
        await sign_in(page, "admin")
        for _ in range(12):
            await ok(page.get(f"{V1}/auth/me"))
            clock.forward(hours=1)
        await refused(page.get(f"{V1}/auth/me"), 401)


async def test_the_last_use_is_written_once_a_minute(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[object] = []
    note_use = callers.note_use

    async def counted(*args: Any) -> None:
        writes.append(args)
        await note_use(*args)

    monkeypatch.setattr(callers, "note_use", counted)
    key = await ok(cluster.admin.post(f"{V1}/api-keys", json={"name": "laptop", "days": 1}))
    writes.clear()
    async with cluster.client(key["key"]) as laptop:
        for _ in range(6):
            await ok(laptop.get(f"{V1}/auth/me"))
            clock.forward(seconds=20)
        assert len(writes) == 2
        listed = {row["name"]: row for row in await ok(laptop.get(f"{V1}/api-keys"))}
        assert listed["laptop"]["used_at"] is not None
        clock.forward(days=1)
        await refused(laptop.get(f"{V1}/auth/me"), 401)


async def test_ones_own_logins_are_listed_and_ended(cluster: Cluster) -> None:
    async with cluster.client(**{"User-Agent": "Browser 1"}) as here, cluster.client() as there:
        await sign_in(here, "admin")
        await sign_in(there, "admin")
        rows = await ok(here.get(f"{V1}/auth/logins"))
        mine = [row for row in rows if row["current"]]
        assert [row["agent"] for row in mine] == ["Browser 1"]
        assert mine[0]["address"]
        other = rows[-1]
        assert not other["current"]
        await ok(here.delete(f"{V1}/auth/logins/{other['id']}"))
        await refused(there.get(f"{V1}/auth/me"), 401)
        await refused(here.delete(f"{V1}/auth/logins/{other['id']}"), 404)
        await ok(here.delete(f"{V1}/auth/logins"))
        await refused(here.get(f"{V1}/auth/me"), 401)
    assert (await ok(cluster.admin.get(f"{V1}/auth/me")))["name"] == "admin", "keys stay"


async def test_nobody_ends_the_login_of_another_user(cluster: Cluster) -> None:
    async with cluster.client() as page, await cluster.user("alice") as alice:
        await sign_in(page, "admin")
        [*_, login] = await ok(page.get(f"{V1}/auth/logins"))
        await refused(alice.delete(f"{V1}/auth/logins/{login['id']}"), 404)
        await ok(page.get(f"{V1}/auth/me"))


# --- how soon one may try again --------------------------------------------------------------------------------------


async def test_a_guesser_waits_longer_and_longer(cluster: Cluster, clock: Clock) -> None:
    async with cluster.client() as guest:
        for _ in range(throttle.FREE):
            assert (await attempt(guest, name="alice")).status_code == 401
        answer = await attempt(guest, name="alice")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        assert "wait 1 s" in problems(answer)[0]["hint"]
        clock.forward(seconds=1)
        assert (await attempt(guest, name="alice")).status_code == 401
        assert (await attempt(guest, name="alice")).headers["retry-after"] == "2"


async def test_the_right_password_waits_too_and_then_clears_the_count(cluster: Cluster, clock: Clock) -> None:
    await cluster.user("alice")
    async with cluster.client() as guest:
        for _ in range(throttle.FREE):
            await attempt(guest, name="alice")
        assert (await attempt(guest, PASSWORD, "alice")).status_code == 429
        clock.forward(seconds=2)
        assert (await attempt(guest, PASSWORD, "alice")).status_code == 200
        assert (await attempt(guest, name="alice")).status_code == 401
        assert (await attempt(guest, PASSWORD, "alice")).status_code == 200


async def test_names_that_nobody_has_are_throttled_alike(cluster: Cluster, clock: Clock) -> None:
    async with cluster.client() as guest:
        answers = {}
        for name in ("admin", "nobody"):
            await forget_successes(cluster)
            answers[name] = [(await attempt(guest, name=name)).status_code for _ in range(throttle.FREE + 1)]
    assert answers["admin"] == answers["nobody"]
    assert answers["nobody"][-1] == 429


async def test_who_guesses_from_elsewhere_does_not_keep_the_administrator_out(cluster: Cluster, clock: Clock) -> None:
    """The administrator has signed in here before; the guesser tries for hours from other addresses."""
    async with cluster.client() as page:
        await sign_in(page, "admin")
    for hour in range(4):
        for host in range(60):
            clock.forward(minutes=1)
            with suppress(ThrottledError):
                await fail_from(cluster, clock, f"198.51.100.{host}")
        async with cluster.client() as page:
            assert (await attempt(page, PASSWORD)).status_code == 200, f"hour {hour}"


async def test_from_a_new_address_the_wait_has_an_end_whatever_others_do(cluster: Cluster, clock: Clock) -> None:
    for host in range(40):
        await fail_from(cluster, clock, f"198.51.100.{host}")
        clock.forward(seconds=throttle.LONGEST_S)
    async with cluster.database.transaction() as db:
        await throttle.begin(db, throttle.Try("admin", "192.0.2.77"), clock())


async def test_a_try_that_is_refused_makes_nobody_wait_longer(cluster: Cluster, clock: Clock) -> None:
    for _ in range(throttle.FREE):
        await fail_from(cluster, clock, "198.51.100.1")
    for _ in range(50):
        with pytest.raises(ThrottledError) as raised:
            await fail_from(cluster, clock, "198.51.100.1")
    assert raised.value.retry_after_s == 1


async def test_a_crowd_of_guesses_at_once_gains_nothing(cluster: Cluster, clock: Clock) -> None:
    """A try counts before its password is looked at."""
    for _ in range(throttle.FREE):
        await fail_from(cluster, clock, "198.51.100.1")
    with pytest.raises(ThrottledError):
        await fail_from(cluster, clock, "198.51.100.1")


async def test_an_account_of_ones_own_buys_no_tries_at_others(cluster: Cluster, clock: Clock) -> None:
    address = "198.51.100.9"
    for number in range(throttle.FREE_OF_ADDRESS):
        await fail_from(cluster, clock, address, f"victim-{number}")
        async with cluster.database.transaction() as db:
            mine = throttle.Try("mallory", address)
            await throttle.begin(db, mine, clock())
            await throttle.succeed(db, mine, clock())
    with pytest.raises(ThrottledError):
        await fail_from(cluster, clock, address, "one-more")


async def test_a_clock_that_was_ahead_keeps_nobody_out(cluster: Cluster, clock: Clock) -> None:
    await cluster.user("alice")
    async with cluster.client() as guest:
        clock.forward(hours=30)
        assert (await attempt(guest, name="nobody")).status_code == 401
        assert (await attempt(guest, PASSWORD, "alice")).status_code == 200
        clock.forward(hours=-30)
        assert (await attempt(guest, PASSWORD, "alice")).status_code == 200
        assert (await attempt(guest, PASSWORD, "admin")).status_code == 200


async def test_who_failed_often_ahead_of_the_time_waits_as_long_as_others(cluster: Cluster, clock: Clock) -> None:
    clock.forward(hours=30)
    for _ in range(throttle.FREE):
        await fail_from(cluster, clock, "198.51.100.1")
    clock.forward(hours=-30)
    with pytest.raises(ThrottledError) as raised:
        await fail_from(cluster, clock, "198.51.100.1")
    assert raised.value.retry_after_s == 1


async def test_old_tries_are_forgotten(cluster: Cluster, clock: Clock) -> None:
    await fail_from(cluster, clock, "198.51.100.1", "nobody")
    clock.forward(days=2)
    await fail_from(cluster, clock, "198.51.100.2", "somebody")
    async with cluster.database.reading() as db:
        subjects = set(await db.scalars(select(LoginTries.subject)))
    assert "name nobody" not in subjects
    assert "name somebody" in subjects


async def test_a_directory_that_is_away_counts_for_nobody(
    cluster: Cluster, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password may well be right: as soon as the directory is back, it lets in."""

    async def away(*_: Any) -> Person:
        raise UnavailableError("the directory does not answer", hint="try again")

    async def back(*_: Any) -> Person:
        return Person("entry-1", UserRole.MEMBER)

    await cluster.user("alice")
    async with cluster.database.transaction() as db:
        await db.execute(update(User).where(User.name == "alice").values(source=UserSource.LDAP))
    for _ in range(throttle.FREE):
        await fail_from(cluster, clock, "127.0.0.1", "alice")
    clock.forward(seconds=1)
    async with cluster.client() as guest:
        monkeypatch.setattr(directory, "person", away)
        for _ in range(2 * throttle.FREE):
            assert (await attempt(guest, name="alice")).status_code == 503
        monkeypatch.setattr(directory, "person", back)
        assert (await attempt(guest, name="alice")).status_code == 200


async def fail_from(cluster: Cluster, clock: Clock, address: str, name: str = "admin") -> None:
    """Begin a try that never succeeds."""
    async with cluster.database.transaction() as db:
        await throttle.begin(db, throttle.Try(name, address), clock())


async def forget_successes(cluster: Cluster) -> None:
    async with cluster.database.transaction() as db:
        await db.execute(update(LoginTries).values(succeeded_at=None, failures=0))
        await db.execute(update(Login).values(used_at=None))
