"""Users' own packages on a real devpi-server in front of a publication: what pip gets, what an upload is told."""

from __future__ import annotations

import http.server
import io
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urljoin

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import UnauthenticatedError
from common.settings.package_index import PackageIndexSettings
from reservoir import settings
from reservoir.contents.artifact import PythonArtifact
from reservoir.intake.take import take
from reservoir.publication.publish import publish, rollback
from reservoir.serving.uploads.brake import SECONDS, TRIES
from reservoir.serving.uploads.names import Names
from reservoir.serving.uploads.server import connect
from tests import forks
from tests.integration.agent.conftest import free_port
from tests.integration.edge import NGINX, rendered
from tests.integration.reservoir.disks import mounted
from tests.unit.reservoir.parts import artifact, make_bundle, wheel

PASSWORD = "of-the-administrator"
START_SECONDS = 60
QUOTA_MIB = 2
SIMPLE = "application/vnd.pypi.simple.v1+json"
BIN = Path(sys.executable).parent
ADA = ("ada", "")


class Site:
    """A publication that a web server shows, and the server of uploads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "site"
        self.path = folder / "index.sock"
        self.secret = folder / "password"
        self.url = ""
        self.simple = ""
        self.key = Ed25519PrivateKey.generate()
        self.uploader = ""
        self.started_with_kib = 0

    def freeze(self, name: str, version: str) -> None:
        """Publish one more Python package."""
        parts = self.folder / f"parts-{name}-{version}"
        parts.mkdir()
        path = wheel(parts, name, version, "FROM = 'publication'\n")
        take(
            make_bundle(parts, self.key, name=name, made=[(artifact(path, PythonArtifact, name, version), path)]),
            self.root,
            trust_first=True,
        )
        publish(self.root)

    def upload(self, name: str, version: str) -> subprocess.CompletedProcess[str]:
        """Upload a package with twine."""
        parts = self.folder / f"uploads-{name}-{version}"
        parts.mkdir(exist_ok=True)
        path = wheel(parts, name, version, "FROM = 'upload'\n")
        address = ("--repository-url", f"{self.url}/site/dev/", "--username", "ada", f"--password={self.uploader}")
        twine = (BIN / "twine", "upload", "--non-interactive", "--disable-progress-bar")
        return forks.run([*twine, *address, path], os.environ)

    def send(
        self, name: str, version: str, path: Path, action: str = "file_upload", auth: tuple[str, str] | None = ADA
    ) -> httpx.Response:
        """Send what an upload tool sends, but whatever it says about the file."""
        form = {":action": action, "name": name, "version": version, "filetype": "bdist_wheel", "pyversion": "py3"}
        if auth is ADA:
            auth = ("ada", self.uploader)
        with path.open("rb") as file:
            files = {"content": (path.name, file)}
            return httpx.post(f"{self.url}/site/dev/", data=form, files=files, auth=auth, timeout=START_SECONDS)

    def install(self, requirement: str) -> str:
        """Install a package as a user does, with site/dev as the only index; return where the module came from."""
        module = requirement.partition("=")[0].replace("-", "_")
        target = self.folder / f"installed-{time.monotonic_ns()}"
        index = ("--index-url", f"{self.url}/site/dev/+simple/", "--no-cache-dir", "--no-deps", "--isolated")
        quick = ("--disable-pip-version-check", "--no-compile")
        pip = (sys.executable, "-m", "pip", "install", "--quiet")
        forks.run([*pip, *index, *quick, "--target", target, requirement], os.environ, check=True)
        said = [sys.executable, "-c", f"import {module} as m; print(m.FROM, m.VERSION)"]
        return subprocess.run(said, cwd=target, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("uploads"))
    site.secret.write_text(PASSWORD)
    site.freeze("published", "1.0")
    handler = partial(Web, directory=str(site.root / "current"))
    with ExitStack() as stack:
        web = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=web.serve_forever, daemon=True).start()
        data = site.folder / "devpi"
        environment = settings.environment(
            PENSTOCK_RESERVOIR=str(site.root),
            PENSTOCK_UPLOADS_QUOTA_MIB=str(QUOTA_MIB),
            DEVPISERVER_SERVERDIR=str(data),
            DEVPISERVER_ROOT_PASSWD=PASSWORD,
        )
        subprocess.run([f"{BIN}/devpi-init", "--no-root-pypi"], env=environment, check=True, capture_output=True)
        site.simple = f"http://127.0.0.1:{web.server_port}/pypi/simple/"
        command = (
            f"{BIN}/devpi-server {' '.join(key_options())} --restrict-modify=root --threads=4 --unix-socket={site.path}"
        )
        with (site.folder / "devpi.log").open("wb") as log:
            server = subprocess.Popen(command.split(), env=environment, stdout=log, stderr=log)
        try:
            wait_for(socket.AF_UNIX, str(site.path), server)
            site.started_with_kib = peak_kib(server.pid)
            site.url = stack.enter_context(front(site.folder / "nginx", site.path))
            with connect(site.path, site.secret) as admin:
                assert admin.prepare(site.simple)
                site.uploader = admin.add_account("ada")
            yield site
        finally:
            server.terminate()
            server.wait()
            web.shutdown()


def key_options() -> list[str]:
    """How the role has the server derive a key of its secret."""
    unit = rendered(
        "package_index",
        "etc/systemd/system/penstock-index.service",
        package_index_settings=PackageIndexSettings().model_dump(),
        package_index_socket="",
        package_index_data="",
    )
    return [word for word in unit.split() if word.startswith("--argon2-")]


def peak_kib(process: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


class Web(http.server.SimpleHTTPRequestHandler):
    """The reservoir's web server: indexes in both forms, and "not modified" to whoever knows the present tag."""

    tag = ""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        if self.path.endswith("/") and "vnd.pypi.simple.v1+json" in self.headers.get("Accept", ""):
            self.path += "index.json"
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        self.tag = f'"{path.stat().st_mtime_ns:x}"' if path.exists() else ""
        if self.tag and self.headers.get("If-None-Match") == self.tag:
            self.send_response(HTTPStatus.NOT_MODIFIED)
            self.end_headers()
            return None
        return super().send_head()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return "application/vnd.pypi.simple.v1+json" if str(path).endswith(".json") else super().guess_type(path)

    def end_headers(self) -> None:
        if self.tag:
            self.send_header("ETag", self.tag)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: the tests say what matters."""


@contextmanager
def front(folder: Path, path: Path) -> Iterator[str]:
    """Run nginx before a socket, with the configuration of the role; gives the address of the indexes."""
    port = free_port()
    settings_of_site = PackageIndexSettings(upload_limit_mib=4).model_dump()
    part = rendered(
        "package_index",
        "etc/nginx/penstock-reservoir-index.inc",
        package_index_socket=path,
        package_index_settings=settings_of_site,
    )
    folder.mkdir()
    (folder / "index.inc").write_text(part)
    places = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    server = f"server {{ listen 127.0.0.1:{port}; include {folder}/index.inc; }}"
    text = (
        f"user root; daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ }}\nhttp {{ access_log off; {places} {server} }}\n"
    )
    (folder / "nginx.conf").write_text(text)
    process = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder])
    try:
        wait_for(socket.AF_INET, ("127.0.0.1", port), process)
        yield f"http://127.0.0.1:{port}/index"
    finally:
        process.terminate()
        process.wait(20)


def wait_for(family: socket.AddressFamily, address: str | tuple[str, int], server: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens, or fail as soon as it ended."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert server.poll() is None, server.args
        with suppress(OSError), socket.socket(family) as probe:
            probe.connect(address)
            return
        time.sleep(0.1)
    pytest.fail(f"nobody listens at {address}")


def test_a_start_pays_nothing_for_a_secret_that_nobody_can_guess(site: Site) -> None:
    """By itself the server takes 512 MiB, and many seconds of all cores, to stretch one that is random."""
    assert 0 < site.started_with_kib < 400 << 10


def test_what_is_published_comes_from_the_publication(site: Site) -> None:
    assert site.install("published") == "publication 1.0"


def test_an_upload_is_installed_by_everybody(site: Site) -> None:
    done = site.upload("mine", "1.0")
    assert done.returncode == 0, done.stdout
    assert site.install("mine") == "upload 1.0"


def test_an_upload_waits_while_the_disk_is_full(site: Site, tmp_path: Path) -> None:
    path = wheel(tmp_path, "waits", "1.0", "")
    with mounted(site.root, "1m") as disk:
        (disk.folder / "ballast").write_bytes(bytes(1020 << 10))
        refused = site.send("waits", "1.0", path)
        (disk.folder / "ballast").unlink()
    assert refused.status_code == 507
    assert "% full, and an upload can wait" in refused.text
    assert site.upload("waits", "1.0").returncode == 0


def test_a_released_version_is_never_replaced(site: Site) -> None:
    assert site.upload("steady", "1.0").returncode == 0
    other = wheel(site.folder, "steady", "1.0", "FROM = 'somebody else'\n")
    done = site.send("steady", "1.0", other)
    assert done.status_code == 409
    assert site.install("steady") == "upload 1.0"


@pytest.mark.parametrize("spelling", ["published", "Published"])
def test_an_upload_with_a_published_name_is_refused_with_the_hint(site: Site, spelling: str) -> None:
    done = site.upload(spelling, "9.0")
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "403" in said
    assert "no upload may take its place" in said
    assert "penstock reservoir uploads allow published" in said.lower()
    assert site.install("published") == "publication 1.0"


@pytest.mark.parametrize("action", ["file_upload", "doc_upload"])
def test_no_other_kind_of_upload_leads_past_the_check(site: Site, action: str) -> None:
    done = site.send("published", "9.0", wheel(site.folder, "published", "9.0"), action)
    assert done.status_code == 403
    assert "no upload may take its place" in done.text
    assert site.install("published") == "publication 1.0"


def test_a_name_without_a_file_is_not_kept(site: Site) -> None:
    assert site.send("nothing", "1.0", wheel(site.folder, "nothing"), "submit").status_code == 410
    with connect(site.path, site.secret) as admin:
        assert "nothing" not in admin.uploaded()


def test_what_is_no_name_is_refused(site: Site) -> None:
    done = site.send("../published", "9.0", wheel(site.folder, "odd", "9.0"))
    assert done.status_code == 400
    assert "not the name of a Python package" in done.text


def test_a_package_of_another_index_cannot_be_pushed_over_a_published_one(site: Site) -> None:
    push = {"name": "published", "version": "1.0", "targetindex": "site/dev"}
    done = httpx.post(f"{site.url}/site/frozen", json=push, auth=("ada", site.uploader))
    assert done.status_code == 403
    assert "no upload may take its place" in done.text


def test_only_accounts_upload_and_only_the_administrator_makes_them(site: Site) -> None:
    assert site.send("strange", "1.0", wheel(site.folder, "strange", "1.0"), auth=None).status_code == 401
    assert httpx.put(f"{site.url}/eve", json={"password": "of-eve-herself"}).status_code == 401
    as_ada = httpx.put(f"{site.url}/eve", json={"password": "of-eve-herself"}, auth=("ada", site.uploader))
    assert as_ada.status_code == 403
    as_ada = httpx.put(f"{site.url}/ada/own", json={"type": "stage"}, auth=("ada", site.uploader))
    assert as_ada.status_code == 403


def test_nobody_stores_results_of_tests(site: Site) -> None:
    assert site.upload("tested", "1.0").returncode == 0
    page = httpx.get(f"{site.url}/site/dev/+simple/tested/", headers={"Accept": SIMPLE})
    file = urljoin(str(page.url), page.json()["files"][0]["url"])
    for auth, status in ((None, 401), (("ada", site.uploader), 403)):
        assert httpx.post(file, json={"passed": True}, auth=auth).status_code == status


def test_nothing_is_taken_in_from_strangers(site: Site) -> None:
    """The answer comes before what they would send."""
    server = httpx.URL(site.url)
    with socket.create_connection((server.host, server.port or 80), timeout=20) as connection:
        head = "POST /index/site/dev/ HTTP/1.1\r\nHost: reservoir\r\nContent-Length: 4000000\r\n\r\n"
        connection.sendall(head.encode() + bytes(1000))
        assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
    assert httpx.post(f"{site.url}/+login", content=bytes(100_000)).status_code == 413


def test_a_name_is_its_first_uploaders_until_it_is_shared(site: Site) -> None:
    assert site.upload("hers", "1.0").returncode == 0
    with connect(site.path, site.secret) as admin:
        bert = ("bert", admin.add_account("bert"))
        assert admin.first_uploader("hers") == "ada"
    other = wheel(site.folder, "hers", "2.0", "FROM = 'bert'\n")
    refused = site.send("Hers", "2.0", other, auth=bert)
    assert (refused.status_code, "belongs to ada" in refused.text) == (403, True), refused.text
    assert "uploads add-owner Hers bert" in refused.text
    assert owner(site, "add-owner", "Hers", "bert") == (0, ["ada", "bert"])
    assert site.send("hers", "2.0", other, auth=bert).status_code == 200
    assert owner(site, "remove-owner", "hers", "bert") == (0, ["ada"])
    assert site.send("hers", "2.1", wheel(site.folder, "hers", "2.1"), auth=bert).status_code == 403
    assert owner(site, "add-owner", "hers", "nobody") == (6, [])
    assert owner(site, "remove-owner", "hers", "ada") == (2, [])
    with connect(site.path, site.secret) as admin:
        admin.remove_account("bert")
    assert site.upload("hers", "3.0").returncode == 0


def owner(site: Site, command: str, name: str, account: str) -> tuple[int, list[str]]:
    """Change who owns a name by the command; returns its exit code, and the owners."""
    places = ("--root", site.root, "--socket", site.path, "--password-file", site.secret, "--json")
    words = ("reservoir", "uploads", command, name, account, *places)
    done = forks.run([BIN / "penstock", *words], os.environ)
    return done.returncode, json.loads(done.stdout)["owners"] if done.stdout else []


def test_an_account_holds_no_more_than_its_quota(site: Site) -> None:
    with connect(site.path, site.secret) as admin:
        carl = ("carl", admin.add_account("carl"))
    filling = os.urandom(QUOTA_MIB * 600 << 10).hex()[: QUOTA_MIB * 600 << 10]
    first, second = (wheel(site.folder, f"large-{n}", "1.0", f"FILLING = '{filling}'\n") for n in "ab")
    assert site.send("large-a", "1.0", first, auth=carl).status_code == 200
    refused = site.send("large-b", "1.0", second, auth=carl)
    assert refused.status_code == 507
    assert "package_index.account_quota_mib" in refused.text
    assert site.upload("not-carls", "1.0").returncode == 0
    with connect(site.path, site.secret) as admin:
        admin.remove_account("carl")


def test_who_guesses_passwords_is_not_heard_for_a_while(site: Site) -> None:
    """Nor is anybody else at that address, here an address of its own."""
    transport = httpx.HTTPTransport(local_address="127.0.0.9")
    with httpx.Client(transport=transport) as guesser:
        for _ in range(TRIES):
            wrong = guesser.post(f"{site.url}/+login", json={"user": "ada", "password": "guessed"})
            assert wrong.status_code == 401
        right = {"user": "ada", "password": site.uploader}
        assert guesser.post(f"{site.url}/+login", json=right).status_code == 429
        assert guesser.get(f"{site.url}/site/dev/", auth=("ada", site.uploader)).status_code == 429
        assert guesser.get(f"{site.url}/site/dev/+simple/").status_code == 200
        # nginx asks for who uploads something before it takes it in
        refused = guesser.post(f"{site.url}/site/dev/", data={":action": "submit"}, auth=("ada", site.uploader))
        assert (refused.status_code, refused.reason_phrase) == (429, "Too Many Requests")
        wait_s = int(refused.headers["Retry-After"])
        assert 0 < wait_s <= SECONDS
        assert refused.text == f"too many wrong passwords from 127.0.0.9; try again in {wait_s} s\n"
    assert httpx.post(f"{site.url}/+login", json=right).status_code == 200


def test_a_name_published_later_hides_the_upload_until_an_administrator_allows_it(site: Site) -> None:
    assert site.upload("later", "2.0").returncode == 0
    assert site.install("later") == "upload 2.0"
    site.freeze("later", "1.0")
    names = Names(site.root)
    with connect(site.path, site.secret) as admin:
        assert names.conflicts(admin.uploaded()) == ["later"]
        assert site.install("later") == "publication 1.0"
        names.allow("later", ["ada"])
        assert names.conflicts(admin.uploaded()) == []
        assert site.install("later") == "upload 2.0"
        assert site.install("later==1.0") == "publication 1.0"
        assert site.upload("later", "3.0").returncode == 0
        dora = ("dora", admin.add_account("dora"))
        names.allow("later", ["dora"])
        assert site.install("later") == "publication 1.0", "what ada uploaded is not dora's"
        assert site.send("later", "4.0", wheel(site.folder, "later", "4.0", "FROM = 'dora'\n"), auth=dora).is_success
        assert site.install("later") == "dora 4.0"
        names.give("later", ["ada", "dora"])
        assert site.install("later==3.0") == "upload 3.0"
        names.deny("later")
        admin.remove_account("dora")
        assert site.install("later") == "publication 1.0"


def test_the_server_knows_no_other_index(site: Site) -> None:
    with connect(site.path, site.secret) as admin:
        assert admin.prepare(site.simple) is False
        assert admin.indexes() == {"site/dev": "", "site/frozen": site.simple}


def test_an_account_that_was_removed_uploads_no_more(site: Site) -> None:
    with connect(site.path, site.secret) as admin:
        password = admin.add_account("bob")
        assert admin.accounts() == ["ada", "bob"]
        package = wheel(site.folder, "bobs", "1.0")
        assert site.send("bobs", "1.0", package, auth=("bob", password)).status_code == 200
        admin.remove_account("bob")
        assert site.send("bobs", "1.0", package, auth=("bob", password)).status_code == 401
        assert "bobs" in admin.uploaded()


def test_a_wrong_password_of_the_administrator_is_named(site: Site, tmp_path: Path) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("wrong")
    with pytest.raises(UnauthenticatedError), connect(site.path, wrong) as admin:
        admin.add_account("eve")


def test_links_lead_through_the_address_that_users_see(site: Site) -> None:
    seen_as = {"Host": "reservoir:8443", "Accept": SIMPLE}
    assert site.upload("linked", "1.0").returncode == 0
    page = f"{site.url}/site/dev/+simple/linked/"
    (file,) = httpx.get(page, headers=seen_as).json()["files"]
    seen = urljoin("https://reservoir:8443/index/site/dev/+simple/linked/", file["url"])
    assert seen.startswith("https://reservoir:8443/index/site/dev/+f/")


def test_what_was_published_once_stays_shut(site: Site) -> None:
    assert site.upload("once", "9.0").returncode == 0
    site.freeze("once", "1.0")
    assert site.install("once") == "publication 1.0"
    rollback(site.root)
    try:
        done = site.upload("once", "9.1")
        assert "no upload may take its place" in " ".join((done.stdout + done.stderr).split())
        assert "once" in Names(site.root).conflicts(["once"])
        page = httpx.get(f"{site.url}/site/dev/+simple/once/", headers={"Accept": SIMPLE})
        assert "once-9.0" not in page.text
    finally:
        publish(site.root)
