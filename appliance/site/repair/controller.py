"""The controller's service: looks at what has no agent, and takes one order of a repair after the other from the API.

It speaks as agents do, by a certificate of its own, and runs named repairs only, the same way as the command line. What
was run or seen while the API was away is told when it is back.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
from pydantic import ValidationError

from appliance.site import commands, pki, settings
from appliance.site.alone import is_held
from appliance.site.backup import orders as backup_orders
from appliance.site.backup.make import FOLDER
from appliance.site.backup.orders import Orders
from appliance.site.deployment import STATE
from appliance.site.model import Site
from appliance.site.node_health import NodeHealth
from appliance.site.repair import unit
from appliance.site.repair.outage import AFTER_S, Outage
from appliance.site.repair.record import Record, Records
from appliance.site.repair.telling import ROOM_OF_COMMANDS, Telling, first, report
from common import repairs
from common.backup_protocol import OPEN_ORDERS, BackupOrderReport, BackupReport
from common.checks import GOOD
from common.errors import NotFoundError, PenstockError
from common.repair_protocol import (
    CONTROLLER_PATH,
    LOOK_S,
    ControllerReply,
    ControllerReport,
    NodeChecks,
    RepairOrder,
    RunReport,
)
from common.repairs import OPEN
from common.sd_notify import notify

EVERY_S, WITHOUT_ORDERS_S = 2.0, 30.0
WHILE_HELD_S = 15.0
"""So soon it is looked again whether a deploy has ended."""
AGAIN_S, NEWS_S = 30.0, 600.0
"""So soon it is looked again at what is not well, while that is news: after a boot much is not up yet for a moment."""
ANSWER_S = 10.0
JSON = {"Content-Type": "application/json"}


class Controller:
    """Tells of looks and runs, and asks for `orders`; `start` starts a run, `say` says what goes wrong."""

    def __init__(
        self,
        site: Callable[[], Site],
        records: Records,
        *,
        orders: bool,
        say: Callable[[str], None],
        start: Callable[[Record, Records], None] = unit.start,
        look: Callable[[str, Records], Record] = unit.look,
        health: Callable[[Site, float], list[NodeChecks]] | None = None,
        now: Callable[[], float] = time.monotonic,
        start_order: Callable[[BackupOrderReport, Orders], None] = backup_orders.start,
        look_at_order: Callable[[BackupOrderReport, Orders], BackupOrderReport] = backup_orders.look,
        state: Path = STATE,
        backups: Path = FOLDER,
    ) -> None:
        """Prepare; nothing is asked yet. `site` reads the site as the last deploy knew it."""
        self._site = site
        self._url = _url(site())
        self._takes_orders = orders
        self._health = health or NodeHealth(state=state).look
        self._now_s = now
        self._looks_at = now()
        self._seen: list[NodeChecks] | None = None
        self._last: list[NodeChecks] | None = None
        self._ill: set[tuple[str, str, str]] = set()
        self._ill_since_s = now()
        self._state = state
        self._records = records
        self._say = say
        self._start = start
        self._look = look
        self._orders = Orders(state, backups)
        self._start_order = start_order
        self._look_at_order = look_at_order
        self._pki = state / "pki"
        self._told: Telling[RunReport] = Telling()
        self._told_orders: Telling[BackupOrderReport] = Telling()
        self._reports: dict[str, tuple[Record, RunReport | None]] = {}
        self._told_backups: list[BackupReport] | None = None
        self._trouble = ""
        self._outage = Outage(state, now)

    def run(self) -> None:
        """Work for ever; what goes wrong is said once, and tried again. Each round is a sign of life."""
        every_s, signs = EVERY_S if self._takes_orders else WITHOUT_ORDERS_S, settings.sign_address()
        while True:
            trouble = ""
            try:
                self.look()
                self.turn(self._ask)
            except (httpx.HTTPError, OSError, ValidationError, PenstockError) as error:
                # more lines of it lead out of the site
                trouble = f"{self._url}: {(str(error) or type(error).__name__).splitlines()[0]}"
            if trouble != self._trouble:
                self._say(trouble or "the API answers again")
            self._trouble = trouble
            if signs:
                notify(signs, b"WATCHDOG=1")
            time.sleep(every_s)

    def look(self) -> None:
        """Look at what has no agent, where it is time to; what a deploy or a repair stops meanwhile is no news."""
        if self._now_s() < self._looks_at:
            return
        if is_held(self._state):
            self._seen, self._looks_at = self._last, self._now_s() + WHILE_HELD_S
            return
        # also where this look comes to nothing
        self._looks_at = self._now_s() + AGAIN_S
        site = self._site()
        self._url = _url(site)
        self._seen = self._last = self._health(site, self._now_s())
        self._looks_at = self._now_s() + (AGAIN_S if self._has_news(self._seen) else LOOK_S)

    def _has_news(self, seen: list[NodeChecks]) -> bool:
        """Return whether something is not well that was so for short."""
        now_s = self._now_s()
        ill = {(node.node, each.id, each.thing) for node in seen for each in node.checks if each.state not in GOOD}
        if ill != self._ill:
            self._ill, self._ill_since_s = ill, now_s
        return bool(ill) and now_s - self._ill_since_s < NEWS_S

    def turn(self, ask: Callable[[ControllerReport], ControllerReply]) -> None:
        """Tell what is new, and start what was ordered unless something runs.

        What the API did not hear is told again, all of it: it may have been restored to what it knew before. More than
        a message takes is told in parts, one each turn.
        """
        records = {record.id: self._now(record) for record in self._records.all()}
        runs = self._tellable(records.values())
        orders = [self._look_at_order(order, self._orders) for order in self._orders.all()]
        backups = self._orders.backups()
        works = any(run.state in OPEN for run in records.values()) or any(o.state in OPEN_ORDERS for o in orders)
        told = ControllerReport(
            runs=self._told.part(runs),
            backup_orders=self._told_orders.part(orders),
            # one that is not told yet would be handed out again
            wants=self._takes_orders and not works and self._told.is_all and self._told_orders.is_all,
            nodes=self._seen,
            backups=backups if backups != self._told_backups else None,
            commands=first(commands.over(self._state), ROOM_OF_COMMANDS),
        )
        self._told_backups = None
        try:
            reply = ask(told)
        except httpx.HTTPError as error:
            self._mend(error, records.values())
            raise
        self._outage.ends()
        self._told.heard()
        self._told_orders.heard()
        commands.forget(self._state, told.commands)
        self._told_backups, self._seen = backups, None
        if reply.order and reply.order.id not in records:
            self._begin(reply.order)
        if (order := reply.backup_order) and order.id not in {known.id for known in orders}:
            self._start_order(backup_orders.begun(order), self._orders)

    def _mend(self, error: httpx.HTTPError, records: Iterable[Record]) -> None:
        """Begin the repair of an API that does not answer for long, where the site wants that."""
        if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < httpx.codes.INTERNAL_SERVER_ERROR:
            self._outage.ends()
        elif record := self._outage.repair(self._site(), records):
            self._say(f"the API has not answered for {AFTER_S:g} s: {record.repair} begins")
            self._start(record, self._records)

    def _now(self, record: Record) -> Record:
        return self._look(record.id, self._records) if record.state in OPEN else record

    def _tellable(self, records: Iterable[Record]) -> list[RunReport]:
        """Return runs as they are told, each made anew where it has changed."""
        known, self._reports = self._reports, {}
        for record in records:
            before, told = known.get(record.id, (None, None))
            self._reports[record.id] = (record, told if before == record else self._report(record))
        return [told for _, told in self._reports.values() if told]

    def _report(self, record: Record) -> RunReport | None:
        """Return a run as it is told; of one that cannot be told it is said here, and the others go on."""
        try:
            return report(record)
        except ValidationError as error:
            self._say(f"the API cannot be told of run {record.id}: {error.errors(include_url=False)[0]['msg']}")
        return None

    def _begin(self, order: RepairOrder) -> None:
        try:
            known = repairs.find(order.repair)
        except NotFoundError:
            self._say(f"{order.repair} was ordered, and there is no such repair")
            return
        ordered = order.model_dump(mode="json") | {"repair": known.id}
        self._start(Record(**ordered), self._records)

    def _ask(self, told: ControllerReport) -> ControllerReply:
        trust = ssl.create_default_context(cafile=self._pki / "ca.crt")
        trust.load_verify_locations(cafile=self._pki / pki.LIST)
        trust.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        pair = self._pki / pki.CONTROLLER_FOLDER / "node"
        trust.load_cert_chain(pair.with_suffix(".crt"), pair.with_suffix(".key"))
        with httpx.Client(verify=trust, timeout=ANSWER_S, trust_env=False) as client:
            answer = client.post(self._url, content=told.model_dump_json(), headers=JSON)
            answer.raise_for_status()
            return ControllerReply.model_validate_json(answer.content)


def _url(site: Site) -> str:
    return f"https://{site.master.name}:{site.ports.agents}{CONTROLLER_PATH}"
