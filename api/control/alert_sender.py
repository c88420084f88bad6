"""Sender of alerts: what waits to be told goes to the site's webhook and by mail, each once; the leader runs it."""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from email.message import EmailMessage
from typing import Any

import httpx
import structlog

from api.clock import Clock
from api.database import Database
from api.resources.health import service
from api.resources.health.writer import MAIL, WEBHOOK
from api.settings import Settings
from api.tables.health import HealthAlert
from common.errors import printable

log = structlog.get_logger()

AT_ONCE = 50
"""So many changes are told together."""
ANSWER_S = 10.0
"""So long one of them may take to say that it has a change."""
RECEIVER_S = 30.0
"""So long a receiver may take in one go: a mail server for all that it says, a webhook for all that it is told."""
FIRST_S, LONGEST_S = 5.0, 600.0
"""How long after a try that failed the next one comes, at first and at most."""
SMTP = 25


class AlertSender:
    """Sends what is due; what cannot be sent is tried again until it is old."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        """Prepare; nothing is sent yet."""
        self._database = database
        self._settings = settings
        self._clock = clock

    async def work(self) -> None:
        """Send all that is due."""
        async with self._database.reading() as db:
            due = await service.due_alerts(db, self._clock.now(), AT_ONCE)
        if mail := [alert for alert in due if alert.channel == MAIL]:
            await self._note(mail, await self._mail(mail))
        await self._tell_webhook([alert for alert in due if alert.channel == WEBHOOK])

    async def _tell_webhook(self, alerts: Sequence[HealthAlert]) -> None:
        """Post changes one after the other. Where none comes through, the others wait with it; so does who has no time
        left for them.
        """
        end = time.monotonic() + RECEIVER_S
        for place, alert in enumerate(alerts):
            if time.monotonic() > end:
                return
            try:
                reason = await self._post(alert)
            except Exception as error:
                # of an address that is none, too, there are many kinds
                await self._note(alerts[place:], str(error) or type(error).__name__)
                return
            await self._note([alert], reason)

    async def _post(self, alert: HealthAlert) -> str:
        """Return why the webhook did not take a change; nothing where it did, or there is none any more.

        Its address, which may carry a token, is in no reason. What it says beside its status is not read.
        """
        url, ca = self._settings.alerts_webhook, self._settings.alerts_webhook_ca
        if not url:
            return ""
        context, told = ssl.create_default_context(cafile=ca), {"id": alert.number, **alert.told}
        async with (
            asyncio.timeout(ANSWER_S),
            httpx.AsyncClient(verify=context, timeout=ANSWER_S, trust_env=False) as client,
            client.stream("POST", url, json=told) as answer,
        ):
            return "" if answer.is_success else f"the webhook answers {answer.status_code}"

    async def _mail(self, alerts: Sequence[HealthAlert]) -> str:
        """Return why changes could not be mailed; nothing where they are, or nobody is to get mail any more."""
        if not self._settings.alerts_mail_server:
            return ""
        try:
            await asyncio.to_thread(_send, self._settings, message(self._settings, [alert.told for alert in alerts]))
        except (OSError, smtplib.SMTPException) as error:
            return str(error) or type(error).__name__
        return ""

    async def _note(self, alerts: Sequence[HealthAlert], reason: str) -> None:
        """Let go of alerts that are told, or are too old; put off the others."""
        at = self._clock.now()
        async with self._database.transaction() as db:
            for sent in alerts:
                alert = await db.get(HealthAlert, sent.number)
                old = at - sent.at >= timedelta(seconds=self._settings.alerts_keep_s)
                if alert is None:
                    continue
                if reason and not old:
                    alert.due_at = at + timedelta(seconds=min(FIRST_S * 2.0**alert.tries, LONGEST_S))
                    alert.tries += 1
                    log.warning("an alert is not told yet", channel=alert.channel, reason=reason, tries=alert.tries)
                    continue
                if reason:
                    log.error("an alert is given up", channel=alert.channel, reason=reason, told=alert.told)
                await service.told_alert(db, sent.number)


def message(settings: Settings, told: Sequence[dict[str, Any]]) -> EmailMessage:
    """Return the mail that tells of some changes; what agents have written in them stays in its line."""
    told = [{key: printable(value) if isinstance(value, str) else value for key, value in one.items()} for one in told]
    mail = EmailMessage()
    first, more = told[0], f" and {len(told) - 1} more" if len(told) > 1 else ""
    mail["Subject"] = f"[penstock] {_where(first)}: {first['check']} is {first['state']}{more}"
    mail["From"], mail["To"] = settings.alerts_mail_from, ", ".join(settings.alerts_mail_to)
    mail.set_content("\n\n".join(_lines(one) for one in told) + "\n")
    return mail


def _where(told: dict[str, Any]) -> str:
    return f"{told['node'] or 'site'} {told['thing']}".strip()


def _lines(told: dict[str, Any]) -> str:
    lines = [f"{told['at']} {_where(told)}: {told['name']}: {told['before'] or 'new'} -> {told['state']}"]
    lines += [f"  {told['evidence']}"] if told["evidence"] else []
    lines += [f"  hint: {told['hint']}"] if told["hint"] else []
    return "\n".join(lines + ([f"  repair: penstock repair run {told['repair']}"] if told["repair"] else []))


class _Server(smtplib.SMTP):
    """A mail server that is left after a while: each of its lines may come just in time, for ever."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        found = socket.create_connection((host, port), timeout)
        # TLS gives the connection to another socket, and this one stays
        self._way = found.dup()
        self._end = threading.Timer(RECEIVER_S, self._leave)
        self._end.daemon = True
        self._end.start()
        return found

    def _leave(self) -> None:
        with suppress(OSError):
            self._way.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection."""
        super().close()
        self._end.cancel()
        self._way.close()


def _send(settings: Settings, mail: EmailMessage) -> None:
    host, _, port = (settings.alerts_mail_server or "").partition(":")
    with _Server(host, int(port or SMTP), timeout=ANSWER_S) as server:
        if settings.alerts_mail_tls:
            server.starttls(context=ssl.create_default_context(cafile=settings.alerts_mail_ca))
        server.send_message(mail)
