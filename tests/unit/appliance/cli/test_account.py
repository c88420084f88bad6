"""Log in and out, and what is remembered."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import config
from appliance.client import Client
from appliance.client.transport import NO_NAMES, Query
from common.errors import InputError, UnauthenticatedError
from tests.unit.appliance.cli import samples
from tests.unit.appliance.cli.conftest import URL, FakeApi, Run


def signed_in(**changes: Any) -> dict[str, Any]:
    return {**samples.user(**changes), "csrf_token": "token"}


def answer_login(api: FakeApi, key_id: str = "key-1") -> None:
    api.on("POST", "/auth/login", signed_in(), Set_Cookie="penstock_session=abc; HttpOnly")
    api.on("POST", "/api-keys", {"id": key_id, "name": "here", "key": "pk_secret"}, status=201)
    api.on("POST", "/auth/logout", {"done": True})


def test_login_trades_the_password_for_a_key_and_keeps_the_key_only(api: FakeApi, run: Run) -> None:
    answer_login(api)
    code, out, err = run("login", URL, "--user", "alice", "--password-stdin", stdin="Turb1ne~wheel\n")
    assert (code, out, err) == (0, f"Logged in to {URL} as alice.\n", "")
    assert [call.path.removeprefix("/api/v1") for call in api.calls] == ["/auth/login", "/api-keys", "/auth/logout"]
    assert api.calls[0].body == {"name": "alice", "password": "Turb1ne~wheel"}
    assert all(call.headers["Cookie"] == "penstock_session=abc" for call in api.calls[1:])
    assert all(call.headers["X-CSRF-Token"] == "token" for call in api.calls[1:])
    assert config.load() == config.Config(URL, "pk_secret", "key-1")
    assert "Turb1ne" not in config.path().read_text()
    assert stat.S_IMODE(config.path().stat().st_mode) == 0o600
    assert [entry.name for entry in config.path().parent.iterdir()] == ["config.json"]


def test_a_password_that_was_given_is_replaced_first(api: FakeApi, run: Run) -> None:
    answer_login(api)
    api.on("POST", "/auth/login", signed_in(must_change_password=True), Set_Cookie="penstock_session=abc")
    api.on("POST", "/auth/password", samples.user())
    code, _, err = run("login", URL, "--user", "alice", "--password-stdin", stdin="given\nMy0wn~word\n")
    assert (code, api.calls[1].path, api.calls[1].body) == (0, "/api/v1/auth/password", {"password": "My0wn~word"})
    assert err == "The password that you were given has to be replaced by one of your own.\n"


def test_login_keeps_the_text_of_the_certificate(api: FakeApi, run: Run, tmp_path: Path) -> None:
    from tests.unit.appliance.cli.certificate import PEM

    answer_login(api)
    (tmp_path / "ca.crt").write_text(PEM)
    code, _, err = run("login", URL, "--user", "a", "--password-stdin", "--ca", str(tmp_path / "ca.crt"), stdin="x\n")
    assert (code, err) == (0, "")
    assert config.load().ca == PEM


def test_second_login_keeps_the_project_and_revokes_the_key_before(logged_in: FakeApi, run: Run) -> None:
    answer_login(logged_in, "key-2")
    logged_in.on("GET", "/api-keys", [samples.api_key(id="key-1"), samples.api_key()])
    logged_in.on("DELETE", "/api-keys/key-1", {"done": True, "with_it": 0})
    assert run("login", URL, "--user", "alice", "--password-stdin", stdin="x\n")[0] == 0
    assert config.load() == config.Config(URL, "pk_secret", "key-2", project="team-a")
    assert logged_in.last.path == "/api/v1/api-keys/key-1"
    assert logged_in.last.headers["Authorization"] == "Bearer pk_secret"


def test_second_login_keeps_the_key_before_where_others_would_go_with_it(logged_in: FakeApi, run: Run) -> None:
    answer_login(logged_in, "key-2")
    logged_in.on("GET", "/api-keys", [samples.api_key(id="key-1"), samples.api_key(made_by="key-1")])
    code, _, err = run("login", URL, "--user", "alice", "--password-stdin", stdin="x\n")
    assert (code, config.load().key_id, logged_in.last.method) == (0, "key-2", "GET")
    assert "`penstock apikey revoke key-1` ends them all" in err


def test_logout_says_which_keys_went_too(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("DELETE", "/api-keys/key-1", {"done": True, "with_it": 2})
    assert run("logout")[1] == f"Logged out of {URL}, and with it keys that it had made: 2.\n"


def test_a_site_made_anew_at_the_same_address_does_not_spoil_the_login(logged_in: FakeApi, run: Run) -> None:
    answer_login(logged_in, "key-2")
    logged_in.refuse("GET", "/api-keys", 503, "", "the database is away", "try again")
    code, _, err = run("login", URL, "--user", "alice", "--password-stdin", stdin="x\n")
    assert code == 0
    assert err.startswith("warning: the key could not be revoked: ")
    assert config.load().key_id == "key-2"


def test_the_key_before_is_revoked_under_the_authority_of_now(
    logged_in: FakeApi, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.appliance.cli.certificate import PEM

    answer_login(logged_in, "key-2")
    logged_in.on("GET", "/api-keys", [samples.api_key(id="key-1"), samples.api_key()])
    logged_in.on("DELETE", "/api-keys/key-1", {"done": True, "with_it": 0})
    (tmp_path / "ca.crt").write_text(PEM)
    authorities: list[str] = []
    call = Client.call

    def noting(client: Client, *arguments: object, **more: object) -> object:
        authorities.append(client.ca)
        return call(client, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "call", noting)
    run("login", URL, "--user", "a", "--password-stdin", "--ca", str(tmp_path / "ca.crt"), stdin="x\n")
    assert logged_in.last.path == "/api/v1/api-keys/key-1"
    assert set(authorities) == {PEM}


def test_wrong_password_changes_nothing(logged_in: FakeApi, run: Run) -> None:
    before = config.load()
    logged_in.refuse("POST", "/auth/login", 401, "password", "name or password is wrong", "ask your administrator")
    code, out, err = run("login", URL, "--user", "alice", "--password-stdin", stdin="x\n")
    assert (code, out) == (9, "")
    assert err == "error: password: name or password is wrong. Hint: ask your administrator\n"
    assert config.load() == before


@pytest.mark.parametrize("stdin", ["", "\n"])
def test_no_password_is_an_error(api: FakeApi, run: Run, stdin: str) -> None:
    code, _, err = run("login", URL, "--user", "alice", "--password-stdin", stdin=stdin)
    assert code == 2
    assert err.startswith("error: password: no password was given.")
    assert run("login", URL, "--user", "alice")[0] == 2
    assert not api.calls


def test_logout_revokes_and_forgets(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/api-keys", [samples.api_key(id="key-1"), samples.api_key()])
    logged_in.on("DELETE", "/api-keys/key-1", {"done": True, "with_it": 0})
    assert run("logout") == (0, f"Logged out of {URL}.\n", "")
    assert config.find() is None
    assert run("logout")[0] == 9


def test_logout_forgets_even_where_the_api_is_away(logged_in: FakeApi, run: Run) -> None:
    logged_in.trouble = ConnectionRefusedError()
    code, _, err = run("logout")
    assert code == 0
    assert err.startswith("warning: the key could not be revoked: ")
    assert config.find() is None


def test_a_damaged_login_is_an_error_with_a_hint_and_can_be_replaced(logged_in: FakeApi, run: Run) -> None:
    config.path().write_text("{")
    code, _, err = run("list")
    assert code == 2
    assert str(config.path()) in err
    assert "penstock login" in err
    answer_login(logged_in)
    assert run("login", URL, "--user", "alice", "--password-stdin", stdin="x\n")[0] == 0


def test_without_a_login_every_command_says_so(api: FakeApi, run: Run) -> None:
    for command in (["list"], ["get", "x"], ["submit", "x", "-i", "y", "-g", "1"], ["node", "list"], ["bash", "x"]):
        code, out, err = run(*command)
        assert (code, out) == (9, "")
        assert err == "error: you are not logged in. Hint: run `penstock login https://MASTER:56789 --user NAME`\n"


@pytest.mark.parametrize(
    "url", ["master1", "ftp://master1", "https://", "https://m:x", "https://m/path", "http://m", "https://[m"]
)
def test_addresses_that_cannot_be(url: str) -> None:
    with pytest.raises(InputError) as caught:
        Client(url)
    assert caught.value.problems[0].where == "url"


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://m:56789/", ("m", 56789, True)),
        ("https://m", ("m", 443, True)),
        ("http://127.0.0.1:8000", ("127.0.0.1", 8000, False)),
        ("https://[fd00::1]:1", ("fd00::1", 1, True)),
    ],
)
def test_addresses_that_can_be(url: str, parts: tuple[str, int, bool]) -> None:
    client = Client(url)
    assert (client.host, client.port, client.secure) == parts


def test_address_of_a_websocket() -> None:
    query: Query = {"tty": True, "command": '["sh"]', "none": None}
    assert (
        Client(URL).websocket("/x", NO_NAMES, query) == "wss://master1:56789/api/v1/x?tty=true&command=%5B%22sh%22%5D"
    )
    assert Client("http://[::1]:1").websocket("/x", NO_NAMES, {}) == "ws://[::1]:1/api/v1/x"


def _untrusted() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = "unable to get local issuer certificate"
    return error


@pytest.mark.parametrize(
    ("trouble", "reason", "hint"),
    [
        (ConnectionRefusedError(111, "refused"), "nothing listens there", "control API runs"),
        (socket.gaierror(-2, "Name or service not known"), "the name master1 is not known here", "use a number"),
        (TimeoutError("timed out"), "it does not answer in time", "check the address"),
        (_untrusted(), "its certificate is not trusted: unable to get local issuer certificate", "--ca ca.crt"),
        (ssl.SSLError(1, "wrong version"), "it does not speak TLS as expected", "check port and scheme"),
        (OSError(113, "No route to host"), "it cannot be reached: No route to host", "check the address"),
    ],
)
def test_api_that_cannot_be_reached_is_named_with_reason_and_hint(
    logged_in: FakeApi, run: Run, trouble: OSError, reason: str, hint: str
) -> None:
    logged_in.trouble = trouble
    code, out, err = run("list")
    assert (code, out) == (5, "")
    assert err.startswith(f"error: {URL}: {reason}")
    assert hint in err


def test_key_that_is_not_valid_any_more(logged_in: FakeApi, run: Run) -> None:
    logged_in.refuse("GET", "/sessions", 401, "", "the caller is not signed in", "sign in")
    code, _, err = run("list")
    assert code == UnauthenticatedError.exit_code
    assert err == (
        f"error: {URL}: the remembered key is not valid any more. Hint: run `penstock login {URL} --user NAME`\n"
    )


def test_answer_that_is_not_the_api_s(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("GET", "/sessions", b"<html>Bad Gateway</html>", status=502)
    code, _, err = run("list")
    assert code == 5
    assert err.startswith(f"error: {URL}: it answers with status 502.")


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [(200, b"<html>Welcome</html>", "it answers what is not JSON"), (301, b"", "it answers with status 301")],
)
def test_something_else_that_answers_there(logged_in: FakeApi, run: Run, status: int, body: bytes, reason: str) -> None:
    logged_in.on("GET", "/sessions", body, status=status)
    code, out, err = run("list")
    assert (code, out) == (5, "")
    assert err.startswith(f"error: {URL}: {reason}.")


def test_every_problem_is_shown(logged_in: FakeApi, run: Run) -> None:
    problems = [{"pointer": place, "detail": "is wrong", "hint": "mend it"} for place in ("/name", "/image")]
    logged_in.on("POST", "/sessions", {"errors": problems}, status=422)
    code, out, err = run("submit", "x", "-i", "y", "-g", "1")
    assert (code, out) == (2, "")
    assert err == "error: NAME: is wrong. Hint: mend it\nerror: -i: is wrong. Hint: mend it\n"


def test_a_failure_of_the_api_names_the_request_for_the_administrator(logged_in: FakeApi, run: Run) -> None:
    failed = {"detail": "the database does not answer", "hint": "try again"}
    logged_in.on("GET", "/sessions", {"request_id": "5e55", "errors": [failed]}, status=503)
    code, out, err = run("list")
    assert (code, out) == (5, "")
    assert err == "error: the database does not answer. Hint: try again (request 5e55)\n"


def test_config_is_written_beside_and_renamed(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    config.save(config.Config(URL, "one", "1"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match="No space left on device"):
        config.save(config.Config(URL, "two", "2"))
    assert config.load().api_key == "one"


def test_the_language_of_the_console_is_chosen_or_left_to_the_browser(logged_in: FakeApi, run: Run) -> None:
    logged_in.on("PATCH", "/auth/me", samples.user())
    assert run("language", "ko")[:2] == (0, "The console speaks ko.\n")
    assert run("language", "auto")[:2] == (0, "The console speaks the language of your browser.\n")
    assert [call.body for call in logged_in.calls if call.method == "PATCH"] == [{"language": "ko"}, {"language": None}]
    code, _, err = run("language", "de")
    assert code == 2
    assert "the console does not speak de" in err
    assert "choose en, ko, ja, zh, th or auto" in err
