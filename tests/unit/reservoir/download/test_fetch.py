from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from common.errors import IntegrityError, UnavailableError
from reservoir.download import fetch
from reservoir.download.cache import Cache

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
URL = "https://files.example/demo.whl"


class Server:
    """Serves one file; breaks off after `limits` bytes of each answer, and may not know ranges."""

    def __init__(self, *limits: int, ranges: bool = True) -> None:
        self.limits = list(limits)
        self.ranges = ranges
        self.asked: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        wanted = request.headers.get("range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        limit = self.limits.pop(0) if self.limits else len(CONTENT)
        return httpx.Response(206 if start else 200, stream=_Broken(CONTENT[start:], limit))


class _Broken(httpx.SyncByteStream):
    def __init__(self, body: bytes, limit: int) -> None:
        self.body, self.limit = body, limit

    def __iter__(self) -> Iterator[bytes]:
        yield self.body[: self.limit]
        if self.limit < len(self.body):
            raise httpx.ReadError("broken line")


def get(cache: Cache, server: Callable[[httpx.Request], httpx.Response], note: Callable[[int], None]) -> Path:
    with httpx.Client(transport=httpx.MockTransport(server)) as http:
        return fetch.fetch(http, cache, URL, sha256=SHA256, size=len(CONTENT), note=note)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setattr(fetch, "PAUSE_S", 0)
    return Cache(tmp_path / "cache")


def test_a_download_goes_on_where_the_line_broke(cache: Cache) -> None:
    server, counted = Server(1000, 5000), list[int]()
    assert get(cache, server, counted.append).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=1000-", "bytes=6000-"]
    assert sum(counted) == len(CONTENT)


def test_an_answer_that_ends_early_without_a_word_goes_on(cache: Cache) -> None:
    asked: list[str | None] = []

    def server(request: httpx.Request) -> httpx.Response:
        wanted = request.headers.get("range")
        asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        return httpx.Response(206 if start else 200, stream=_Broken(CONTENT[start : start + 100_000], 100_000))

    assert get(cache, server, lambda _: None).read_bytes() == CONTENT
    assert asked == [None, "bytes=100000-", "bytes=200000-"]


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_is_asked_again(cache: Cache, status: int) -> None:
    answers = [httpx.Response(status), httpx.Response(200, stream=_Broken(CONTENT, len(CONTENT)))]
    assert get(cache, lambda _: answers.pop(0), lambda _: None).read_bytes() == CONTENT


def test_a_server_that_stays_busy_is_an_error(cache: Cache) -> None:
    with pytest.raises(UnavailableError, match="503"):
        get(cache, lambda _: httpx.Response(503), lambda _: None)


def test_a_download_of_an_earlier_run_goes_on(cache: Cache) -> None:
    cache.partial(SHA256).write_bytes(CONTENT[:777])
    server, counted = Server(), list[int]()
    get(cache, server, counted.append)
    assert server.asked == ["bytes=777-"]
    assert sum(counted) == len(CONTENT)


def test_a_server_without_ranges_starts_again(cache: Cache) -> None:
    server, counted = Server(1000, ranges=False), list[int]()
    assert get(cache, server, counted.append).read_bytes() == CONTENT
    assert sum(counted) == len(CONTENT)


def test_what_is_in_the_cache_is_not_asked_for(cache: Cache) -> None:
    get(cache, Server(), lambda _: None)
    server = Server()
    get(cache, server, lambda _: None)
    assert server.asked == []
    assert not list(cache.blobs.glob("*.partial"))


def test_a_line_that_always_breaks_is_an_error_and_keeps_what_came(cache: Cache) -> None:
    with pytest.raises(UnavailableError, match=r"demo.whl: cannot download: broken line"):
        get(cache, Server(10, 10, 10, 10), lambda _: None)
    assert cache.partial(SHA256).read_bytes() == CONTENT[:40]


def test_another_content_is_refused_and_thrown_away(cache: Cache) -> None:
    def other(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=_Broken(CONTENT[::-1], len(CONTENT)))

    with pytest.raises(IntegrityError, match=r"demo.whl has the sha256"):
        get(cache, other, lambda _: None)
    assert not list(cache.blobs.iterdir())


class _Flood(httpx.SyncByteStream):
    """An answer without an end, which notes how much of it was taken."""

    def __init__(self) -> None:
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while self.sent < 100 * len(CONTENT):
            self.sent += 65536
            yield bytes(65536)


def test_a_download_stops_at_the_declared_size(cache: Cache) -> None:
    flood = _Flood()
    with pytest.raises(IntegrityError, match=rf"demo\.whl: more than the {len(CONTENT)} bytes come"):
        get(cache, lambda _: httpx.Response(200, stream=flood), lambda _: None)
    assert flood.sent <= len(CONTENT) + 65536
    assert not list(cache.blobs.iterdir())


def test_a_file_of_this_machine_that_has_grown_is_not_copied(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "grown"
    path.write_bytes(CONTENT + b"!")
    with httpx.Client() as http, pytest.raises(IntegrityError, match="more than the 256000 bytes come"):
        fetch.fetch(http, cache, path.as_uri(), sha256=SHA256, size=len(CONTENT))
    assert not list(cache.blobs.iterdir())


def test_a_small_file_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LARGEST_READ", 1 << 20, raising=False)
    flood = _Flood()
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, stream=flood))) as http,
        pytest.raises(IntegrityError, match="more than the 1048576 bytes come"),
    ):
        fetch.read(http, URL)
    assert flood.sent <= (1 << 20) + 65536


def test_a_file_that_is_gone_says_what_to_do(cache: Cache) -> None:
    with pytest.raises(UnavailableError, match="when the file is gone, lock again"):
        get(cache, lambda _: httpx.Response(404), lambda _: None)


def test_sizes_come_from_the_head_or_the_body() -> None:
    def head(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-length": "12"} if request.method == "HEAD" else {})

    def none(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200) if request.method == "HEAD" else httpx.Response(200, stream=_Broken(b"12345", 9))

    for server, size in ((head, 12), (none, 5)):
        with httpx.Client(transport=httpx.MockTransport(server)) as http:
            assert fetch.size_of(http, URL) == size


def test_files_of_this_machine_are_copied(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "a file"
    path.write_bytes(CONTENT)
    with httpx.Client() as http:
        found = fetch.fetch(http, cache, path.as_uri(), sha256=SHA256, size=len(CONTENT))
        assert fetch.size_of(http, path.as_uri()) == len(CONTENT)
        with pytest.raises(UnavailableError, match="there is no such file"):
            fetch.size_of(http, path.as_uri() + "x")
    assert found.read_bytes() == CONTENT
    assert path.exists()


def test_two_who_want_one_file_download_it_once(cache: Cache) -> None:
    server = Server()
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: get(cache, server, lambda _: None), range(4)))
    assert server.asked == [None]
    assert {path.read_bytes() for path in paths} == {CONTENT}


def test_a_small_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=CONTENT) if request.url.path == "/demo.whl" else httpx.Response(404)

    (tmp_path / "index").write_bytes(b"here")
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        assert fetch.read(http, URL) == CONTENT
        assert fetch.read(http, (tmp_path / "index").as_uri()) == b"here"
        for url in (f"{URL}.asc", (tmp_path / "index.asc").as_uri()):
            with pytest.raises(UnavailableError) as caught:
                fetch.read(http, url)
            assert caught.value.problems[0].where == url


@pytest.mark.parametrize("target", ["http://files.example/demo.whl", "http://other.example/", "ftp://files.example/"])
def test_https_stays_https(cache: Cache, target: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.scheme == "https"
        return httpx.Response(302, headers={"Location": target})

    with (
        fetch.client(None) as real,
        httpx.Client(
            transport=httpx.MockTransport(answer), follow_redirects=True, event_hooks=real.event_hooks
        ) as http,
    ):
        for read in (lambda: fetch.read(http, URL), lambda: fetch.size_of(http, URL), lambda: get_from(http, cache)):
            with pytest.raises(IntegrityError, match="leads from https to"):
                read()


def get_from(http: httpx.Client, cache: Cache) -> Path:
    return fetch.fetch(http, cache, URL, sha256=SHA256, size=len(CONTENT))
