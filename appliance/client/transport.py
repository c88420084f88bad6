"""HTTP to the control API: one call, one connection, and every answer that is no success as an error of ours.

Only the standard library's HTTP is used: it loads in a few hundredths of a second, and `penstock list` is run often.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from common import problem
from common.errors import InputError, PenstockError, UnauthenticatedError, UnavailableError, kind_of

T = TypeVar("T")

PREFIX = "/api/v1"
CSRF_HEADER = "X-CSRF-Token"
NEXT_HEADER = "X-Next"
PAGE = 1000
"""How many items of a list are asked for at a time."""
CONNECT_S = 10.0
ANSWER_S = 60.0

_CHUNK = 1 << 16
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Query = Mapping[str, str | int | bool | Sequence[str] | None]
"""Parameters of an address; those that are None are left out, and a list is one parameter several times."""

NO_NAMES: Mapping[str, str] = {}


class Transport:
    """A control API at `url`, called with an API key; `ca` is the PEM text of the site's authority.

    `answer_s` limits the wait for each part of an answer, in seconds.
    """

    def __init__(self, url: str, *, api_key: str = "", ca: str = "", answer_s: float = ANSWER_S) -> None:
        """Prepare; raises InputError where the address cannot be one."""
        self.url = url.rstrip("/")
        self.host, self.port, self.secure = _parse(self.url)
        self.ca = ca
        self.answer_s = answer_s
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def call(
        self,
        kind: type[T],
        method: str,
        path: str,
        names: Mapping[str, str] = NO_NAMES,
        *,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        patient: bool = False,
    ) -> T:
        """Call an operation and return its answer, which is of a `kind`; `patient` waits for it as long as it takes.

        `path` is that of the API's document; `names` are put in place of what stands in braces. Raises the
        PenstockError that the answer stands for.
        """
        with self._answer(method, filled(path, names), body, query, None if patient else self.answer_s) as answer:
            found: T = self._json(answer)
            return found

    def pages(self, kind: type[T], path: str, *, query: Query) -> Iterator[list[T]]:
        """Yield the pages of a list whose items are of a `kind`, as many as there are."""
        after: str | None = None
        while True:
            with self._answer("GET", path, None, {**query, "limit": PAGE, "after": after}, self.answer_s) as answer:
                found: list[T] = self._json(answer)
                after = answer.headers.get(NEXT_HEADER)
            yield found
            if after is None:
                return

    def stream(self, path: str, names: Mapping[str, str], query: Query | None = None) -> Iterator[bytes]:
        """Yield the bytes of an answer as they come, however long that takes."""
        with self._answer("GET", filled(path, names), None, query, None) as answer:
            while chunk := self._read(lambda: answer.read1(_CHUNK)):
                yield chunk

    def websocket(self, path: str, names: Mapping[str, str], query: Query) -> str:
        """Return the address of a WebSocket of the API."""
        scheme = "wss" if self.secure else "ws"
        return f"{scheme}://{_bracketed(self.host)}:{self.port}{_target(filled(path, names), query)}"

    def tls(self) -> ssl.SSLContext | None:
        """Return how to check the API's certificate; None for an address without TLS."""
        if not self.secure:
            return None
        try:
            return ssl.create_default_context(cadata=self.ca or None)
        except ssl.SSLError as error:
            raise InputError(
                f"the site's certificate cannot be read: {error}", where="ca", hint="log in again with --ca FILE"
            ) from error

    def refusal(self, status: int, body: bytes) -> PenstockError:
        """Return the error that an answer of the API stands for."""
        if status == 401 and "Authorization" in self.headers:
            return UnauthenticatedError(
                "the remembered key is not valid any more",
                where=self.url,
                hint=f"run `penstock login {self.url} --user NAME`",
            )
        return problem.read(status, body) or kind_of(status)(
            f"it answers with status {status}", where=self.url, hint="see the control API's log"
        )

    def unreachable(self, error: OSError) -> UnavailableError:
        """Return what a failed connection means for the user."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnavailableError(
                f"its certificate is not trusted: {error.verify_message}",
                where=self.url,
                hint="log in with the site's certificate: penstock login URL --user NAME --ca ca.crt",
            )
        if isinstance(error, ssl.SSLError):
            return UnavailableError(
                f"it does not speak TLS as expected: {error.strerror}", where=self.url, hint="check port and scheme"
            )
        reasons: list[tuple[type[OSError], str, str]] = [
            (socket.gaierror, f"the name {self.host} is not known here", "check the address, or use a number"),
            (ConnectionRefusedError, "nothing listens there", "check the address, and whether the control API runs"),
            (TimeoutError, "it does not answer in time", "check the address and the network"),
        ]
        for kind, reason, hint in reasons:
            if isinstance(error, kind):
                return UnavailableError(reason, where=self.url, hint=hint)
        return UnavailableError(
            f"it cannot be reached: {error.strerror or error}", where=self.url, hint="check the address and the network"
        )

    def keep_login(self, cookies: list[str]) -> None:
        """Send the cookies of a login from now on; a browser's way to be known, and the way to a first API key."""
        self.headers["Cookie"] = "; ".join(cookie.split(";", 1)[0] for cookie in cookies)

    def _answer(
        self, method: str, path: str, body: Any, query: Query | None, timeout_s: float | None
    ) -> http.client.HTTPResponse:
        headers = {**self.headers, "Connection": "close", "Accept": "*/*"}
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"

        def ask() -> http.client.HTTPResponse:
            connection = connect(self, timeout_s)
            connection.request(method, _target(path, query or {}), content, headers)
            answer = connection.getresponse()
            # the API leads nowhere else, so a redirection comes from something that is not the API
            if answer.status >= 300:
                raise self.refusal(answer.status, answer.read())
            if cookies := answer.headers.get_all("Set-Cookie"):
                self.keep_login(cookies)
            return answer

        return self._read(ask)

    def _json(self, answer: http.client.HTTPResponse) -> Any:
        content = self._read(answer.read)
        try:
            return json.loads(content or b"null")
        except ValueError as error:
            raise UnavailableError("it answers what is not JSON", where=self.url, hint="check the address") from error

    def _read(self, step: Callable[[], T]) -> T:
        """Return what a step of a call returns; a broken connection becomes an error of ours."""
        try:
            return step()
        except OSError as error:
            raise self.unreachable(error) from error
        except http.client.IncompleteRead as error:
            raise UnavailableError("its answer broke off", where=self.url, hint="try again") from error
        except http.client.HTTPException as error:
            raise UnavailableError(
                f"it does not speak HTTP as expected ({type(error).__name__})", where=self.url, hint="check the address"
            ) from error


class Resource:
    """The operations of one resource."""

    def __init__(self, transport: Transport) -> None:
        """Call them by `transport`."""
        self._api = transport


def filled(path: str, names: Mapping[str, str]) -> str:
    """Return a path with names in place of what stands in braces; raises InputError for an empty one."""
    for place, name in names.items():
        path = path.replace(f"{{{place}}}", segment(name))
    return path


def segment(text: str) -> str:
    """Return a name as one part of a path; raises InputError for an empty one, which would be another path."""
    if not text:
        raise InputError("the name is empty", where="NAME", hint="give a name")
    return quote(text, safe=":")


def connect(client: Transport, timeout_s: float | None) -> http.client.HTTPConnection:
    """Return a connection to the API that is open; `timeout_s` limits each later wait, None waits for ever."""
    connection: http.client.HTTPConnection
    connect_s = min(CONNECT_S, client.answer_s)
    if tls := client.tls():
        connection = http.client.HTTPSConnection(client.host, client.port, timeout=connect_s, context=tls)
    else:
        connection = http.client.HTTPConnection(client.host, client.port, timeout=connect_s)
    connection.connect()
    connection.sock.settimeout(timeout_s)
    return connection


def _parse(url: str) -> tuple[str, int, bool]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    secure = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise InputError(f"{url!r} is not the address of an API", where="url", hint="write https://MASTER:56789")
    if not secure and parts.hostname not in _LOOPBACK:
        raise InputError(
            "http:// would show the password to everybody on the network", where="url", hint="write https://"
        )
    return parts.hostname, port or (443 if secure else 80), secure


def _target(path: str, query: Query) -> str:
    given = [(key, _text(one)) for key, value in query.items() for one in _values(value)]
    return PREFIX + path + (f"?{urlencode(given)}" if given else "")


def _values(value: str | int | bool | Sequence[str] | None) -> Sequence[str | int | bool]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str | int) else value


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
