"""The policy: one table of action and party, and how far each may reach. What is not in it is refused.

This module is pure: it knows neither rows nor requests. `api.auth.identity` applies it to a caller,
`api.endpoints.access` to routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class UserRole(StrEnum):
    """What a user is everywhere: an admin changes, an auditor reads, a member does what the projects allow."""

    ADMIN = "admin"
    AUDITOR = "auditor"
    MEMBER = "member"


class Party(StrEnum):
    """A column of the table: a user's role, with the domain and the projects taken into account."""

    ADMIN = "admin"
    DOMAIN_ADMIN = "domain admin"
    AUDITOR = "auditor"
    DOMAIN_AUDITOR = "domain auditor"
    MANAGER = "manager"
    MEMBER = "member"


class Scope(StrEnum):
    """How far a right reaches, widest first.

    SITE is everything. DOMAIN is what belongs to the caller's domain; for a caller without one it is everything.
    PROJECT is what belongs to a project that the caller manages (as a manager) or is in (as a member). OWN is what
    belongs to the caller.
    """

    SITE = "site"
    DOMAIN = "domain"
    PROJECT = "project"
    OWN = "own"


class KeyScope(StrEnum):
    """What an API key is good for: to read, to work with sessions too, or all that its user may do; narrowest first."""

    READ = "read"
    SUBMIT = "submit"
    ALL = "all"


class Action(StrEnum):
    """What somebody may want to do; every endpoint names one."""

    ACCOUNT_READ = "see one's own account, logins and keys"
    ACCOUNT_LOGOUT = "sign out"
    ACCOUNT_PASSWORD = "replace the password that one was given"  # noqa: S105 -- it names an action
    ACCOUNT_CHANGE = "end one's own logins, make and revoke one's own keys"
    USER_READ = "see users"
    USER_CREATE = "create users"
    USER_CHANGE = "change users, their passwords, logins and keys"
    USER_DELETE = "delete users"
    USER_MOVE = "move users to another domain"
    USER_AUDIT = "make auditors"
    USER_LIMIT = "say which policy limits a user"
    DOMAIN_READ = "see domains"
    DOMAIN_MANAGE = "create and delete domains"
    POLICY_READ = "see user policies"
    POLICY_MANAGE = "create, change and delete user policies"
    ACCOUNTING_READ = "see who used how much"
    PROJECT_READ = "see projects"
    PROJECT_CREATE = "create projects"
    PROJECT_MEMBERS = "change the members of projects, and who sees their sessions"
    PROJECT_CHANGE = "change projects"
    PROJECT_DELETE = "delete projects"
    PROJECT_WEIGH = "give projects a weight beyond their quotas"
    GROUP_READ = "see resource groups"
    GROUP_OVERSEE = "see the resource groups that others use, and who may use them"
    GROUP_ALLOW = "say who may use resource groups"
    GROUP_MANAGE = "create, change and delete resource groups"
    IMAGE_READ = "see images"
    IMAGE_REGISTER = "register images"
    IMAGE_MANAGE = "check and delete images"
    NODE_READ = "see nodes"
    NODE_CHANGE = "take nodes out of service and back"
    NODE_DELETE = "delete nodes"
    SESSION_READ = "see sessions and their logs"
    SESSION_OVERSEE = "see private sessions"
    SESSION_SUBMIT = "submit sessions"
    SESSION_DRY_RUN = "see what would become of sessions"
    SESSION_END = "end sessions"
    SESSION_RESTART = "restart sessions"
    SESSION_EXTEND = "extend the time limit of sessions"
    SESSION_CHANGE = "change the priority of sessions"
    SESSION_RESIZE = "change the GPU share of running sessions"
    SESSION_SHOW = "change who sees sessions"
    SESSION_RAISE = "give sessions a higher priority than is usual"
    SESSION_ENTER = "run commands in sessions"
    APP_OPEN = "open the apps of sessions"
    VOLUME_READ = "see volumes"
    VOLUME_CREATE = "create volumes"
    VOLUME_DELETE = "delete volumes"
    VOLUME_HAND_OVER = "hand volumes over to other projects"
    PRESET_READ = "see presets"
    PRESET_MANAGE = "create, change and delete presets"
    NOTICE_READ = "see notices"
    NOTICE_MANAGE = "write and end notices for everybody"
    SANDBOX_READ = "see sandboxes"
    SANDBOX_MANAGE = "create, change and delete sandboxes, and say for whom they are"
    DENIED_CALL_READ = "see which system calls sandboxes denied"
    SCHEDULER_READ = "see the scheduler's decisions"
    REPAIR_READ = "see repairs, and what became of them"
    REPAIR_RUN = "order repairs"
    BACKUP_READ = "see backups, and what became of orders"
    BACKUP_ORDER = "order backups"
    HEALTH_READ = "see the checks of nodes and of the site"
    HEALTH_CHANGE = "acknowledge and clear checks"
    LOGS_READ = "read the logs of the site"
    SETTINGS_READ = "see the site's settings"
    AUDIT_READ = "read the audit log"
    AUDIT_OVERSEE = "verify the audit log, and copy its files"
    AUDIT_DELETE = "delete files of the audit log"


@dataclass(frozen=True)
class Row:
    """What the table says of an action: the narrowest scope of a key for it, and how far each party reaches."""

    key: KeyScope
    reach: Mapping[Party, Scope]


def _row(key: KeyScope, *reach: Scope | None) -> Row:
    return Row(key, {party: scope for party, scope in zip(Party, reach, strict=True) if scope})


_READ, _SUBMIT, _ALL = KeyScope
_S, _D, _P, _O = Scope

# fmt: off
TABLE: Mapping[Action, Row] = {
    #                             key      admin  domain admin  auditor  domain auditor  manager  member
    Action.ACCOUNT_READ:     _row(_READ,   _O,    _O,           _O,      _O,             _O,      _O),
    Action.ACCOUNT_LOGOUT:   _row(_READ,   _O,    _O,           _O,      _O,             _O,      _O),
    Action.ACCOUNT_PASSWORD: _row(_ALL,    _O,    _O,           _O,      _O,             _O,      _O),
    Action.ACCOUNT_CHANGE:   _row(_ALL,    _O,    _O,           _O,      _O,             _O,      _O),
    Action.USER_READ:        _row(_READ,   _S,    _D,           _S,      _D,             None,    None),
    Action.USER_CREATE:      _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.USER_CHANGE:      _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.USER_DELETE:      _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.USER_MOVE:        _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.USER_AUDIT:       _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.USER_LIMIT:       _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.DOMAIN_READ:      _row(_READ,   _S,    _D,           _S,      _D,             None,    None),
    Action.DOMAIN_MANAGE:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.POLICY_READ:      _row(_READ,   _S,    _S,           _S,      _S,             None,    None),
    Action.POLICY_MANAGE:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.ACCOUNTING_READ:  _row(_READ,   _S,    _D,           _S,      _D,             _P,      _O),
    Action.PROJECT_READ:     _row(_READ,   _S,    _D,           _S,      _D,             _P,      _P),
    Action.PROJECT_CREATE:   _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.PROJECT_MEMBERS:  _row(_ALL,    _S,    _D,           None,    None,           _P,      None),
    Action.PROJECT_CHANGE:   _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.PROJECT_DELETE:   _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.PROJECT_WEIGH:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.GROUP_READ:       _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.GROUP_OVERSEE:    _row(_READ,   _S,    _D,           _S,      _D,             None,    None),
    Action.GROUP_ALLOW:      _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.GROUP_MANAGE:     _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.IMAGE_READ:       _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.IMAGE_REGISTER:   _row(_ALL,    _S,    _D,           None,    None,           _P,      _P),
    Action.IMAGE_MANAGE:     _row(_ALL,    _S,    _D,           None,    None,           _P,      _O),
    Action.NODE_READ:        _row(_READ,   _S,    _D,           _S,      _D,             _D,      _D),
    Action.NODE_CHANGE:      _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.NODE_DELETE:      _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.SESSION_READ:     _row(_READ,   _S,    _D,           _S,      _D,             _P,      _P),
    Action.SESSION_OVERSEE:  _row(_READ,   _S,    _D,           _S,      _D,             _P,      _O),
    Action.SESSION_SUBMIT:   _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _P),
    Action.SESSION_DRY_RUN:  _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _P),
    Action.SESSION_END:      _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _O),
    Action.SESSION_RESTART:  _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _O),
    Action.SESSION_EXTEND:   _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _O),
    Action.SESSION_CHANGE:   _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _O),
    Action.SESSION_RESIZE:   _row(_SUBMIT, _S,    _D,           None,    None,           _P,      _O),
    Action.SESSION_SHOW:     _row(_SUBMIT, _S,    _D,           None,    None,           _O,      _O),
    Action.SESSION_RAISE:    _row(_SUBMIT, _S,    _D,           None,    None,           _P,      None),
    Action.SESSION_ENTER:    _row(_SUBMIT, _S,    _D,           None,    None,           _O,      _O),
    Action.APP_OPEN:         _row(_SUBMIT, _S,    _D,           None,    None,           _O,      _O),
    Action.VOLUME_READ:      _row(_READ,   _S,    _D,           _S,      _D,             _P,      _P),
    Action.VOLUME_CREATE:    _row(_ALL,    _S,    _D,           None,    None,           _P,      None),
    Action.VOLUME_DELETE:    _row(_ALL,    _S,    _D,           None,    None,           _P,      None),
    Action.VOLUME_HAND_OVER: _row(_ALL,    _S,    _D,           None,    None,           None,    None),
    Action.PRESET_READ:      _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.PRESET_MANAGE:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.NOTICE_READ:      _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.NOTICE_MANAGE:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.SANDBOX_READ:     _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.SANDBOX_MANAGE:   _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.DENIED_CALL_READ: _row(_READ,   _S,    _D,           _S,      _D,             _P,      None),
    Action.SCHEDULER_READ:   _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.REPAIR_READ:      _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.REPAIR_RUN:       _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.BACKUP_READ:      _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.BACKUP_ORDER:     _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.HEALTH_READ:      _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.HEALTH_CHANGE:    _row(_ALL,    _S,    None,         None,    None,           None,    None),
    Action.LOGS_READ:        _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.SETTINGS_READ:    _row(_READ,   _S,    _S,           _S,      _S,             _S,      _S),
    Action.AUDIT_READ:       _row(_READ,   _S,    _D,           _S,      _D,             None,    None),
    Action.AUDIT_OVERSEE:    _row(_READ,   _S,    None,         _S,      None,           None,    None),
    Action.AUDIT_DELETE:     _row(_ALL,    _S,    None,         None,    None,           None,    None),
}
# fmt: on


def scope_of(action: Action, party: Party) -> Scope | None:
    """Return how far a party may reach with an action; None where it may not at all."""
    row = TABLE.get(action)
    return row.reach.get(party) if row else None


def covers(key: KeyScope, action: Action) -> bool:
    """Return whether a key of a scope is good for an action."""
    row = TABLE.get(action)
    order = list(KeyScope)
    return row is not None and order.index(key) >= order.index(row.key)


def parties_of(role: UserRole, *, domain: bool, manages: bool) -> tuple[Party, ...]:
    """Return the columns that hold for a user with a role, `domain`: of a domain, `manages`: a project or more."""
    if role is UserRole.ADMIN:
        return (Party.DOMAIN_ADMIN if domain else Party.ADMIN,)
    if role is UserRole.AUDITOR:
        return (Party.DOMAIN_AUDITOR if domain else Party.AUDITOR,)
    return (Party.MANAGER, Party.MEMBER) if manages else (Party.MEMBER,)
