"""Check of the site's health by the leader: the database, registry, edge and directory, its machine, and all agents.

Whether an agent reports is looked at often: a node that is lost is seen before it counts as lost, which has more
consequences and takes longer.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

import httpx

from api.clock import Clock
from api.control import audit_check, database_check, decider, ldap_check, syslog_check
from api.database import Database
from api.engine.launcher import DirectLauncher, Launcher
from api.resources.health import service
from api.resources.health.service import Agent
from api.settings import Settings
from api.tables.health import HealthCheck as Row
from api.tables.nodes import NodeState
from common import machine_checks
from common.check_protocol import CheckReport
from common.checks import Check, CheckState
from common.errors import UnavailableError
from common.health import DampedChecks, Damping, graded
from common.repairs import REPAIR_OF

AGENTS_S = 2.0
"""So often it is looked whether agents report."""
ALL_AGENTS_S = 30.0
"""So often while all of them do: a new one has its check after so long at the latest."""
STALL_S = 6.0
"""After a longer pause between two looks silence says nothing: it may be ours."""
ANSWER_S = 5.0
DAY_S = 24 * 3600
NAMED = 3
"""So many unknown containers are named."""
AGENT = "agent"


class HealthCheck:
    """Looks again and again; what it found last is remembered, and only what has changed is written."""

    def __init__(
        self,
        database: Database,
        settings: Settings,
        clock: Clock,
        launcher: Launcher | None = None,
        scheduler: Callable[[], Check] | None = None,
    ) -> None:
        """Begin with a look after the first interval; that of a launcher is one at what lends the places.

        What the `scheduler` says of itself is no look, and is told at once: it may be over soon.
        """
        self._launcher = launcher or DirectLauncher()
        self._scheduler = scheduler
        self._told: Check | None = None
        self._database = database
        self._settings = settings
        self._clock = clock
        self._looked = self._looked_at_site = self._looked_at_agents = self._began = clock.monotonic()
        self._agents: dict[UUID, list[CheckReport]] = {}
        self._site: DampedChecks[tuple[str, str]] | None = None

    @property
    def is_due(self) -> bool:
        """Whether it is time to look."""
        return self._clock.monotonic() - self._looked >= AGENTS_S

    async def look(self, *, silent: bool = True) -> None:
        """Look once; where no agent is `silent` or says something odd, and none did, it is once in a while.

        One may be new.
        """
        moment = self._clock.monotonic()
        if moment - self._looked > STALL_S:
            # another one may have led meanwhile
            self._began, self._agents = moment, {}
        self._looked = moment
        is_time = moment - self._looked_at_agents >= ALL_AGENTS_S
        told = [check.state for checks in self._agents.values() for check in checks]
        if silent or is_time or set(told) != {CheckState.OK}:
            self._looked_at_agents = moment
            await self._look_at_agents(self._clock.now(), moment)
        if moment - self._looked_at_site >= self._settings.health_interval_s:
            self._looked_at_site = moment
            await self._look_at_site(moment)
        elif self._scheduler and self._told and self._scheduler() != self._told:
            await self._tell_of_site()

    async def _look_at_agents(self, at: datetime, moment: float) -> None:
        judges = moment - self._began >= service.silent_s(self._settings)
        async with self._database.reading() as db:
            found = await service.agents(db, self._settings, at)
        self._agents = {agent.id: told for agent in found if (told := self._agents.get(agent.id))}
        # silence that cannot be judged is neither a failure nor a sign of life: what counted counts
        judged = [agent for agent in found if not agent.silent or judges or agent.state is NodeState.LOST]
        checks = [(agent, list(_checks(agent))) for agent in judged]
        if changed := [(agent, told) for agent, told in checks if _is_new(self._agents.get(agent.id), told)]:
            async with self._database.transaction() as db:
                await service.record_nodes(db, self._settings, changed)
            self._agents |= {agent.id: told for agent, told in changed}

    async def _look_at_site(self, moment: float) -> None:
        looks: list[Callable[[], Awaitable[Iterable[Check]]]] = [
            *(self._database_works, self._machine, self._audit, self._directory, self._launcher_works)
        ]
        if self._settings.agent_ca:
            looks += [self._registry, self._edge]
        found = await asyncio.gather(*(look() for look in looks))
        async with self._database.reading() as db:
            if self._site is None:
                # what the leader before found: a first bad look counts no more than any other
                rows = [row for row in await service.of_site(db) if row.check_id != decider.CHECK]
                known = {(row.check_id, row.thing): _check(row) for row in rows}
                damping = Damping(self._settings.health_looks, self._settings.health_good_looks)
                self._site = DampedChecks(damping, known)
            self._site.see({(check.id, check.subject): check for part in found for check in part}, moment)
        await self._tell_of_site()

    async def _tell_of_site(self) -> None:
        """Write what counts of the site, and what the scheduler says now, where anything of it is new."""
        checks = [*self._site.counts.values()] if self._site else []
        if self._scheduler:
            self._told = self._scheduler()
            checks.append(self._told)
        reports, at = [CheckReport.of(check) for check in checks], self._clock.now()
        async with self._database.reading() as db:
            if not await service.is_news_of_site(db, reports, at):
                return
        async with self._database.transaction() as db:
            await service.record_site(db, self._settings, reports, at)

    async def _database_works(self) -> list[Check]:
        return await database_check.look(self._database, self._clock.now())

    async def _launcher_works(self) -> list[Check]:
        try:
            return await self._launcher.checks()
        except UnavailableError:
            # it went away meanwhile, which the next look finds
            return []

    async def _audit(self) -> list[Check]:
        at = self._clock.now()
        return [
            *await audit_check.look(self._database, self._settings),
            *await syslog_check.look(self._database, self._settings, at),
        ]

    async def _directory(self) -> list[Check]:
        return await ldap_check.look(self._settings)

    async def _machine(self) -> list[Check]:
        settings = self._settings
        disk = settings.health_disk_warn_percent, settings.disk_stop_percent
        memory = settings.health_memory_warn_percent, settings.health_memory_fail_percent

        def look() -> list[Check]:
            return [*machine_checks.disks(machine_checks.LEADERS_FOLDERS, *disk), *machine_checks.memory(*memory)]

        return await asyncio.to_thread(look)

    async def _registry(self) -> list[Check]:
        url = f"https://{self._settings.registries[0]}/v2/" if self._settings.registries else ""
        hint = "look at `systemctl status docker-registry nginx` on the reservoir"
        # nginx says 502 where the registry behind it is gone
        return await self._answers("registry", "registry answers", url, hint, ill=REPAIR_OF["registry"])

    async def _edge(self) -> list[Check]:
        hint = "look at `systemctl status penstock-edge` on the master"
        return await self._answers("edge", "edge answers", self._settings.apps_url, hint)

    async def _answers(self, identity: str, name: str, url: str, hint: str, ill: str = "") -> list[Check]:
        """Return whether a service answers over TLS that the site's authority vouches for, and for how long it does.

        `ill` is the repair of one that answers and cannot do what it is asked for.
        """
        if not url:
            return []
        context = ssl.create_default_context(cafile=str(self._settings.agent_ca))
        try:
            async with (
                httpx.AsyncClient(verify=context, timeout=ANSWER_S, trust_env=False) as client,
                client.stream("GET", url) as answer,
            ):
                until = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert()["notAfter"]
                status = answer.status_code
        except (httpx.HTTPError, OSError) as error:
            said = f"{url}: {error or type(error).__name__}"
            return [Check.of(identity, name, ok=False, evidence=said, hint=hint, repair=REPAIR_OF[identity])]
        # it may ask for a login, or know nothing at this address: it answers all the same
        ok, said = status < httpx.codes.INTERNAL_SERVER_ERROR, f"{url} answers {status}"
        works = Check.of(identity, name, ok=ok, evidence=said, hint=hint, repair=ill)
        return [works, self._lasts(url, ssl.cert_time_to_seconds(until))]

    def _lasts(self, url: str, until: float) -> Check:
        days = (until - time.time()) / DAY_S
        settings = self._settings
        state = graded(-days, -settings.health_certificate_warn_days, -settings.health_certificate_fail_days)
        hint = "run `penstock site deploy`, which renews it" if state is not CheckState.OK else ""
        said = f"counts until {datetime.fromtimestamp(until, UTC):%Y-%m-%d}"
        return Check("certificate", "certificate counts for long", state, said, hint, url)


def _checks(agent: Agent) -> Iterator[CheckReport]:
    yield CheckReport.of(_reports(agent))
    if agent.unknown_containers:
        yield CheckReport.of(_containers(agent))


def _is_new(before: Sequence[CheckReport] | None, told: Sequence[CheckReport]) -> bool:
    """Return whether checks come to something else; since when an agent is silent is told once."""
    return before is None or [(each.id, each.state) for each in before] != [(each.id, each.state) for each in told]


def _containers(agent: Agent) -> Check:
    """Tell of containers that close a node, which is as ready as it was."""
    ids = agent.unknown_ids or []
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    said = f"runs {agent.unknown_containers} containers of sessions that the database does not know: "
    hint = f"the node takes nothing new until they are gone; `penstock node end-unknown {agent.name}` ends them"
    about = "containers", "containers are of known sessions"
    return Check(*about, CheckState.FAIL, said + ", ".join(ids[:NAMED]) + more, hint)


def _reports(agent: Agent) -> Check:
    """Judge whether an agent reports."""
    seen = f"{agent.last_seen:%Y-%m-%d %H:%M:%S} UTC" if agent.last_seen else "ever"
    ok = not agent.silent and agent.state is not NodeState.LOST
    return Check.of(
        *(AGENT, "agent reports"),
        ok=ok,
        evidence="it reports" if ok else f"silent since {seen}",
        hint=f"look whether {agent.name} runs, and at `systemctl status penstock-agent` there",
        repair=REPAIR_OF[AGENT],
    )


def _check(row: Row) -> Check:
    return Check(row.check_id, row.name, row.state, row.evidence, row.hint, row.thing, row.repair)
