"""The site's directory (LDAP): whether it lets a person in, and what its groups make of that person."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ldap3 import ANONYMOUS, BASE, NONE, SIMPLE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPBindError, LDAPException, LDAPStartTLSError
from ldap3.core.results import RESULT_NO_SUCH_OBJECT, RESULT_SIZE_LIMIT_EXCEEDED, RESULT_SUCCESS
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import escape_rdn

from api.auth.policy import UserRole
from api.settings import Settings
from common.errors import UnavailableError

TIMEOUT_S = 5
_DENIED = (32, 34, 48, 49, 53)
"""Results by which a server says that this name or password is not right; any other means that it cannot tell."""

_turns = asyncio.Semaphore(8)
"""Each question holds a thread: a directory that hangs must not take all of them."""


async def role_of(settings: Settings, name: str, password: str) -> UserRole | None:
    """Return the role that the directory gives a person; None where name or password is wrong.

    Raises UnavailableError where the directory cannot be asked: people whom only this site knows sign in all the same.
    """
    # A server takes a bind with a name and no password as anonymous, and grants it.
    if not password:
        return None
    async with _turns:
        try:
            return await asyncio.to_thread(_ask, settings, name, password)
        except (LDAPException, OSError, ssl.SSLError) as error:
            raise UnavailableError(
                f"the directory does not answer: {type(error).__name__}",
                where="PENSTOCK_API_LDAP_URL",
                hint="try again; if it stays so, tell the administrator",
            ) from error


def _ask(settings: Settings, name: str, password: str) -> UserRole | None:
    dn = _dn_of(settings, name)
    if dn is None:
        return None
    with _connection(settings, dn, password) as connection:
        if not connection.bind():
            _check_denied(connection)
            return None
        admins, auditors = settings.ldap_admin_group, settings.ldap_auditor_group
        for group, role in ((admins, UserRole.ADMIN), (auditors, UserRole.AUDITOR)):
            if group and _is_in(connection, group, dn):
                return role
    return UserRole.MEMBER


def _dn_of(settings: Settings, name: str) -> str | None:
    """Return the name of a person's entry: made from the template, or looked for."""
    if settings.ldap_user_dn:
        return settings.ldap_user_dn.replace("{name}", escape_rdn(name))
    password = settings.ldap_bind_password_file
    secret = Path(password).read_text("utf-8").rstrip("\n") if password else None
    with _connection(settings, settings.ldap_bind_dn, secret) as connection:
        if not connection.bind():
            raise LDAPBindError("the directory does not let the site's own account in")
        wanted = settings.ldap_search_filter.replace("{name}", escape_filter_chars(name))
        base = settings.ldap_search_base or ""
        connection.search(base, wanted, SUBTREE, attributes=[], size_limit=2, time_limit=TIMEOUT_S)
        if connection.result["result"] not in (RESULT_SUCCESS, RESULT_SIZE_LIMIT_EXCEEDED):
            raise LDAPBindError(f"the directory does not look for people: {connection.result['description']}")
        found = [str(entry.entry_dn) for entry in connection.entries]
    # Two people of one name: neither can be told from the other.
    return found[0] if len(found) == 1 else None


def _is_in(connection: Connection, group: str, dn: str) -> bool:
    member = escape_filter_chars(dn)
    wanted = f"(|(member={member})(uniqueMember={member}))"
    connection.search(group, wanted, BASE, attributes=[], time_limit=TIMEOUT_S)
    if connection.result["result"] not in (RESULT_SUCCESS, RESULT_NO_SUCH_OBJECT):
        raise LDAPBindError(f"the directory does not show {group}: {connection.result['description']}")
    return bool(connection.entries)


def _check_denied(connection: Connection) -> None:
    """Raise where a bind failed, but not for a wrong name or password."""
    code = connection.result["result"]
    if code not in _DENIED:
        raise LDAPBindError(f"the directory answers {connection.result['description']}")


@contextmanager
def _connection(settings: Settings, dn: str | None, password: str | None) -> Iterator[Connection]:
    """Give a connection that is open and encrypted, but bound to nobody yet."""
    tls = Tls(validate=ssl.CERT_REQUIRED, version=ssl.PROTOCOL_TLS_CLIENT, ca_certs_file=settings.ldap_ca)
    server = Server(settings.ldap_url or "", tls=tls, get_info=NONE, connect_timeout=TIMEOUT_S)
    connection = Connection(
        server,
        user=dn,
        password=password,
        authentication=SIMPLE if dn else ANONYMOUS,
        receive_timeout=TIMEOUT_S,
        read_only=True,
        raise_exceptions=False,
    )
    try:
        connection.open()
        if not server.ssl and not connection.start_tls():
            raise LDAPStartTLSError("the directory does not encrypt the connection")
        yield connection
    finally:
        connection.unbind()
