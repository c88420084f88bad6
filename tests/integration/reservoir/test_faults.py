"""Disks that fill up at any point, lines that break, two at once: nothing lost, nothing half done."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from reservoir.signing import ed25519
from tests.integration.reservoir import loaded
from tests.integration.reservoir.conftest import PENSTOCK, penstock
from tests.integration.reservoir.disks import Disk
from tests.integration.reservoir.test_power_cuts import files, held, leftovers, served
from tests.unit.reservoir.parts import make_bundle, wheel


def test_a_disk_that_fills_up_anywhere_in_an_import_or_a_publication(disk: Disk, tmp_path: Path) -> None:
    # to the last byte, so that writing fails
    to_the_end = {"PENSTOCK_DISK_STOP_PERCENT": "100"}
    key = ed25519.new_key(tmp_path / "maker.key")
    first, second = (make_bundle(tmp_path / f"v{n}", key, version=f"1.{n}", body=f"# {n}\n") for n in (0, 1))
    site = disk.folder / "site"
    penstock("import", "--trust-first", first, "--root", site)
    penstock("publish", "--root", site)
    before, kept, start = served(site), held(site), disk.used()
    penstock("import", "--trust-first", second, "--root", site)
    penstock("publish", "--root", site)
    after, needed = served(site), disk.used() - start
    shutil.copytree(site, tmp_path / "done", symlinks=True)
    refused = 0
    for step in range(8):
        shutil.rmtree(site)
        disk.resize(100_000_000)
        penstock("import", "--trust-first", first, "--root", site)
        shutil.copyfile(tmp_path / "done/keys/apt.key", site / "keys/apt.key")
        penstock("publish", "--root", site)
        disk.resize(disk.used() + needed * step // 8)
        for words in (["import", "--trust-first", second], ["publish"]):
            done = loaded.run(*words, "--root", site, environment=to_the_end)
            assert done.code in (0, 5), done.stderr
            if done.code:
                refused += 1
                assert "Hint: free some space" in done.stderr
                break
        assert served(site) in (before, after)
        assert kept.items() <= held(site).items()
        disk.resize(100_000_000)
        penstock("import", "--trust-first", second, "--root", site)
        penstock("publish", "--root", site)
        assert served(site) == after
        assert not leftovers(site)
    assert refused >= 6


class Index:
    """A package index on this machine's loopback that breaks as it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.faults: list[str] = []
        self.sent = 0
        # several are answered at once
        self._guard = threading.Lock()
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                index.answer(self, body=False)

            def do_GET(self) -> None:
                index.answer(self, body=True)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request: http.server.BaseHTTPRequestHandler, *, body: bool) -> None:
        """Send a page or a file, with the next fault."""
        name = request.path.strip("/").removeprefix("simple/").removesuffix("/")
        path = self.folder / request.path.rpartition("/")[2]
        if request.path.startswith("/simple/"):
            found = sorted(self.folder.glob(f"{name}-*.whl"))
            content = "".join(
                f'<a href="/files/{p.name}#sha256={hashlib.sha256(p.read_bytes()).hexdigest()}">{p.name}</a>'
                for p in found
            ).encode()
            self._send(request, 200 if found else 404, content, body, {"Content-Type": "text/html"})
            return
        content = path.read_bytes()
        start = 0
        if wanted := request.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").partition("-")[0] or 0)
            last = wanted.partition("-")[2]
            content = content[start : int(last) + 1 if last else None]
        # faults are for whoever downloads the whole file, not for who looks into it
        with self._guard:
            fault = self.faults.pop(0) if self.faults and body else ""
        headers = {"Accept-Ranges": "bytes"}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{start + len(content) - 1}/{path.stat().st_size}"
        status = 206 if wanted else 200
        if fault == "busy":
            self._send(request, 503, b"", body, {})
        elif fault == "truncated":
            request.send_response(status)
            request.send_header("Content-Length", str(len(content)))
            for key, value in headers.items():
                request.send_header(key, value)
            request.end_headers()
            self._count(len(content) // 2)
            request.wfile.write(content[: len(content) // 2])
            request.close_connection = True
        elif fault == "changed":
            self._send(request, status, bytes(len(content)), body, headers)
        elif fault == "slow":
            request.send_response(status)
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            self._count(len(content))
            for place in range(0, len(content), 1 + len(content) // 10):
                request.wfile.write(content[place : place + 1 + len(content) // 10])
                request.wfile.flush()
                time.sleep(0.02)
        else:
            self._send(request, status, content, body, headers)

    def _send(
        self,
        request: http.server.BaseHTTPRequestHandler,
        status: int,
        content: bytes,
        body: bool,
        headers: dict[str, str],
    ) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        for key, value in headers.items():
            request.send_header(key, value)
        request.end_headers()
        if body:
            self._count(len(content))
            request.wfile.write(content)

    def _count(self, size: int) -> None:
        """Count what is sent before it is: whoever has it may be gone with it."""
        with self._guard:
            self.sent += size


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder, "first", body="# first\n" * 50_000)
    wheel(folder, "second", body="# second\n" * 50_000)
    made = Index(folder)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Workshop:
    """A manifest of two wheels of an index, locked."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.manifest = folder / "manifest.yml"
        content = {
            "schema": 1,
            "name": "small",
            "version": "1.0",
            "targets": [{"name": "debian12", "release": "bookworm", "python": "3.11"}],
            "python": {"requirements": ["first", "second"]},
        }
        self.manifest.write_text(yaml.safe_dump(content))
        self.cache, self.out = folder / "cache", folder / "out"
        self.environment = {
            "PENSTOCK_CACHE": str(self.cache),
            "PENSTOCK_SIGNING_KEY": str(folder / "maker.key"),
            "PIP_INDEX_URL": f"{index.url}/simple/",
            "PIP_EXTRA_INDEX_URL": "",
            "SOURCE_DATE_EPOCH": "1700000000",
        }
        ed25519.new_key(folder / "maker.key")
        penstock("lock", self.manifest, environment=self.environment)

    @property
    def command(self) -> list[str | Path]:
        return ["build", self.manifest, "--output", self.out, "--json"]

    def build(self, code: int = 0) -> loaded.Ended:
        """Build the bundle."""
        return penstock(*self.command, code=code, environment=self.environment)


@pytest.fixture
def workshop(tmp_path: Path, index: Index) -> Workshop:
    return Workshop(tmp_path, index)


@pytest.mark.parametrize("faults", [["truncated"], ["busy", "truncated", "truncated"], ["slow", "slow"]], ids="-".join)
def test_downloads_that_break_or_dawdle_go_on(workshop: Workshop, index: Index, faults: list[str]) -> None:
    index.faults, index.sent = faults, 0
    built = json.loads(workshop.build().stdout)
    penstock("verify", built["bundle"])
    assert not index.faults
    whole = sum(path.stat().st_size for path in index.folder.iterdir())
    assert index.sent == whole, "what came once is not asked for again"


def test_a_line_that_stays_broken_keeps_what_came(workshop: Workshop, index: Index) -> None:
    index.faults = ["busy"] * 100
    said = workshop.build(code=5).stderr
    assert "cannot download" in said
    assert "Hint: check the connection" in said
    assert not workshop.out.exists()
    index.faults = []
    workshop.build()


def test_a_changed_download_never_reaches_a_bundle(workshop: Workshop, index: Index) -> None:
    index.faults = ["changed"] * 2
    said = workshop.build(code=3).stderr
    assert "has the sha256" in said
    assert not workshop.out.exists()
    index.faults = []
    penstock("verify", json.loads(workshop.build().stdout)["bundle"])


def test_two_builds_at_once_make_one_bundle(workshop: Workshop, index: Index) -> None:
    index.faults = ["slow"] * 2
    index.sent = 0
    both = [
        subprocess.Popen(
            [PENSTOCK, "reservoir", *workshop.command],
            env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"} | workshop.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert sorted(json.loads(out)["changed"] for out, _ in answers) == [False, True]
    assert index.sent == sum(path.stat().st_size for path in index.folder.iterdir()), "each file is fetched once"
    penstock("verify", json.loads(answers[0][0])["bundle"])
    assert [path.name for path in workshop.out.iterdir()] == ["small-1.0"]


def test_a_disk_that_fills_up_anywhere_in_a_build(workshop: Workshop, disk: Disk) -> None:
    workshop.cache, workshop.out = disk.folder / "cache", disk.folder / "out"
    workshop.environment["PENSTOCK_CACHE"] = str(workshop.cache)
    workshop.build()
    whole, needed = files(workshop.out), disk.used()
    refused = 0
    for step in range(6):
        for folder in (workshop.cache, workshop.out):
            shutil.rmtree(folder, ignore_errors=True)
        disk.resize(max(8192, needed * step // 6))
        done = loaded.run(*workshop.command, environment=workshop.environment)
        assert done.code in (0, 5), done.stderr
        if done.code:
            refused += 1
            assert "no space left on the disk" in done.stderr
            assert not (workshop.out.exists() and list(workshop.out.iterdir()))
        disk.resize(100_000_000)
        workshop.build()
        assert files(workshop.out) == whole
    assert refused >= 4


def test_two_imports_at_once(tmp_path: Path) -> None:
    """One waits for no one: the other is told that the site is busy, and nothing is mixed."""
    key = ed25519.new_key(tmp_path / "maker.key")
    made = [make_bundle(tmp_path / name, key, name=name) for name in ("left", "right")]
    site = tmp_path / "site"
    running = [
        subprocess.Popen(
            [PENSTOCK, "reservoir", "import", bundle, "--root", site, "--key", bundle / "penstock.pub"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for bundle in made
    ]
    answers = [process.communicate() for process in running]
    for bundle, process, (_, said) in zip(made, running, answers, strict=True):
        assert process.returncode in (0, 7), said
        if process.returncode == 7:
            assert "Hint: wait until it ends" in said
        penstock("import", "--trust-first", bundle, "--root", site)
    penstock("publish", "--root", site)
    assert len(list((site / "bundles").iterdir())) == 2
    assert not leftovers(site)


def kill_while(program: str, *words: str | Path, environment: dict[str, str]) -> None:
    """Run a command and kill it, as kill -9 does, while a program that it started runs."""
    command = [PENSTOCK, "reservoir", *words]
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(command, env=os.environ | environment, stdout=quiet, stderr=quiet)
    found: list[int] = []
    while not found:
        assert running.poll() is None, f"{words[0]} ended without {program}"
        time.sleep(0.005)
        if below(running.pid, program):
            time.sleep(0.2)
            # it starts no other one between the look and its end
            running.send_signal(signal.SIGSTOP)
            found = below(running.pid, program)
            running.send_signal(signal.SIGCONT if not found else signal.SIGKILL)
    running.wait()
    deadline = time.monotonic() + 60
    while [pid for pid in found if Path(f"/proc/{pid}/exe").exists()]:
        assert time.monotonic() < deadline, f"{program} outlives the command that started it"
        time.sleep(0.005)


def below(parent: int, program: str) -> list[int]:
    """Numbers of the processes of a program that a process started, itself or by others."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid=,comm="], capture_output=True, text=True, check=True)
    rows = [
        (int(pid), int(above), name)
        for pid, above, name in (line.split(None, 2) for line in listed.stdout.splitlines())
    ]
    started = {parent}
    while more := {pid for pid, above, _ in rows if above in started} - started:
        started |= more
    return [pid for pid, _, name in rows if pid in started and name == program]


def test_programs_end_with_the_command_that_is_killed(tmp_path: Path) -> None:
    """apt's lock and debootstrap's half a system must not stand in the way of the next run."""
    manifest = tmp_path / "manifest.yml"
    content = {
        "schema": 1,
        "name": "small",
        "version": "1.0",
        "targets": [{"name": "debian12", "release": "bookworm", "bootstrap": True}],
        "images": [{"name": "small/base", "tag": "1", "target": "debian12", "packages": []}],
    }
    manifest.write_text(yaml.safe_dump(content))
    environment = {
        "PENSTOCK_CACHE": str(tmp_path / "cache"),
        "PENSTOCK_SIGNING_KEY": str(tmp_path / "maker.key"),
        "SOURCE_DATE_EPOCH": "1700000000",
    }
    kill_while("apt-get", "lock", manifest, environment=environment)
    penstock("lock", manifest, environment=environment)
    kill_while("debootstrap", "build", manifest, "--output", tmp_path / "out", environment=environment)
    assert not (tmp_path / "out").exists()
    assert list((tmp_path / "cache").glob("work-*"))
    # whatever takes the cache next; a whole build after it: test_closed_network.py
    nothing = tmp_path / "nothing.yml"
    nothing.write_text(yaml.safe_dump(content | {"targets": [{"name": "none", "release": "bookworm"}], "images": []}))
    penstock("lock", nothing, "--lock", tmp_path / "nothing.lock", environment=environment)
    assert not list((tmp_path / "cache").glob("work-*"))
