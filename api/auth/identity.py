"""A known caller, and what the policy's table means for that caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol
from uuid import UUID

from api.auth.policy import TABLE, Action, KeyScope, Party, Scope, UserRole, covers, parties_of, scope_of
from common.errors import ForbiddenError
from common.sentence import Sentence


class ProjectRef(Protocol):
    """A project, as far as rights go."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def domain(self) -> str | None:
        """The name of its domain; None for one of the site itself."""


@dataclass(frozen=True)
class Reach:
    """What of a kind a caller may act on, for queries: any of these is enough.

    `domain` is the name of a domain whose things all belong to it; `projects` are the ids of projects; `own` says
    whether what belongs to the caller does.
    """

    everything: bool = False
    domain: str | None = None
    projects: frozenset[UUID] = frozenset()
    own: bool = False

    @property
    def anything(self) -> bool:
        """Whether it reaches further than to no project at all."""
        return self.everything or self.own or self.domain is not None or bool(self.projects)


@dataclass(frozen=True)
class Identity:
    """A known caller. `domain` is a name; `member_of` holds the projects that the caller manages too.

    `key` is the scope of the key that the caller sent; who has signed in may do all.
    """

    id: UUID
    name: str
    role: UserRole
    domain: str | None = None
    manages: frozenset[UUID] = field(default=frozenset())
    member_of: frozenset[UUID] = field(default=frozenset())
    key: KeyScope = KeyScope.ALL

    @cached_property
    def parties(self) -> tuple[Party, ...]:
        """The columns of the policy's table that hold for the caller."""
        return parties_of(self.role, domain=self.domain is not None, manages=bool(self.manages))

    def allows(self, action: Action) -> bool:
        """Return whether there is anything at all that the caller may do this to."""
        return covers(self.key, action) and any(scope_of(action, party) for party in self.parties)

    def may(
        self,
        action: Action,
        *,
        project: ProjectRef | None = None,
        owner_id: UUID | None = None,
        domain: str | None = None,
    ) -> bool:
        """Return whether the caller may do this to something of a project, an owner, a domain.

        The domain of a project counts as the thing's. What belongs to nobody needs a right on the whole site.
        """
        reach = self.reach(action)
        if reach.everything:
            return True
        place = project.domain if project else domain
        return (
            (reach.domain is not None and reach.domain == place)
            or (project is not None and project.id in reach.projects)
            or (reach.own and owner_id == self.id)
        )

    def check(
        self,
        action: Action,
        *,
        project: ProjectRef | None = None,
        owner_id: UUID | None = None,
        domain: str | None = None,
        where: str = "",
    ) -> None:
        """Raise ForbiddenError unless the caller may do this; the arguments are those of `may`, and a field."""
        if not self.may(action, project=project, owner_id=owner_id, domain=domain):
            raise self.refusal(action, where)

    def reach(self, action: Action) -> Reach:
        """Return what the caller may do this to."""
        if not covers(self.key, action):
            return Reach()
        scopes = {party: scope for party in self.parties if (scope := scope_of(action, party))}
        wide = Scope.SITE in scopes.values() or (Scope.DOMAIN in scopes.values() and self.domain is None)
        projects: frozenset[UUID] = frozenset()
        for party, scope in scopes.items():
            if scope is Scope.PROJECT:
                projects |= self.manages if party is Party.MANAGER else self.member_of
        return Reach(
            everything=wide,
            domain=self.domain if Scope.DOMAIN in scopes.values() else None,
            projects=projects,
            own=Scope.OWN in scopes.values(),
        )

    def refusal(self, action: Action, where: str = "") -> ForbiddenError:
        """Return the error that says that the caller may not do something, or not with a field of a body."""
        if action in TABLE and not covers(self.key, action):
            return ForbiddenError(
                f"a key with the scope {self.key} may not {action}",
                where="Authorization",
                hint=f"send a key with the scope {TABLE[action].key}, or sign in",
            )
        hint = Sentence("ask an administrator")
        if scope_of(action, Party.MANAGER) is Scope.PROJECT:
            hint = Sentence("ask a manager of the project, or an administrator")
        # what the table calls an action is translated as it stands there
        said = Sentence("you may not {action}", action=Sentence(action.value))
        return ForbiddenError(said, where=where, hint=hint)
