"""The site's directory (LDAP): whether it lets a person in, what its groups make of somebody, and who is still there.

Only the server of the settings is asked. What it refers to another one is not known here: who would answer there, and
whether in clear, nobody has said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import CERT_REQUIRED, PROTOCOL_TLS_CLIENT
from typing import Any, Literal, ParamSpec, TypeVar
from uuid import UUID

import structlog
from anyio import CapacityLimiter, to_thread
from ldap3 import ANONYMOUS, BASE, NONE, SIMPLE, SUBTREE, Connection, Server, Tls
from ldap3.core.exceptions import LDAPBindError, LDAPStartTLSError
from ldap3.core.results import RESULT_NO_SUCH_OBJECT, RESULT_SIZE_LIMIT_EXCEEDED, RESULT_SUCCESS
from ldap3.utils.conv import escape_bytes, escape_filter_chars
from ldap3.utils.dn import escape_rdn

from api.auth.policy import UserRole
from api.settings import Settings
from common.errors import PenstockError, UnavailableError
from common.sentence import Sentence
from common.settings.control_api import EntryIdAttribute

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_S = 5
AT_ONCE = 100
"""A search asks for so many people at most: servers limit what they answer."""

_ANY = "(objectClass=*)"
_DENIED = (32, 34, 48, 49, 53)
"""Results by which a server says that this name or password is not right; any other means that it cannot tell."""

_threads = CapacityLimiter(8)
"""Each question holds one: a directory that hangs takes none of those in which the scheduler decides."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Person:
    """Somebody whom the directory has let in.

    `entry_id` is what the entry keeps whatever it is called. `role` is None where no group of the directory decides it.
    """

    entry_id: str
    role: UserRole | None
    disabled: bool = False


async def person(settings: Settings, name: str, password: str) -> Person | None:
    """Return the person of a name; None where name or password is wrong.

    Raises UnavailableError where the directory cannot be asked: people whom only this site knows sign in all the same.
    """
    # A server takes a bind with a name and no password as anonymous, and grants it.
    return await _ask(_person, settings, name, password) if password else None


async def present(settings: Settings, people: Mapping[str, str | None]) -> dict[str, str]:
    """Return those of some people whom the directory has, and has not disabled: the ids of their entries by name.

    `people` are the ids by name; None stands for the entry that has the name now. Raises UnavailableError where the
    directory does not answer, or shows nobody at all: that says nothing about anyone.
    """
    return await _ask(_present, settings, people)


async def look(settings: Settings) -> None:
    """Ask for anybody, as the site itself; raises UnavailableError as `present` does, from what was the matter."""
    await _ask(_look, settings)


async def _ask(question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    asked = partial(question, *args, **kwargs)
    try:
        return await to_thread.run_sync(asked, limiter=_threads, abandon_on_cancel=True)
    except PenstockError:
        raise
    except Exception as error:
        # ldap3 raises what it likes where it cannot read an answer.
        log.warning("directory", error=str(error))
        raise UnavailableError(
            Sentence("the directory does not answer: {why}", why=type(error).__name__),
            where="PENSTOCK_API_LDAP_URL",
            hint=Sentence("try again; if it stays so, tell the administrator"),
        ) from error


def _person(settings: Settings, name: str, password: str) -> Person | None:
    dn = _dn_of(settings, name)
    if dn is None:
        return None
    with _connection(settings, dn, password) as connection:
        if not connection.bind():
            _check_denied(connection)
            return None
        found = _ids(connection, settings, dn, _ANY, scope=BASE)
        if not found:
            raise UnavailableError(
                Sentence(
                    "the directory does not show {attribute} of {name}", attribute=settings.ldap_id_attribute, name=name
                ),
                where="PENSTOCK_API_LDAP_ID_ATTRIBUTE",
                hint=Sentence(
                    "set {setting} to what this kind of directory has, such as {example}",
                    setting="ldap_id_attribute",
                    example="objectGUID",
                ),
            )
        role = _role(connection, settings, dn)
        disabled = bool(_ids(connection, settings, dn, settings.ldap_disabled_filter, scope=BASE))
    return Person(found.pop(), role, disabled)


def _look(settings: Settings) -> None:
    with _site_connection(settings) as connection:
        _check_shown(connection, settings)


def _check_shown(connection: Connection, settings: Settings) -> None:
    base, anybody = _people(settings)
    if not _ids(connection, settings, base, anybody, limit=1):
        raise LDAPBindError(f"the directory shows nobody below {base}; give ldap_bind_dn the right to read there")


def _present(settings: Settings, people: Mapping[str, str | None]) -> dict[str, str]:
    base, anybody = _people(settings)
    with _site_connection(settings) as connection:
        _check_shown(connection, settings)
        ids = {name: entry_id or _id_of(connection, settings, name) for name, entry_id in people.items()}
        wanted = [entry_id for entry_id in ids.values() if entry_id]
        there: set[str] = set()
        for start in range(0, len(wanted), AT_ONCE):
            some = _any_of(wanted[start : start + AT_ONCE], settings.ldap_id_attribute)
            there |= _ids(connection, settings, base, f"(&{anybody}{some})")
            there -= _ids(connection, settings, base, f"(&{settings.ldap_disabled_filter}{some})")
    return {name: entry_id for name, entry_id in ids.items() if entry_id in there}


def _dn_of(settings: Settings, name: str) -> str | None:
    """Return the name of a person's entry: made from the template, or looked for."""
    if settings.ldap_user_dn:
        return settings.ldap_user_dn.replace("{name}", escape_rdn(name))
    with _site_connection(settings) as connection:
        found = _search(connection, *_people(settings, name), limit=2)
    # Two people of one name: neither can be told from the other.
    return str(found[0]["dn"]) if len(found) == 1 else None


def _id_of(connection: Connection, settings: Settings, name: str) -> str | None:
    """Return the id of the entry that has a name now; None where none has it, or several have."""
    found = _ids(connection, settings, *_people(settings, name), limit=2)
    return found.pop() if len(found) == 1 else None


def _people(settings: Settings, name: str | None = None) -> tuple[str, str]:
    """Return below which entry people are, and the filter for those of a name, or for all."""
    wanted = "*" if name is None else escape_filter_chars(name)
    if settings.ldap_user_dn:
        attribute, _, base = settings.ldap_user_dn.partition("={name},")
        return base, f"({attribute}={wanted})"
    return settings.ldap_search_base or "", settings.ldap_search_filter.replace("{name}", wanted)


def _role(connection: Connection, settings: Settings, dn: str) -> UserRole | None:
    groups = {UserRole.ADMIN: settings.ldap_admin_group, UserRole.AUDITOR: settings.ldap_auditor_group}
    for role, group in groups.items():
        if group and _is_in(connection, group, dn):
            return role
    return UserRole.MEMBER if any(groups.values()) else None


def _is_in(connection: Connection, group: str, dn: str) -> bool:
    member = escape_filter_chars(dn)
    return bool(_search(connection, group, f"(|(member={member})(uniqueMember={member}))", scope=BASE))


def _ids(connection: Connection, settings: Settings, base: str, wanted: str, **how: Any) -> set[str]:
    """Return the ids of the entries that a filter finds, of those that show one."""
    attribute = settings.ldap_id_attribute
    found = _search(connection, base, wanted, attributes=[attribute], **how)
    values: list[list[bytes]] = [next(iter(entry["raw_attributes"].values()), []) for entry in found]
    return {_text(value[0], attribute) for value in values if value}


def _search(
    connection: Connection,
    base: str,
    wanted: str,
    *,
    scope: Literal["BASE", "SUBTREE"] = SUBTREE,
    limit: int = 0,
    attributes: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Return what a filter finds, no more than `limit`; raises where the server does not say all of it."""
    connection.search(base, wanted, scope, attributes=[*attributes], size_limit=limit, time_limit=TIMEOUT_S)
    # Of one entry the server may say that there is none; one below which others are has to be there.
    fine = [
        RESULT_SUCCESS,
        *([RESULT_NO_SUCH_OBJECT] if scope == BASE else []),
        *([RESULT_SIZE_LIMIT_EXCEEDED] if limit else []),
    ]
    if connection.result["result"] not in fine:
        raise LDAPBindError(f"the directory does not show {base}: {connection.result['description']}")
    return [entry for entry in connection.response or () if entry["type"] == "searchResEntry"]


def _any_of(ids: Iterable[str], attribute: EntryIdAttribute) -> str:
    """Return the filter of the entries that have one of these ids."""
    return f"(|{''.join(f'({attribute}={escape_bytes(_raw(entry_id, attribute))})' for entry_id in ids)})"


def _text(value: bytes, attribute: EntryIdAttribute) -> str:
    return str(UUID(bytes_le=value)) if attribute == "objectGUID" else value.decode()


def _raw(entry_id: str, attribute: EntryIdAttribute) -> bytes:
    return UUID(entry_id).bytes_le if attribute == "objectGUID" else entry_id.encode()


def _check_denied(connection: Connection) -> None:
    """Raise where a bind failed, but not for a wrong name or password."""
    code = connection.result["result"]
    if code not in _DENIED:
        raise LDAPBindError(f"the directory answers {connection.result['description']}")


@contextmanager
def _site_connection(settings: Settings) -> Iterator[Connection]:
    """Give a connection that is bound to the site's own account, or to nobody where it has none."""
    password = settings.ldap_bind_password_file
    secret = Path(password).read_text("utf-8").rstrip("\n") if password else None
    with _connection(settings, settings.ldap_bind_dn, secret) as connection:
        if not connection.bind():
            raise LDAPBindError("the directory does not let the site's own account in")
        yield connection


@contextmanager
def _connection(settings: Settings, dn: str | None, password: str | None) -> Iterator[Connection]:
    """Give a connection that is open and encrypted, but bound to nobody yet."""
    tls = Tls(validate=CERT_REQUIRED, version=PROTOCOL_TLS_CLIENT, ca_certs_file=settings.ldap_ca)
    server = Server(
        settings.ldap_url or "", tls=tls, get_info=NONE, connect_timeout=TIMEOUT_S, allowed_referral_hosts=[]
    )
    connection = Connection(
        server,
        user=dn,
        password=password,
        authentication=SIMPLE if dn else ANONYMOUS,
        auto_referrals=False,
        receive_timeout=TIMEOUT_S,
        # The fast one does not know the answer to a bind that refers to another server.
        fast_decoder=False,
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
