"""Permissions: who may use which resource groups. Pure: loaded once for many questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from api.tables.sessions import Kind

Groups = tuple[tuple[str, ...] | None, bool]
"""The groups whose nodes may be used, in order of preference (None: every one), and whether only nodes of groups may
be."""


@dataclass(frozen=True)
class Group:
    """A group and who may use it."""

    name: str
    open: bool = False
    domain: str | None = None
    users: frozenset[UUID] = frozenset()
    projects: frozenset[UUID] = frozenset()


class Affinity(Protocol):
    """A project, as far as groups go."""

    @property
    def id(self) -> UUID:
        """Its id."""

    @property
    def training_group(self) -> str | None:
        """The group that its work keeps to where no person sits at it."""

    @property
    def interactive_group(self) -> str | None:
        """The group that its interactive sessions keep to."""


class Permissions:
    """All groups and who may use them; `domains` has the domains of those users who have one."""

    def __init__(self, groups: Iterable[Group], domains: Mapping[UUID, str]) -> None:
        """Remember the groups by name."""
        self._groups = sorted(groups, key=lambda group: (group.open, group.name))
        self._domains = domains
        self._in_project: dict[tuple[UUID | None, UUID], tuple[str, ...]] = {}

    def usable(self, user_id: UUID | None, projects: frozenset[UUID]) -> tuple[str, ...]:
        """Return the groups that a user may use in any of some projects: those for few first, then the open ones."""
        domain = self._domains.get(user_id) if user_id else None
        return tuple(
            group.name
            for group in self._groups
            if group.domain in (None, domain) and (group.open or user_id in group.users or group.projects & projects)
        )

    def allowed(self, user_id: UUID | None, project: Affinity, kind: Kind, wanted: str | None = None) -> Groups:
        """Return where a session may run. Where nothing is left, as after a group was closed, that is no group at all.

        What a project's sessions keep to, or a user has chosen, is the only group then, and nodes in no group are none
        of it. A group that the project keeps to is allowed by that.
        """
        kept_to = affinity(project, kind)
        if kept_to:
            return (kept_to,) if wanted in (None, "", kept_to) else (), True
        key = (user_id, project.id)
        if key not in self._in_project:
            self._in_project[key] = self.usable(user_id, frozenset([project.id]))
        usable = self._in_project[key]
        if wanted:
            return (wanted,) if wanted in usable else (), True
        return usable if self._groups else None, False


def affinity(project: Affinity, kind: Kind) -> str | None:
    """Return the group that a project's sessions of a kind keep to, if any."""
    return project.interactive_group if kind is Kind.INTERACTIVE else project.training_group
