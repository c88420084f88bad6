"""The policy's table, and what its scopes mean for a caller."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from api.auth.identity import Identity
from api.auth.policy import TABLE, Action, Party, Scope, UserRole, parties_of, scope_of
from common.errors import ForbiddenError

ME, OTHER = uuid4(), uuid4()


@dataclass(frozen=True)
class Place:
    id: UUID
    domain: str | None


MINE, FOREIGN = Place(uuid4(), None), Place(uuid4(), None)
ACME, GLOBEX = Place(uuid4(), "acme"), Place(uuid4(), "globex")

ADMIN = Identity(ME, "admin", UserRole.ADMIN)
DOMAIN_ADMIN = Identity(ME, "dora", UserRole.ADMIN, "acme")
AUDITOR = Identity(ME, "audrey", UserRole.AUDITOR)
MANAGER = Identity(ME, "mona", UserRole.MEMBER, None, frozenset({MINE.id}), frozenset({MINE.id}))
MEMBER = Identity(ME, "mike", UserRole.MEMBER, None, frozenset(), frozenset({MINE.id}))


def test_every_action_has_a_row() -> None:
    assert set(TABLE) == set(Action)


def test_what_is_not_in_the_table_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.auth.policy.TABLE", {})
    assert scope_of(Action.USER_READ, Party.ADMIN) is None
    assert not ADMIN.allows(Action.USER_READ)
    assert not ADMIN.may(Action.USER_READ)


def test_an_auditor_reads_and_changes_nothing_but_the_own_account() -> None:
    reads = {action for action in Action if scope_of(action, Party.AUDITOR)}
    own = {Action.ACCOUNT_READ, Action.ACCOUNT_CHANGE, Action.ACCOUNT_LOGOUT, Action.ACCOUNT_PASSWORD}
    assert all(action.name.endswith(("_READ", "_OVERSEE")) for action in reads - own)
    everything = {action for action in Action if action.name.endswith("_READ")}
    assert everything <= reads


def test_an_administrator_of_a_domain_reaches_no_further_than_one_of_the_site() -> None:
    order = list(Scope)
    for action in Action:
        mine, site = scope_of(action, Party.DOMAIN_ADMIN), scope_of(action, Party.ADMIN)
        assert mine is None or (site is not None and order.index(mine) >= order.index(site))


def test_managers_change_neither_projects_nor_quotas() -> None:
    assert not MANAGER.may(Action.PROJECT_CHANGE, project=MINE)
    assert not MANAGER.may(Action.PROJECT_CREATE)
    assert not MANAGER.may(Action.PROJECT_DELETE, project=MINE)


@pytest.mark.parametrize(
    ("who", "action", "project", "owner", "expected"),
    [
        (ADMIN, Action.SESSION_END, GLOBEX, OTHER, True),
        (ADMIN, Action.DOMAIN_MANAGE, None, None, True),
        (DOMAIN_ADMIN, Action.SESSION_END, ACME, OTHER, True),
        (DOMAIN_ADMIN, Action.SESSION_END, GLOBEX, OTHER, False),
        (DOMAIN_ADMIN, Action.SESSION_END, MINE, OTHER, False),
        (DOMAIN_ADMIN, Action.DOMAIN_MANAGE, None, None, False),
        (DOMAIN_ADMIN, Action.USER_CREATE, None, None, False),
        (AUDITOR, Action.SESSION_READ, GLOBEX, OTHER, True),
        (AUDITOR, Action.SESSION_END, MINE, ME, False),
        (AUDITOR, Action.SESSION_SUBMIT, MINE, None, False),
        (MANAGER, Action.SESSION_END, MINE, OTHER, True),
        (MANAGER, Action.SESSION_END, FOREIGN, OTHER, False),
        (MANAGER, Action.SESSION_EXTEND, MINE, OTHER, True),
        (MANAGER, Action.PROJECT_MEMBERS, MINE, None, True),
        (MANAGER, Action.PROJECT_MEMBERS, FOREIGN, None, False),
        (MANAGER, Action.SESSION_ENTER, MINE, OTHER, False),
        (MANAGER, Action.SESSION_ENTER, MINE, ME, True),
        (MEMBER, Action.SESSION_READ, MINE, OTHER, True),
        (MEMBER, Action.SESSION_READ, FOREIGN, OTHER, False),
        (MEMBER, Action.SESSION_END, MINE, OTHER, False),
        (MEMBER, Action.SESSION_END, MINE, ME, True),
        (MEMBER, Action.PROJECT_MEMBERS, MINE, None, False),
        (MEMBER, Action.USER_READ, None, ME, False),
    ],
)
def test_how_far_a_right_reaches(
    who: Identity, action: Action, project: Place | None, owner: UUID | None, expected: bool
) -> None:
    assert who.may(action, project=project, owner_id=owner) is expected
    if expected:
        who.check(action, project=project, owner_id=owner)
    else:
        with pytest.raises(ForbiddenError, match=action.value):
            who.check(action, project=project, owner_id=owner)


def test_a_role_of_the_site_leaves_none_of_a_project_beside_it() -> None:
    assert parties_of(UserRole.AUDITOR, domain=False, manages=True) == (Party.AUDITOR,)
    assert parties_of(UserRole.ADMIN, domain=True, manages=True) == (Party.DOMAIN_ADMIN,)
    assert parties_of(UserRole.MEMBER, domain=True, manages=True) == (Party.MANAGER, Party.MEMBER)


def test_what_a_caller_may_list() -> None:
    assert ADMIN.reach(Action.PROJECT_READ).everything
    assert DOMAIN_ADMIN.reach(Action.PROJECT_READ).domain == "acme"
    assert not DOMAIN_ADMIN.reach(Action.PROJECT_READ).everything
    assert MANAGER.reach(Action.PROJECT_MEMBERS).projects == {MINE.id}
    assert MEMBER.reach(Action.PROJECT_MEMBERS).projects == frozenset()
    assert MEMBER.reach(Action.SESSION_END).own
    assert AUDITOR.reach(Action.NODE_READ).everything, "an auditor without a domain reads the whole site"


def test_who_lacks_what_the_managers_of_a_project_may_is_sent_to_them() -> None:
    assert "ask a manager of the project" in MEMBER.refusal(Action.VOLUME_DELETE).problems[0].hint
    assert "manager" not in MEMBER.refusal(Action.VOLUME_HAND_OVER).problems[0].hint
