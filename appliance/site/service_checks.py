"""Judgement of what a node gets from the services of its site, and of the certificates that it sees. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from appliance.site.model import Node, Site
from appliance.site.seen import Seen
from common.checks import Check, CheckState
from common.health import RENEW

DAY_S = 86_400
WARN_DAYS, FAIL_DAYS = 30, 7
"""From when a certificate is soon to end; a deploy renews those that have no more than the first."""
WAYS = "look at `iptables-save` and `journalctl -u penstock-agent` on the node; the agent makes its rules at its start"
FETCHES = {
    "release": "packages can be fetched",
    "index": "Python packages can be fetched",
    "registry": "images can be fetched",
}


def calls(site: Site, seen: Seen, now: datetime) -> Iterator[Check]:
    """Judge what services answered the node, and with which certificates."""
    for service, answer in seen["calls"].items():
        fetch = service in FETCHES
        identity, name = ("fetch", FETCHES[service]) if fetch else ("call", f"{service} answers this node")
        if answer["ok"]:
            state, said = _lasting(answer["until"], now)
            said, hint = f"{answer['detail']}, certificate {said}", RENEW if state is not CheckState.OK else ""
        else:
            state, said = CheckState.FAIL, f"{answer['url']}: {answer['detail']}"
            hint = _reservoir(site) if fetch else _service(site, service)
        yield Check(identity, name, state, said, hint, service)


def certificate(node: Node, seen: Seen, revoked: str, now: datetime) -> Iterator[Check]:
    """Find a certificate that does not count or ends soon, and a node that has not heard what the site has revoked."""
    found = seen["certificate"]
    problems = [] if found["ok"] else [str(found["detail"])]
    problems += [f"it is that of {found['name'] or 'nobody'}"] if found["name"] != node.name else []
    if revoked and found["crl"] != revoked:
        problems.append("the node has not the site's list of revoked certificates")
    yield Check.of(
        *("certificate", "certificate is the node's and counts"),
        ok=not problems,
        evidence="; ".join(problems) or "what the site has revoked is known",
        hint="run `penstock site deploy`",
    )
    yield _end("certificate.end", "certificate counts for long", found["until"], now)
    yield _end("authority.end", "the site's authority counts for long", seen["authority"], now)


def company_certificate(until: float, now: datetime) -> Check:
    """Judge how long a certificate of the company's own authority counts, which no deploy renews."""
    state, said = _lasting(until, now)
    hint = "" if state is CheckState.OK else "have it renewed, put it where `edge.certificate_file` says, and deploy"
    return Check("certificate.company", "certificate for people's browsers counts for long", state, said, hint)


def session_ways(site: Site, ways: Mapping[str, Any] | None) -> Iterator[Check]:
    """Judge what a container reached; what the node itself does not reach either says nothing."""
    if ways is None or ways["detail"]:
        said = ways["detail"] if ways else "nothing was tried"
        yield Check.of("session.ways", "sessions are kept apart", ok=False, evidence=str(said), hint=WAYS)
        return
    tried, services = ways["tried"], site.session_services
    missing = [f"{way}: {tried[way]['container']}" for way in services if tried[way]["container"]]
    yield Check.of(
        *("session.services", "sessions reach the site's services"),
        ok=not missing,
        evidence=", ".join(missing) or f"reached {', '.join(services)}",
        hint=WAYS,
    )
    closed = {way: told for way, told in tried.items() if way not in services}
    reached = [way for way, told in closed.items() if not told["container"]]
    answering = [way for way, told in closed.items() if not told["node"]]
    said = f"a container reached {', '.join(reached)}" if reached else f"none of {', '.join(answering)} was reached"
    if not answering:
        said = "nothing answers to this node itself, so nothing is proven"
    kept = bool(answering) and not reached
    yield Check.of("session.ways", "sessions reach nothing else", ok=kept, evidence=said, hint=WAYS)


def _end(identity: str, name: str, until: int | None, now: datetime) -> Check:
    state, said = _lasting(until, now)
    return Check(identity, name, state, said, "" if state is CheckState.OK else RENEW)


def _lasting(until: float | None, now: datetime) -> tuple[CheckState, str]:
    """Return whether a certificate counts for long enough, and until when."""
    if until is None:
        return CheckState.FAIL, "there is none"
    days, day = (until - now.timestamp()) / DAY_S, f"{datetime.fromtimestamp(until, UTC):%F}"
    if days > WARN_DAYS:
        return CheckState.OK, f"until {day}"
    state = CheckState.FAIL if days <= FAIL_DAYS else CheckState.WARN
    if days < 0:
        return state, f"ended on {day}"
    left = {0: "within a day", 1: "in 1 day"}.get(round(days), f"in {days:.0f} days")
    return state, f"ends {left}, on {day}"


def _service(site: Site, service: str) -> str:
    """Return where to look when a service does not answer."""
    master = site.master.name
    for worker in site.nodes:
        if service == f"agent of {worker.name}":
            port = worker.agent_port
            return (
                f"look whether a firewall closes port {port} of {worker.name} to {master}, and at"
                f" `systemctl status penstock-agent` on {worker.name}; the API starts and ends sessions by it"
            )
    return (
        f"look at `systemctl status penstock-edge` and `ss -ltnp` on {master}, whether another program has the port,"
        f" and whether a firewall closes it"
    )


def _reservoir(site: Site) -> str:
    ports, name = site.ports, site.reservoir.name
    return (
        f"look whether a firewall closes ports {ports.reservoir} and {ports.registry} of {name} to this node, and at"
        f" `systemctl status nginx docker-registry` on {name}"
    )
