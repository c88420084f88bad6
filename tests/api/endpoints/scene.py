"""A site with everybody of the table of rights and things of every owner, and how a route is asked for one of these.

The people of the table are of the domain acme, but for those of the site. Each has a session and an image in the
project rockets. So have others: Carl in rockets and Eve, whose session is private, Dan in another project of acme, Gus
in the domain globex, Sid in a project of the site.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.auth import passwords
from api.auth.policy import UserRole
from api.clock import now
from api.database import Database
from api.resources.accounting import service as accounting
from api.tables.api_keys import ApiKey
from api.tables.domains import Domain
from api.tables.groups import ResourceGroup
from api.tables.images import Image, Visibility
from api.tables.logins import Login
from api.tables.nodes import Node
from api.tables.projects import Access, Membership, Project, ProjectRole
from api.tables.sessions import Kind, Service, Session, State
from api.tables.users import User
from api.tables.volumes import Volume
from common.app_addresses import AppName
from tests.api.cluster import V1, Cluster
from tests.installed import PASSWORD

ROLES = {
    "admin": (UserRole.ADMIN, None),
    "auditor": (UserRole.AUDITOR, None),
    "domain-admin": (UserRole.ADMIN, "acme"),
    "domain-auditor": (UserRole.AUDITOR, "acme"),
    "manager": (UserRole.MEMBER, "acme"),
    "member": (UserRole.MEMBER, "acme"),
    "user": (UserRole.MEMBER, "acme"),
    "carl": (UserRole.MEMBER, "acme"),
    "eve": (UserRole.MEMBER, "acme"),
    "dan": (UserRole.MEMBER, "acme"),
    "gus": (UserRole.MEMBER, "globex"),
    "sid": (UserRole.MEMBER, None),
}
PROJECTS: dict[str, tuple[str | None, dict[str, ProjectRole]]] = {
    "rockets": (
        "acme",
        {"manager": ProjectRole.MANAGER, **dict.fromkeys(("member", "carl", "eve"), ProjectRole.MEMBER)},
    ),
    "engines": ("acme", {"dan": ProjectRole.MEMBER}),
    "planes": ("globex", {"gus": ProjectRole.MEMBER}),
    "public": (None, {"sid": ProjectRole.MEMBER}),
}
PLACES = {"acme": "acme", "globex": "globex", "site": None}
"""Places with a resource group and a node in it, and their domains."""
HEIRS = {"acme": "engines", "globex": "planes", "site": "public"}
"""Projects of each place to which volumes are handed over; of these own ones may be handed over by another name."""
HOMES = {"dan": "engines", "gus": "planes", "sid": "public"}
"""Projects of sessions and images; the others have theirs in rockets."""
OTHERS = {"project": "carl", "private": "eve", "domain": "dan", "other": "gus", "site": "sid"}


@dataclass(frozen=True)
class Asked:
    """How a route is asked for a thing: what stands in braces is the thing's. A list is to `show` the thing.

    What pages send is a `form`.
    """

    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    show: str = ""
    form: Mapping[str, Any] | None = None


_NEW_SESSION = {"name": "new", "project": "{project}", "image": "python", "gpu_milli": 0, "cpu_milli": 1000}
_IN_PROJECT = {"project": "{project}"}
ASKED = {
    f"GET {V1}/auth/logins": Asked(show="browser of {user}"),
    f"DELETE {V1}/auth/logins/{{login_id}}": Asked(),
    f"GET {V1}/api-keys": Asked(show="key of {user}"),
    f"DELETE {V1}/api-keys/{{key_id}}": Asked(),
    f"GET {V1}/users": Asked(show="{user}"),
    f"POST {V1}/users": Asked(body={"name": "new", "password": PASSWORD, "domain": "{domain}"}),
    f"GET {V1}/users/{{name}}": Asked(),
    f"PATCH {V1}/users/{{name}}": Asked(body={"email": "new@example.org"}),
    f"DELETE {V1}/users/{{name}}": Asked(),
    f"PUT {V1}/users/{{name}}/password": Asked(body={"password": PASSWORD}),
    f"GET {V1}/users/{{name}}/api-keys": Asked(),
    f"DELETE {V1}/users/{{name}}/api-keys/{{key_id}}": Asked(),
    f"DELETE {V1}/users/{{name}}/logins": Asked(),
    f"GET {V1}/domains": Asked(show="{domain}"),
    f"PATCH {V1}/domains/{{name}}": Asked(body={"description": "new"}),
    f"DELETE {V1}/domains/{{name}}": Asked(),
    f"GET {V1}/accounting": Asked(query={"by": "user"}, show="{user}"),
    f"GET {V1}/accounting/timeline": Asked(query={"by": "user"}, show="{user}"),
    f"GET {V1}/accounting/waits": Asked(query={"by": "user"}, show="{user}"),
    f"GET {V1}/projects": Asked(show="{project}"),
    f"POST {V1}/projects": Asked(
        body={"name": "new", "quota_milli": 1000, "period": {"ends_at": None}, "domain": "{domain}"}
    ),
    f"GET {V1}/projects/{{name}}": Asked(),
    f"PATCH {V1}/projects/{{name}}": Asked(body={"members": []}),
    f"DELETE {V1}/projects/{{name}}": Asked(),
    f"GET {V1}/resource-groups": Asked(show="{group}"),
    f"POST {V1}/resource-groups": Asked(body={"name": "new", "domain": "{domain}"}),
    f"GET {V1}/resource-groups/{{name}}": Asked(),
    f"PATCH {V1}/resource-groups/{{name}}": Asked(body={"description": "new"}),
    f"DELETE {V1}/resource-groups/{{name}}": Asked(),
    f"GET {V1}/images": Asked(show="{image}"),
    f"POST {V1}/images": Asked(body={"name": "new", "tag": "1", "reference": "r/new:1", "projects": ["{project}"]}),
    f"POST {V1}/images/{{name}}:{{tag}}/check": Asked(query=_IN_PROJECT),
    f"DELETE {V1}/images/{{name}}:{{tag}}": Asked(query=_IN_PROJECT),
    f"GET {V1}/nodes": Asked(show="{node}"),
    f"GET {V1}/nodes/{{name}}": Asked(),
    f"PATCH {V1}/nodes/{{name}}": Asked(body={"interface": ""}),
    f"PATCH {V1}/nodes/{{name}}/mode": Asked(body={"mode": "maintenance"}),
    f"DELETE {V1}/nodes/{{name}}": Asked(),
    f"DELETE {V1}/nodes/{{name}}/unknown-containers": Asked(),
    f"GET {V1}/sessions": Asked(show="{session}"),
    f"POST {V1}/sessions": Asked(body=_NEW_SESSION),
    f"POST {V1}/sessions/batch": Asked(body={**_NEW_SESSION, "count": 2}),
    f"POST {V1}/sessions/check": Asked(body=_NEW_SESSION),
    f"GET {V1}/sessions/{{name}}": Asked(query=_IN_PROJECT),
    f"PATCH {V1}/sessions/{{name}}": Asked(query=_IN_PROJECT, body={"priority": 10}),
    f"DELETE {V1}/sessions/{{name}}": Asked(query=_IN_PROJECT),
    f"POST {V1}/sessions/{{name}}/restart": Asked(query=_IN_PROJECT),
    f"POST {V1}/sessions/{{name}}/extend": Asked(query=_IN_PROJECT, body={"seconds": 60}),
    f"GET {V1}/sessions/{{name}}/logs": Asked(query=_IN_PROJECT),
    f"GET {V1}/sessions/{{name}}/metrics": Asked(query=_IN_PROJECT),
    f"GET {V1}/sessions/{{name}}/denied-calls": Asked(query=_IN_PROJECT),
    f"GET {V1}/sessions/{{name}}/events": Asked(query=_IN_PROJECT),
    f"WEBSOCKET {V1}/sessions/{{name}}/exec": Asked(query={**_IN_PROJECT, "command": '["sh"]'}),
    f"GET {V1}/volumes": Asked(show="{volume}"),
    f"POST {V1}/volumes": Asked(body={"name": "new", "project": "{project}"}),
    f"GET {V1}/volumes/{{name}}": Asked(query=_IN_PROJECT),
    f"DELETE {V1}/volumes/{{name}}": Asked(query=_IN_PROJECT),
    f"POST {V1}/volumes/{{name}}/hand-over": Asked(query=_IN_PROJECT, body={"project": "{heir}"}),
    "GET /sessions": Asked(show="{session}"),
    "GET /sessions/{name}": Asked(query=_IN_PROJECT),
    "GET /sessions/{name}/log": Asked(query=_IN_PROJECT),
    "GET /sessions/{name}/metrics": Asked(query=_IN_PROJECT),
    "GET /sessions/{name}/terminal": Asked(query=_IN_PROJECT),
    "POST /sessions/{name}/delete": Asked(query=_IN_PROJECT),
    "POST /sessions/{name}/restart": Asked(query=_IN_PROJECT),
    "POST /sessions/{name}/extend": Asked(query=_IN_PROJECT, form={"hours": 1}),
    "POST /sessions/{name}/resize": Asked(query=_IN_PROJECT, form={"gpu_milli": 500}),
    "GET /launch": Asked(show="{project}"),
    "POST /launch": Asked(form={"name": "new", "project": "{project}", "image": "python", "cpu": "1"}),
    "POST /launch/check": Asked(form={"name": "new", "project": "{project}", "image": "python", "cpu": "1"}),
    "GET /accounting": Asked(query={"by": "user"}, show="{user}"),
    "GET /accounting/csv": Asked(query={"by": "user"}, show="{user}"),
    "GET /accounting/timeline/csv": Asked(query={"by": "user"}, show="{user}"),
    "GET /accounting/waits/csv": Asked(query={"by": "user"}, show="{user}"),
    "GET /users": Asked(show="{user}"),
    "GET /users/{name}": Asked(),
    "POST /users/{name}/password": Asked(form={"password": PASSWORD}),
    "POST /users/{name}": Asked(form={"disabled": "true"}),
    "POST /users/{name}/logins/end": Asked(),
    "POST /users/{name}/delete": Asked(),
    "GET /domains": Asked(show="{domain}"),
    "GET /domains/{name}": Asked(),
    "POST /domains/{name}": Asked(form={"description": "new"}),
    "POST /domains/{name}/delete": Asked(),
    "GET /keys": Asked(show="key of {user}"),
    "POST /keys/{key_id}/revoke": Asked(),
    "GET /projects": Asked(show="{project}"),
    "GET /projects/{name}": Asked(),
    "POST /projects/{name}": Asked(form={"add_members": ""}),
    "POST /projects/{name}/delete": Asked(form={"volumes": "keep"}),
    "GET /nodes": Asked(show="{node}"),
    "GET /nodes/{name}": Asked(),
    "POST /nodes/{name}/delete": Asked(),
    "POST /nodes/{name}/interface": Asked(form={"interface": ""}),
    "POST /nodes/{name}/mode": Asked(form={"mode": "maintenance"}),
    "GET /images": Asked(show="{image}"),
    "POST /images": Asked(form={"name": "new", "tag": "1", "reference": "r/new:1", "projects": "{project}"}),
    "POST /images/{name}:{tag}/check": Asked(query=_IN_PROJECT),
    "POST /images/{name}:{tag}/delete": Asked(query=_IN_PROJECT),
    "GET /resource-groups": Asked(show="{group}"),
    "GET /resource-groups/{name}": Asked(),
    "POST /resource-groups/{name}": Asked(form={"add_users": ""}),
    "POST /resource-groups/{name}/delete": Asked(),
    "GET /volumes": Asked(show="{volume}"),
    "POST /volumes": Asked(form={"name": "new", "project": "{project}"}),
    "GET /volumes/{name}": Asked(query=_IN_PROJECT),
    "POST /volumes/{name}/delete": Asked(query=_IN_PROJECT, form={"confirmed": "{volume}"}),
    "POST /volumes/{name}/hand-over": Asked(query=_IN_PROJECT, form={"to": "{heir}"}),
    f"GET {V1}/apps/authorize": Asked(headers={"X-Original-URI": "/{session}-8888/"}),
    "GET /apps/open": Asked(query={"state": "0" * 32, "next": "https://{app}.apps.example:9443/"}),
}
"""How the routes are asked that are about somebody's things; what others answer is the same whoever has what."""


NAMES = {
    "users": "user",
    "domains": "domain",
    "projects": "project",
    "resource-groups": "group",
    "images": "image",
    "nodes": "node",
    "sessions": "session",
    "volumes": "volume",
}
"""What the name in a path is the name of, by the first part of the path."""

Thing = dict[str, str | None]


@dataclass
class Scene:
    """What is there: by user, what the things of that user are called."""

    things: dict[str, Thing]

    def thing(self, person: str, owner: str) -> Thing:
        """Return what a kind of owner has, seen from a person."""
        return self.things[person if owner == "own" else OTHERS[owner]]


def key_of(name: str) -> str:
    """Return the API key of a user of the scene."""
    return f"psk_of-{name}"


async def prepare(cluster: Cluster) -> Scene:
    """Write everything into the database."""
    await cluster.add_image()
    for place in (*PLACES, "everybody"):
        await cluster.add_node(f"w-{place}")
    async with cluster.database.transaction() as db:
        for domain in ("acme", "globex"):
            db.add(Domain(name=domain))
        await db.flush()
        people = await _people(db)
        projects = await _projects(db, people)
        await _groups(db)
        return Scene(
            {name: await _things(db, user, projects[HOMES.get(name, "rockets")]) for name, user in people.items()}
        )


async def _people(db: AsyncSession) -> dict[str, User]:
    [admin] = await db.scalars(select(User))
    people = {name: User(name=name, role=role, domain=domain) for name, (role, domain) in ROLES.items()}
    people["admin"] = admin
    db.add_all(people.values())
    await db.flush()
    return people


async def _projects(db: AsyncSession, people: Mapping[str, User]) -> dict[str, Project]:
    projects = {}
    for name, (domain, members) in PROJECTS.items():
        memberships = [Membership(user=people[who], role=role) for who, role in members.items()]
        # owners have an hour to add: without any there is nothing to offer them
        hour = {"interactive_extension_s": 3600}
        projects[name] = Project(name=name, domain=domain, quota_milli=1000, memberships=memberships, **hour)
    db.add_all(projects.values())
    await db.flush()
    return projects


async def _groups(db: AsyncSession) -> None:
    nodes = {node.name: node for node in await db.scalars(select(Node))}
    for node in nodes.values():
        node.interface = "eth1"  # it was there once: who may choose another one is offered that
    for place, domain in PLACES.items():
        group = ResourceGroup(name=f"g-{place}", domain=domain, nodes=[nodes[f"w-{place}"]], users=[], projects=[])
        db.add(group)
    await db.flush()


async def _things(db: AsyncSession, user: User, project: Project) -> Thing:
    """Give a user a key, a login, an image, and a session with an app that has ended; return what they are called."""
    moment = now()
    key = ApiKey(user_id=user.id, name=f"key of {user.name}", prefix="psk_", used_at=moment)
    key.fingerprint = passwords.fingerprint(key_of(user.name))
    login = Login(user_id=user.id, fingerprint=user.name, agent=f"browser of {user.name}")
    login.expires_at = moment + timedelta(days=1)
    image = Image(name=f"i-{user.name}", tag="1", reference=f"r/{user.name}:1", visibility=Visibility.PROJECTS)
    image.projects, image.user_id, image.user_name = [project], user.id, user.name
    session = Session(name=f"s-{user.name}", project=project, user_id=user.id, user_name=user.name, state=State.FAILED)
    session.image = session.reference = "python"
    session.kind, session.preemptible, session.gpu_milli = Kind.TRAINING, False, 0
    session.args, session.environment, session.mounts = [], {}, []
    session.access = Access.PRIVATE if user.name == OTHERS["private"] else Access.PROJECT
    session.services = [Service(port=8888, path=f"s-{user.name}-8888")]
    volume = Volume(name=f"v-{user.name}", project=project, domain=project.domain, storage="shared")
    volume.folder = volume.name
    db.add_all([key, login, image, session, volume])
    await db.flush()
    await accounting.begin(db, session.id, moment - timedelta(hours=1))
    await accounting.end(db, session.id, moment)
    place = project.domain or "site"
    return {
        "user": user.name,
        "domain": project.domain,
        "project": project.name,
        "group": f"g-{place}",
        "node": f"w-{place}",
        "image": image.name,
        "session": session.name,
        "app": AppName(session.id, 8888).label,
        "volume": volume.name,
        "heir": HEIRS[place],
        "key_id": str(key.id),
        "login_id": str(login.id),
    }


@asynccontextmanager
async def undone(database: Database) -> AsyncIterator[AsyncSession]:
    """Give a transaction of which nothing stays."""
    async with database._writers() as db:
        yield db
        await db.rollback()
