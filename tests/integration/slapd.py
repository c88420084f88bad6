"""A real directory server (slapd) with TLS for tests, what it holds, and the settings of an API that asks it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from ldap3 import Connection, Server
from ldap3.core.exceptions import LDAPException

from tests.api.cluster import V1
from tests.integration.agent.conftest import Authority, free_port

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
access to dn.children="ou=people,dc=example,dc=org" by dn.exact="uid=blind,dc=example,dc=org" none by * break
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
        ("blind", BASE),
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
        deadline = time.monotonic() + 60
        while True:
            try:
                Connection(Server(f"ldap://127.0.0.1:{self.port}")).open()
            except LDAPException:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, "slapd does not answer"
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """Stop it."""
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def modify(self, ldif: str, *, check: bool = True) -> None:
        """Change entries; without `check` those that are not there may be missing."""
        words = ["ldapmodify", "-x", "-H", self.urls.split()[1], "-D", f"cn=root,{BASE}", "-w", "root-secret"]
        environment = {"LDAPTLS_CACERT": str(self.authority.ca), "PATH": "/usr/bin:/bin"}
        subprocess.run(words, input=ldif.encode(), check=check, capture_output=True, env=environment)


@contextmanager
def running_slapd(authority: Authority, folder: Path) -> Iterator[Slapd]:
    """Give a directory that is filled and answers."""
    assert shutil.which("slapd"), "slapd is missing: install the Debian packages slapd and ldap-utils"
    server = Slapd(folder, authority, free_port(), free_port())
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


def login(guest: httpx.AsyncClient, name: str, password: str = SECRET) -> Any:
    return guest.post(f"{V1}/auth/login", json={"name": name, "password": password})
