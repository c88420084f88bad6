"""The control API, as the command line calls it.

Only the standard library's HTTP is used: it loads in a few hundredths of a second, and `penstock list` is run often.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NotRequired, TypedDict, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from reservoir.errors import (
    ConflictError,
    ForbiddenError,
    InputError,
    NotFoundError,
    PenstockError,
    Problem,
    UnauthenticatedError,
    UnavailableError,
)

T = TypeVar("T")

PREFIX = "/api/v1"
CONNECT_S = 10.0
ANSWER_S = 60.0
_CHUNK = 1 << 16
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_KINDS: dict[int, type[PenstockError]] = {
    400: InputError,
    401: UnauthenticatedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InputError,
}

Query = Mapping[str, str | int | bool | None]
"""Parameters of an address; those that are None are left out."""


class Grant(TypedDict):
    """The part of one GPU that a session holds, in milli-GPU."""

    index: int
    uuid: str
    milli: int


class Session(TypedDict):
    """A session; times are ISO 8601, `reason` says why it waits or why it failed."""

    id: str
    name: str
    project: str
    user: str
    image: str
    kind: str
    gpu_milli: int
    state: str
    reason: str
    node: str | None
    gpus: list[Grant]
    command: list[str] | None
    args: list[str]
    created_at: str
    started_at: str | None
    finished_at: str | None
    exit_code: int | None
    url: str | None


class Project(TypedDict):
    """A project; its quota and what its sessions hold, in milli-GPU."""

    name: str
    description: str
    quota_milli: int
    used_milli: int
    members: list[str]
    created_at: str


class Gpu(TypedDict):
    """A GPU of a node; memory in MiB, use in milli-GPU."""

    index: int
    uuid: str
    model: str
    memory_mib: int
    simulated: bool
    used_milli: int


class Node(TypedDict):
    """A node; `cpu_milli` in thousandths of a core, memory in MiB."""

    name: str
    address: str
    port: int
    state: str
    agent_version: str
    enforcement: str
    cpu_milli: int
    memory_mib: int
    gpus: list[Gpu]
    last_seen: str | None


class Image(TypedDict):
    """An image; `reference` is what Docker pulls."""

    name: str
    tag: str
    reference: str
    created_at: str


class User(TypedDict):
    """A user; `role` is admin, auditor or member. `csrf_token` is in the answer to a login only."""

    name: str
    role: str
    created_at: str
    csrf_token: NotRequired[str]


class Settings(TypedDict):
    """How GPUs are divided, in milli-GPU."""

    version: str
    fgpu_per_gpu: int
    steps_per_fgpu: int
    fgpu_milli: int
    step_milli: int
    largest_milli: int


class NewApiKey(TypedDict):
    """A key, shown this once."""

    id: str
    name: str
    key: str


class Client:
    """A control API at `url`, called with an API key; `ca` is the PEM text of the site's authority."""

    def __init__(self, url: str, *, api_key: str = "", ca: str = "") -> None:
        """Prepare; raises InputError where the address cannot be one."""
        self.url = url.rstrip("/")
        self.host, self.port, self.secure = _parse(self.url)
        self.ca = ca
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def get(self, path: str, query: Query | None = None) -> Any:
        """Return the JSON of a resource."""
        return self.call("GET", path, query=query)

    def call(self, method: str, path: str, body: Any = None, query: Query | None = None) -> Any:
        """Call the API and return the JSON of its answer; raises the PenstockError that the answer stands for."""
        with self._answer(method, path, body, query, ANSWER_S) as answer:
            return self._json(answer)

    def stream(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """Yield the bytes of an answer as they come, however long that takes."""
        with self._answer("GET", path, None, query, None) as answer:
            while chunk := self._read(lambda: answer.read1(_CHUNK)):
                yield chunk

    def log_in(self, name: str, password: str) -> User:
        """Begin a login; later calls of this client carry its cookie."""
        with self._answer("POST", "/auth/login", {"name": name, "password": password}, None, ANSWER_S) as answer:
            cookies = answer.headers.get_all("Set-Cookie") or []
            self.headers = {"Cookie": "; ".join(cookie.split(";", 1)[0] for cookie in cookies)}
            user: User = self._json(answer)
        # shows with each change that whoever sends the cookie has also read this answer
        self.headers["X-CSRF-Token"] = user.get("csrf_token", "")
        return user

    def websocket(self, path: str, query: Query) -> str:
        """Return the address of a WebSocket of the API."""
        scheme = "wss" if self.secure else "ws"
        return f"{scheme}://{_bracketed(self.host)}:{self.port}{_target(path, query)}"

    def tls(self) -> ssl.SSLContext | None:
        """Return how to check the API's certificate; None for an address without TLS."""
        if not self.secure:
            return None
        try:
            return ssl.create_default_context(cadata=self.ca or None)
        except ssl.SSLError as error:
            raise InputError(
                f"the site's certificate cannot be read: {error}", where="ca", cure="log in again with --ca FILE"
            ) from error

    def refusal(self, status: int, body: bytes) -> PenstockError:
        """Return the error that an answer of the API stands for."""
        if status == 401 and "Authorization" in self.headers:
            return UnauthenticatedError(
                "the remembered key is not valid any more",
                where=self.url,
                cure=f"run `penstock login {self.url} --user NAME`",
            )
        kind = _KINDS.get(status, UnavailableError)
        try:
            problems = [Problem(one["where"], one["reason"], one["cure"]) for one in json.loads(body)["errors"]]
        except (ValueError, KeyError, TypeError):
            problems = []
        if problems:
            return kind.of(problems)
        return kind(f"it answers with status {status}", where=self.url, cure="see the control API's log")

    def unreachable(self, error: OSError) -> UnavailableError:
        """Return what a failed connection means for the user."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnavailableError(
                f"its certificate is not trusted: {error.verify_message}",
                where=self.url,
                cure="log in with the site's certificate: penstock login URL --user NAME --ca ca.crt",
            )
        if isinstance(error, ssl.SSLError):
            return UnavailableError(
                f"it does not speak TLS as expected: {error.strerror}", where=self.url, cure="check port and scheme"
            )
        reasons: list[tuple[type[OSError], str, str]] = [
            (socket.gaierror, f"the name {self.host} is not known here", "check the address, or use a number"),
            (ConnectionRefusedError, "nothing listens there", "check the address, and whether the control API runs"),
            (TimeoutError, "it does not answer in time", "check the address and the network"),
        ]
        for kind, reason, cure in reasons:
            if isinstance(error, kind):
                return UnavailableError(reason, where=self.url, cure=cure)
        return UnavailableError(
            f"it cannot be reached: {error.strerror or error}", where=self.url, cure="check the address and the network"
        )

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
            return answer

        return self._read(ask)

    def _json(self, answer: http.client.HTTPResponse) -> Any:
        content = self._read(answer.read)
        try:
            return json.loads(content or b"null")
        except ValueError as error:
            raise UnavailableError("it answers what is not JSON", where=self.url, cure="check the address") from error

    def _read(self, step: Callable[[], T]) -> T:
        """Return what a step of a call returns; a broken connection becomes an error of ours."""
        try:
            return step()
        except OSError as error:
            raise self.unreachable(error) from error
        except http.client.HTTPException as error:
            raise UnavailableError(
                f"it does not speak HTTP as expected ({type(error).__name__})", where=self.url, cure="check the address"
            ) from error


def segment(text: str) -> str:
    """Return a name as one part of a path; raises InputError for an empty one, which would be another path."""
    if not text:
        raise InputError("the name is empty", where="NAME", cure="give a name")
    return quote(text, safe=":")


def connect(client: Client, timeout_s: float | None) -> http.client.HTTPConnection:
    """Return a connection to the API that is open; `timeout_s` limits each later wait, None waits for ever."""
    connection: http.client.HTTPConnection
    if tls := client.tls():
        connection = http.client.HTTPSConnection(client.host, client.port, timeout=CONNECT_S, context=tls)
    else:
        connection = http.client.HTTPConnection(client.host, client.port, timeout=CONNECT_S)
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
        raise InputError(f"{url!r} is not the address of an API", where="url", cure="write https://MASTER:56789")
    if not secure and parts.hostname not in _LOOPBACK:
        raise InputError(
            "http:// would show the password to everybody on the network", where="url", cure="write https://"
        )
    return parts.hostname, port or (443 if secure else 80), secure


def _target(path: str, query: Query) -> str:
    given = {key: _text(value) for key, value in query.items() if value is not None}
    return PREFIX + path + (f"?{urlencode(given)}" if given else "")


def _text(value: str | int | bool | None) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
