"""People whom a directory knows: a real slapd with TLS, and the API that asks it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from ldap3 import Connection, Server
from ldap3.core.exceptions import LDAPException

from api.auth import directory
from api.auth.policy import UserRole
from api.resources.logins import throttle
from api.settings import Settings
from common.errors import UnavailableError
from tests.api.cluster import V1, Cluster, ok, refused, running_cluster, sign_in
from tests.installed import PASSWORD
from tests.integration.agent.conftest import Authority, authority, free_port, make_authority  # noqa: F401

pytestmark = pytest.mark.anyio

BASE = "dc=example,dc=org"
PEOPLE = f"ou=people,{BASE}"
SECRET = "in-the-directory"

CONFIG = """\
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/slapd.pid
argsfile {folder}/slapd.args
TLSCACertificateFile {ca}
TLSCertificateFile {certificate}
TLSCertificateKeyFile {key}
# No password in clear: whoever binds has started TLS before.
security simple_bind=128
database mdb
directory {folder}/data
suffix "dc=example,dc=org"
rootdn "cn=root,dc=example,dc=org"
rootpw root-secret
access to attrs=userPassword by anonymous auth by * none
access to * by users read by anonymous auth
"""


def entries() -> str:
    """Return what the directory holds, as LDIF."""
    people = [f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example"]
    people += [f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}" for unit in ("people", "groups")]
    people += [f"dn: ou=branch,{PEOPLE}\nobjectClass: organizationalUnit\nou: branch"]
    for uid, place in (
        ("carol", PEOPLE),
        ("chief", PEOPLE),
        ("audrey", PEOPLE),
        ("admin", PEOPLE),
        ("twice", PEOPLE),
        ("twice", f"ou=branch,{PEOPLE}"),
        ("asker", BASE),
        ("ab", PEOPLE),
    ):
        people.append(
            f"dn: uid={uid},{place}\nobjectClass: inetOrgPerson\n"
            f"uid: {uid}\ncn: {uid}\nsn: {uid}\nuserPassword: {SECRET}"
        )
    for group, member in (("admins", "chief"), ("auditors", "audrey")):
        people.append(
            f"dn: cn={group},ou=groups,{BASE}\nobjectClass: groupOfNames\ncn: {group}\nmember: uid={member},{PEOPLE}"
        )
    return "\n\n".join(people) + "\n"


@dataclass
class Slapd:
    """A directory server of a test run's own."""

    folder: Path
    authority: Authority
    port: int
    tls_port: int
    encrypts: bool = True
    process: subprocess.Popen[bytes] | None = None

    @property
    def urls(self) -> str:
        return f"ldap://127.0.0.1:{self.port}" + (f" ldaps://127.0.0.1:{self.tls_port}" if self.encrypts else "")

    def fill(self) -> None:
        """Write its configuration and its entries."""
        (self.folder / "data").mkdir(parents=True)
        certificate, key = self.authority.issue("directory")
        text = CONFIG.format(folder=self.folder, ca=self.authority.ca, certificate=certificate, key=key)
        if not self.encrypts:
            text = "".join(line for line in text.splitlines(True) if not line.startswith(("TLS", "security")))
        (self.folder / "slapd.conf").write_text(text)
        (self.folder / "entries.ldif").write_text(entries())
        words = ["slapadd", "-f", str(self.folder / "slapd.conf"), "-l", str(self.folder / "entries.ldif")]
        subprocess.run(words, check=True, capture_output=True)

    def start(self) -> None:
        """Start it and wait until it answers."""
        words = ["slapd", "-f", str(self.folder / "slapd.conf"), "-h", self.urls, "-d", "0"]
        self.process = subprocess.Popen(words, stderr=(self.folder / "log").open("ab"))
        for _ in range(100):
            try:
                Connection(Server(f"ldap://127.0.0.1:{self.port}")).open()
            except LDAPException:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.1)
            else:
                return
        raise AssertionError("slapd does not answer")

    def stop(self) -> None:
        """Stop it."""
        if self.process:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def modify(self, ldif: str) -> None:
        """Change entries."""
        words = ["ldapmodify", "-x", "-H", self.urls.split()[1], "-D", f"cn=root,{BASE}", "-w", "root-secret"]
        environment = {"LDAPTLS_CACERT": str(self.authority.ca), "PATH": "/usr/bin:/bin"}
        subprocess.run(words, input=ldif.encode(), check=True, capture_output=True, env=environment)


@pytest.fixture(scope="module")
def slapd(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:  # noqa: F811
    assert shutil.which("slapd"), "slapd is missing: install the Debian packages slapd and ldap-utils"
    server = Slapd(tmp_path_factory.mktemp("slapd"), authority, free_port(), free_port())
    server.fill()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def settings_of(slapd: Slapd, **changes: Any) -> dict[str, Any]:
    settings = {
        "ldap_url": f"ldaps://127.0.0.1:{slapd.tls_port}",
        "ldap_ca": slapd.authority.ca,
        "ldap_user_dn": f"uid={{name}},{PEOPLE}",
        "ldap_admin_group": f"cn=admins,ou=groups,{BASE}",
        "ldap_auditor_group": f"cn=auditors,ou=groups,{BASE}",
    } | changes
    # as a role writes them: paths are texts
    return {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}


@pytest.fixture
async def cluster(slapd: Slapd, database_url: str) -> AsyncIterator[Cluster]:
    async with running_cluster(database_url, **settings_of(slapd)) as running:
        yield running


def login(guest: httpx.AsyncClient, name: str, password: str = SECRET) -> Any:
    return guest.post(f"{V1}/auth/login", json={"name": name, "password": password})


async def test_the_first_login_makes_the_user(cluster: Cluster) -> None:
    async with cluster.client() as page:
        made = await sign_in(page, "carol", SECRET)
        assert (made["name"], made["role"], made["source"]) == ("carol", "member", "ldap")
        again = await sign_in(page, "carol", SECRET)
        assert again["id"] == made["id"]
        await ok(page.post(f"{V1}/api-keys", json={"name": "x"}))


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("carol", "wrong"),
        ("carol", ""),
        ("nobody", SECRET),
        ("nobody", ""),
        ("*", SECRET),
        ("car*", SECRET),
        ("carol)(uid=*", SECRET),
        ("carol,ou=people", SECRET),
        ("Carol", SECRET),
        ("carol ", SECRET),
        ("ab", SECRET),
    ],
)
@pytest.mark.parametrize("how", ["template", "search"])
async def test_what_is_not_right_is_refused_alike(
    slapd: Slapd, database_url: str, tmp_path: Path, name: str, password: str, how: str
) -> None:
    changes = searching(tmp_path) if how == "search" else {}
    async with running_cluster(database_url, **settings_of(slapd, **changes)) as cluster, cluster.client() as page:
        error = await refused(login(page, name, password), 401)
        assert error["reason"] == "name or password is wrong"
        assert [user["name"] for user in await ok(cluster.admin.get(f"{V1}/users"))] == ["admin"]


async def test_groups_of_the_directory_become_roles(cluster: Cluster, slapd: Slapd) -> None:
    async with cluster.client() as page:
        assert (await sign_in(page, "chief", SECRET))["role"] == "admin"
        assert (await sign_in(page, "audrey", SECRET))["role"] == "auditor"
        group = f"dn: cn=auditors,ou=groups,{BASE}\nchangetype: modify\n"
        slapd.modify(f"{group}replace: member\nmember: uid=carol,{PEOPLE}\n")
        try:
            assert (await sign_in(page, "audrey", SECRET))["role"] == "member", "at the next login"
        finally:
            slapd.modify(f"{group}replace: member\nmember: uid=audrey,{PEOPLE}\n")


async def test_a_user_of_the_site_is_never_looked_for_in_the_directory(cluster: Cluster) -> None:
    """Somebody in the directory with the name of the site's administrator stays outside."""
    async with cluster.client() as page:
        await refused(login(page, "admin", SECRET), 401)
        await sign_in(page, "admin", PASSWORD)


async def test_the_directory_keeps_the_password(cluster: Cluster) -> None:
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)
        await refused(cluster.admin.patch(f"{V1}/users/carol", json={"password": PASSWORD}), 409)
        await refused(login(page, "carol", PASSWORD), 401)
        await ok(cluster.admin.patch(f"{V1}/users/carol", json={"disabled": True}))
        await refused(login(page, "carol", SECRET), 403)


async def test_a_directory_that_is_away(cluster: Cluster, slapd: Slapd) -> None:
    slapd.stop()
    try:
        async with cluster.client() as page:
            for _ in range(throttle.FREE + 2):
                error = await refused(login(page, "carol"), 503)
                assert "the directory does not answer" in error["reason"]
            await sign_in(page, "admin", PASSWORD)
    finally:
        slapd.start()
    async with cluster.client() as page:
        await sign_in(page, "carol", SECRET)


def searching(folder: Path) -> dict[str, Any]:
    """Return the settings of a site that looks for people with an account of its own."""
    secret = folder / "ldap-password"
    secret.write_text(SECRET + "\n")
    return {
        "ldap_user_dn": None,
        "ldap_search_base": PEOPLE,
        "ldap_bind_dn": f"uid=asker,{BASE}",
        "ldap_bind_password_file": secret,
    }


async def ask(slapd: Slapd, name: str, password: str = SECRET, **changes: Any) -> UserRole | None:
    return await directory.role_of(Settings(**settings_of(slapd, **changes)), name, password)


async def test_people_are_found_by_a_search(slapd: Slapd, tmp_path: Path) -> None:
    how = searching(tmp_path)
    assert await ask(slapd, "carol", **how) is UserRole.MEMBER
    assert await ask(slapd, "chief", **how) is UserRole.ADMIN
    assert await ask(slapd, "carol", "wrong", **how) is None
    assert await ask(slapd, "twice", **how) is None, "two people of one name"
    for hostile in ("*", "c*", "carol)(objectClass=*", "\0", "\\2a"):
        assert await ask(slapd, hostile, **how) is None


async def test_the_sites_own_account_that_is_refused_is_no_wrong_password(slapd: Slapd, tmp_path: Path) -> None:
    how = searching(tmp_path)
    how["ldap_bind_password_file"].write_text("wrong")
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", **how)


async def test_a_search_that_is_refused_is_no_wrong_name(slapd: Slapd, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", **searching(tmp_path) | {"ldap_search_base": f"ou=nowhere,{BASE}"})


@pytest.mark.parametrize("hostile", ["carol,ou=people", "carol+uid=chief", "chief,ou=people,dc=example,dc=org#", "*"])
async def test_a_name_cannot_lead_to_another_entry(slapd: Slapd, hostile: str) -> None:
    assert await ask(slapd, hostile) is None


async def test_start_tls(slapd: Slapd) -> None:
    url = f"ldap://127.0.0.1:{slapd.port}"
    assert await ask(slapd, "carol", ldap_url=url) is UserRole.MEMBER
    assert await ask(slapd, "carol", "wrong", ldap_url=url) is None


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
async def test_a_server_with_a_certificate_of_somebody_else_hears_no_password(
    slapd: Slapd, tmp_path: Path, scheme: str
) -> None:
    port = slapd.port if scheme == "ldap" else slapd.tls_port
    other = make_authority(tmp_path / "other")
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", ldap_url=f"{scheme}://127.0.0.1:{port}", ldap_ca=other.ca)


@pytest.mark.parametrize("scheme", ["ldap", "ldaps"])
async def test_a_server_under_another_name_hears_no_password(slapd: Slapd, scheme: str) -> None:
    port = slapd.port if scheme == "ldap" else slapd.tls_port
    with pytest.raises(UnavailableError):
        await ask(slapd, "carol", ldap_url=f"{scheme}://localhost:{port}")


async def test_a_server_that_does_not_encrypt_hears_no_password(authority: Authority, tmp_path: Path) -> None:  # noqa: F811
    plain = Slapd(tmp_path / "plain", authority, free_port(), free_port(), encrypts=False)
    plain.fill()
    plain.start()
    try:
        with pytest.raises(UnavailableError):
            await ask(plain, "carol", ldap_url=f"ldap://127.0.0.1:{plain.port}")
    finally:
        plain.stop()
