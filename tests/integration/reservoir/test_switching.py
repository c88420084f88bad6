"""Nodes that ask while the site switches between publications: the role's nginx, apt, and who pulls an image."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from reservoir.contents.artifact import DebianArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import publish, rollback
from reservoir.signing import ed25519
from tests.integration.agent.conftest import Authority, authority, free_port  # noqa: F401
from tests.integration.edge import NGINX, rendered
from tests.unit.reservoir.parts import STANZA, artifact, image_blobs, image_parts, make_bundle, take

TIMES = 15
NGINX_CONF = """\
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
user root;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
{server}
}}
"""
APT_CONF = """\
Dir "{folder}/apt";
Dir::State::Status "/dev/null";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Parts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
APT::Architecture "amd64";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::https::CAInfo "{ca}";
Acquire::https::Verify-Host "false";
Acquire::Languages "none";
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site that published two versions of a package, and serves the second."""
    tmp_path.chmod(0o755)
    key = ed25519.new_key(tmp_path / "maker.key")
    for version in ("1.0", "2.0"):
        folder = tmp_path / version
        folder.mkdir()
        deb = folder / f"hello_{version}_amd64.deb"
        deb.write_bytes(version.encode())
        made = artifact(deb, DebianArtifact, "hello", version, stanza=STANZA.format(name="hello", version=version))
        image = image_parts(folder, image_blobs(folder, version))
        take(make_bundle(folder, key, version=version, made=[(made, deb), *image]), tmp_path / "site")
        publish(tmp_path / "site")
    # whoever asks whether a list has changed since a moment is told so by its second
    for path in Store(tmp_path / "site").publications.glob("1/apt/dists/**/*"):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    return tmp_path / "site"


@pytest.fixture
def front(site: Path, authority: Authority, tmp_path: Path) -> Iterator[tuple[int, int]]:  # noqa: F811
    """The ports of packages and of images of the nginx that serves the site."""
    certificate, key = authority.issue("reservoir")
    pki = tmp_path / "pki"
    pki.mkdir()
    (pki / "node.crt").write_bytes(certificate.read_bytes())
    (pki / "node.key").write_bytes(key.read_bytes())
    ports = free_port(), free_port()
    text = rendered(
        "reservoir",
        "etc/nginx/conf.d/penstock-reservoir.conf",
        reservoir_root=str(site),
        reservoir_pki=str(pki),
        reservoir_port=f"127.0.0.1:{ports[0]}",
        reservoir_registry_port=f"127.0.0.1:{ports[1]}",
    )
    folder = tmp_path / "nginx"
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX_CONF.format(folder=folder, server=text))
    process = subprocess.Popen([NGINX, "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        deadline = time.monotonic() + 60
        while not all(_listens(port) for port in ports):
            assert process.poll() is None, (folder / "error.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield ports
    finally:
        process.terminate()
        process.wait(20)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def apt(site: Path, authority: Authority, front: tuple[int, int], tmp_path: Path) -> dict[str, str]:  # noqa: F811
    """The environment of an apt that knows the site alone."""
    for name in ("lists/partial", "cache/archives/partial", "etc/apt"):
        (tmp_path / "apt" / "var/lib/apt" / name).mkdir(parents=True)
    source = f"deb [signed-by={site}/current/keys/apt.asc] https://127.0.0.1:{front[0]}/apt bookworm main\n"
    (tmp_path / "sources.list").write_text(source)
    (tmp_path / "apt.conf").write_text(APT_CONF.format(folder=tmp_path, ca=authority.ca))
    environment = {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf"), "LC_ALL": "C.UTF-8"}
    subprocess.run(["apt-get", "update"], env=environment, capture_output=True, check=True)
    return environment


def test_whoever_asks_between_two_publications_finds_what_it_was_told_of(
    site: Path, apt: dict[str, str], tmp_path: Path
) -> None:
    ended = threading.Event()
    served: list[int] = []

    def switch() -> None:
        while not ended.is_set():
            served.append(rollback(site, 1 + len(served) % 2).number)

    switching = threading.Thread(target=switch)
    switching.start()
    failed: list[str] = []
    try:
        for _ in range(TIMES):
            for words in (["update"], ["download", "hello"]):
                done = subprocess.run(
                    ["apt-get", *words], env=apt, cwd=tmp_path, capture_output=True, text=True, check=False
                )
                failed += [done.stdout + done.stderr] if done.returncode else []
    finally:
        ended.set()
        switching.join()
    assert not failed, f"{len(failed)} of {2 * TIMES}: {failed[0]}"
    assert len(served) > TIMES // 3, "it was switched all the time"


def test_what_is_no_longer_in_the_lists_is_found_by_nobody_who_reads_them_now(site: Path, apt: dict[str, str]) -> None:
    rollback(site, 1)
    assert not subprocess.run(["apt-get", "update"], env=apt, capture_output=True, check=False).returncode
    known = subprocess.run(["apt-cache", "show", "hello"], env=apt, capture_output=True, text=True, check=True).stdout
    assert "Version: 1.0" in known
    assert "Version: 2.0" not in known
    store = Store(site)
    assert (store.before / "apt/pool").is_dir()
    assert store.before.resolve().name == "2"


def test_a_pull_that_began_before_a_switch_ends_well(site: Path, front: tuple[int, int]) -> None:
    store = Store(site)
    first, second = (
        {path.name for path in (store.publications / number / "images/oci/blobs/sha256").iterdir()} for number in "12"
    )
    rollback(site, 1)
    with httpx.Client(base_url=f"https://127.0.0.1:{front[1]}", verify=False, trust_env=False) as http:
        for blob in first | second:
            answer = http.get(f"/v2/demo/python/blobs/sha256:{blob}")
            assert (answer.status_code, hashlib.sha256(answer.content).hexdigest()) == (200, blob)
            assert answer.headers["docker-content-digest"] == f"sha256:{blob}"
            assert answer.headers["content-type"] == "application/octet-stream"
        assert http.head(f"/v2/demo/python/blobs/sha256:{blob}").headers["content-length"] == str(len(answer.content))
        assert http.get(f"/v2/demo/python/blobs/sha256:{'0' * 64}").status_code == 404
        for path in (f"/v2/demo/python/blobs/sha256:{blob}", "/v2/demo/python/blobs/uploads/"):
            assert http.post(path).status_code == 403
            assert http.delete(path).status_code == 403
