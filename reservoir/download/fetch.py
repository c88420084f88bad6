"""Downloads over HTTP, or copies from this machine, into the cache: streamed, resumed, checked."""

from __future__ import annotations

import base64
import shutil
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from common.errors import IntegrityError, UnavailableError
from reservoir.download.cache import Cache, space_on
from reservoir.manifest import credentials

TRIES = 4
PAUSE_S = 0.5
# answers of a server that may do better soon
PASSING = {408, 429, 500, 502, 503, 504}
# more than any index or signature that has no known hash
LARGEST_READ = 64 << 20
TIMEOUT = httpx.Timeout(60, connect=20)


def client(certificates: str | None, sources: Iterable[str] = ()) -> httpx.Client:
    """Return a client that trusts this machine's certificates and uses its proxies.

    Servers that `sources` name with a user and a password get these, whatever address of theirs is asked for. What is
    asked for by https stays with it: a redirection to http raises IntegrityError.
    """
    return httpx.Client(
        verify=_trusted(certificates),
        timeout=TIMEOUT,
        follow_redirects=True,
        auth=_Logins(credentials.logins(sources)),
        event_hooks={"response": [stay_encrypted]},
    )


def stay_encrypted(answer: httpx.Response) -> None:
    """Raise IntegrityError where an answer by https leads to an address without it."""
    if answer.url.scheme != "https" or not answer.has_redirect_location:
        return
    onward = answer.url.join(answer.headers["Location"])
    if onward.scheme != "https":
        raise IntegrityError(
            f"leads from https to {onward.scheme}, where anybody on the way can change it",
            where=str(answer.url),
            hint="name the address that has it by https, or ask the keeper of the server",
        )


@cache
def _trusted(certificates: str | None) -> ssl.SSLContext:
    """Return what a command trusts; to read a machine's certificates takes a while."""
    return ssl.create_default_context(cafile=certificates)


class _Logins(httpx.Auth):
    """Tells each server its own user and password, and none of another's."""

    def __init__(self, known: Sequence[credentials.Login]) -> None:
        self._known = known

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if found := credentials.login(self._known, str(request.url)):
            words = base64.b64encode(f"{found.user}:{found.password}".encode()).decode()
            request.headers["Authorization"] = f"Basic {words}"
        yield request


def size_of(http: httpx.Client, url: str) -> int:
    """Return the size in bytes of what lies at `url`."""
    if url.startswith("file:"):
        return _local(url).stat().st_size
    try:
        answer = http.head(url)
        answer.raise_for_status()
        if "content-length" in answer.headers and "content-encoding" not in answer.headers:
            return int(answer.headers["content-length"])
        with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as whole:
            whole.raise_for_status()
            return sum(len(piece) for piece in whole.iter_raw())
    except httpx.HTTPError as error:
        raise _unavailable(url, error) from error


def known_size(http: httpx.Client, cache: Cache, url: str, sha256: str) -> int:
    """Return the size in bytes, from the cache where the file is there already."""
    cached = cache.path(sha256)
    return cached.stat().st_size if cached.is_file() else size_of(http, url)


def read(http: httpx.Client, url: str) -> bytes:
    """Return a small file that has no known hash.

    Raises UnavailableError where there is none, IntegrityError where it is longer than `LARGEST_READ`.
    """
    if url.startswith("file:"):
        return _local(url).read_bytes()
    content = bytearray()
    try:
        with http.stream("GET", url) as answer:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                content += piece
                if len(content) > LARGEST_READ:
                    raise _too_long(url, LARGEST_READ)
    except httpx.HTTPError as error:
        raise _unavailable(url, error) from error
    return bytes(content)


def fetch(
    http: httpx.Client, cache: Cache, url: str, *, sha256: str, size: int, note: Callable[[int], None] = lambda _: None
) -> Path:
    """Return the cached file with that hash, downloaded where it is missing; `note` hears of every piece's length.

    An interrupted download goes on where it stopped; who asks for a file that is on its way waits for it.
    Raises IntegrityError where the hash differs, and as soon as more than `size` bytes come.
    """
    with cache.collecting(sha256) as partial:
        if cache.has(sha256, size):
            note(size)
            return cache.path(sha256)
        with space_on(cache.blobs):
            to_file(http, url, partial, size, note)
        return cache.accept(partial, sha256, url)


def to_file(http: httpx.Client, url: str, path: Path, size: int, note: Callable[[int], None] = lambda _: None) -> None:
    """Bring what lies at `url` into a file, from where an earlier attempt stopped; no hash is checked.

    Raises IntegrityError, and leaves no file, where it is longer than `size` bytes.
    """
    if url.startswith("file:"):
        local = _local(url)
        if local.stat().st_size > size:
            raise _too_long(url, size)
        shutil.copyfile(local, path)
        note(size)
    else:
        _download(http, url, path, size, note)


def _download(http: httpx.Client, url: str, partial: Path, size: int, note: Callable[[int], None]) -> None:
    """Append to `partial` until it is complete; try again from where it stopped when the line breaks."""
    if partial.exists() and partial.stat().st_size > size:
        partial.unlink()
    counted = 0
    for attempt in range(1, TRIES + 1):
        try:
            have = partial.stat().st_size if partial.exists() else 0
            if have == size and have > 0:
                break
            headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
            with http.stream("GET", url, headers=headers) as answer:
                answer.raise_for_status()
                resumed = answer.status_code == httpx.codes.PARTIAL_CONTENT
                with partial.open("ab" if resumed else "wb") as file:
                    counted = _note_up_to(have if resumed else 0, counted, note)
                    for piece in answer.iter_raw():
                        if file.tell() + len(piece) > size:
                            partial.unlink()
                            raise _too_long(url, size)
                        file.write(piece)
                        counted = _note_up_to(file.tell(), counted, note)
                    came = file.tell()
            if came >= size:
                break
            broken: httpx.HTTPError = httpx.RemoteProtocolError(f"the answer ended after {came} of {size} bytes")
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in PASSING:
                raise _unavailable(url, error) from error
            broken = error
        except httpx.TransportError as error:
            broken = error
        if attempt == TRIES:
            raise _unavailable(url, broken) from broken
        time.sleep(PAUSE_S * attempt)
    _note_up_to(size, counted, note)


def _note_up_to(reached: int, counted: int, note: Callable[[int], None]) -> int:
    """Report the bytes that were not reported yet; a restarted download reports none twice."""
    if reached > counted:
        note(reached - counted)
    return max(reached, counted)


def _local(url: str) -> Path:
    path = Path(unquote(urlsplit(url).path))
    if not path.is_file():
        raise UnavailableError("there is no such file", where=url, hint="correct the address, or make a new lock")
    return path


def _too_long(url: str, size: int) -> IntegrityError:
    return IntegrityError(
        f"more than the {size} bytes come that were expected",
        where=url,
        hint="try again; when it stays, the source changed the file: make a new lock",
    )


def _unavailable(url: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"cannot download: {error}".rstrip(), where=url, hint="check the connection; when the file is gone, lock again"
    )
