"""Verification of a deployed site: from what every node says about itself to one verdict. `judge` is pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from appliance.site import inventory, pki, playbook
from appliance.site.deployment import ROOT, STATE, behind, records, require_controller
from appliance.site.model import NFS_PORT, Node, NodeRole, Site
from common.errors import UnavailableError
from reservoir.contents.artifact import DebianArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import record_of

EVIDENCE = "penstock_evidence"
SESSION_WAYS = "penstock_session_ways"
OFFSET_S = 1.0
"""How far a node's clock may be from the site's, in seconds."""

PARTS = {"penstock-agent.service": "agent", "penstock-api.service": "api", "penstock-index.service": "index"}
"""Which installation of Penstock on a node a unit runs."""

Evidence = Mapping[str, Any]
Published = Mapping[str, Mapping[str, Collection[str]]]
"""The versions of each package that the site serves, by release; those of Python packages under `PYTHON`."""

PYTHON = "python"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: its name, whether it is as it should be, and what was seen."""

    name: str
    ok: bool
    evidence: str


@dataclass
class NodeVerdict:
    """The checks of one node, and what the report says about it."""

    checks: list[Check]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Say whether every check holds."""
        return all(check.ok for check in self.checks)


@dataclass
class Verdict:
    """What the site is like at one moment; `time` is UTC."""

    site: str
    time: str
    nodes: dict[str, NodeVerdict]

    @property
    def ok(self) -> bool:
        """Say whether every node is as it should be."""
        return all(node.ok for node in self.nodes.values())

    def json(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        nodes = {name: {"ok": node.ok} | asdict(node) for name, node in self.nodes.items()}
        return {"ok": self.ok, "site": self.site, "time": self.time, "nodes": nodes}


def verify(site: Site, *, listen: playbook.Listener, state: Path = STATE, root: Path = ROOT) -> Verdict:
    """Ask every node and judge; changes nothing."""
    require_controller(site)
    if not (state / "pki" / "ca.crt").is_file():
        raise UnavailableError(
            "the site is not deployed from this machine", where=str(state), hint="run `penstock site deploy` first"
        )
    hosts = inventory.build(site, version="", state=str(state))
    result = playbook.run("verify", hosts, state=state, listen=listen, publish=[EVIDENCE, SESSION_WAYS])
    gathered = {name: values for name, values in result.published.items() if EVIDENCE in values}
    evidence = {name: values[EVIDENCE] | {"ways": values.get(SESSION_WAYS)} for name, values in gathered.items()}
    if not evidence and not result.failures:
        result.require_success()
    silent = {event.node: event.reason for event in result.failures}
    # none before the first deploy of a release that has such lists
    revoked = state / "pki" / pki.LIST
    digest = hashlib.sha256(revoked.read_bytes()).hexdigest() if revoked.is_file() else ""
    return judge(
        site,
        evidence,
        silent,
        f"{datetime.now(UTC):%FT%TZ}",
        published(Store(root)),
        revoked=digest,
        missed=behind(site, records(state)),
    )


def published(store: Store) -> Published:
    """Return the versions of the packages that a site serves; none where it serves nothing."""
    if not store.current.is_dir():
        return {}
    imported = store.imported()
    found: dict[str, dict[str, set[str]]] = {}
    for bundle in (imported[name] for name in record_of(store.current)["bundles"] if name in imported):
        releases = {target.name: target.release for target in bundle.targets}
        for artifact in bundle.artifacts:
            if isinstance(artifact, DebianArtifact | PythonArtifact):
                wheel = isinstance(artifact, PythonArtifact)
                keys = {PYTHON} if wheel else {releases[name] for name in artifact.targets}
                for key in keys:
                    found.setdefault(key, {}).setdefault(artifact.name, set()).add(artifact.version)
    return found


def judge(
    site: Site,
    evidence: Mapping[str, Evidence],
    silent: Mapping[str, str],
    time: str,
    served: Published = MappingProxyType({}),
    *,
    revoked: str = "",
    missed: Mapping[str, str] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict from the evidence of each node; `silent` says why others gave none, `served` what there is.

    `revoked` is the hash of the list of revoked certificates that every node has to have, and `missed` says why a
    node was left out of the last deploy.
    """
    asked = evidence.get(site.master.name, {}).get("nodes", {})
    registered = {node["name"]: node for node in asked.get("nodes", [])}
    nodes: dict[str, NodeVerdict] = {}
    for node in site.nodes:
        if (seen := evidence.get(node.name)) is None:
            reason = silent.get(node.name, "it gave no evidence")
            nodes[node.name] = NodeVerdict([Check("answers", ok=False, evidence=reason)])
        else:
            nodes[node.name] = NodeVerdict(list(_checks(site, node, seen, registered, served)), _facts(seen))
            nodes[node.name].checks.append(_certificate(node, seen["certificate"], revoked))
        if node.name in missed:
            said = f"{missed[node.name]}. Hint: run `penstock site deploy`, which catches it up"
            nodes[node.name].checks.append(Check("the last deploy came to this node", ok=False, evidence=said))
    return Verdict(site.name, time, nodes)


def _checks(
    site: Site, node: Node, seen: Evidence, registered: Mapping[str, Any], served: Published
) -> Iterator[Check]:
    yield Check("answers", ok=True, evidence=f"{seen['os']}, Linux {seen['kernel']}")
    yield from _services(seen)
    yield from _current(node, seen, registered.get(node.name, {}).get("agent_version"))
    yield from _versions(node, seen, served)
    yield _ports(site, node, seen)
    yield _network(seen)
    yield from _sources(site, node, seen)
    yield _time(seen)
    yield _health("control API answers this node", seen["api"])
    if NodeRole.MASTER in node.roles:
        yield _health("database answers", seen.get("database"))
        yield _health("control API lists its nodes", seen.get("nodes"))
        yield _strangers(site, registered)
    if NodeRole.WORKER in node.roles:
        docker = seen["docker"]
        said = f"Docker {docker['version']}, {docker['driver']}" if docker else "Docker does not answer"
        yield Check("container engine answers", ok=docker is not None, evidence=said)
        yield _library(seen.get("gpu_library"))
        yield _agent(node, registered.get(node.name))
        if node.kubernetes is None:
            yield from _session_ways(site, seen.get("ways"))
    for chain, limit in seen["limits"].items():
        yield Check(f"connections are limited by {chain}", ok=limit["ok"], evidence=limit["detail"])
    for path, options in seen["mounts"].items():
        yield _mount(path, options)
    for path, export in seen["exports"].items():
        yield _health(f"{path} is exported", export)


def _services(seen: Evidence) -> Iterator[Check]:
    for unit, state in sorted(seen["services"].items()):
        yield Check(f"{unit} runs", ok=state == "active", evidence=state)


def _current(node: Node, seen: Evidence, agent: str | None) -> Iterator[Check]:
    """Find services that still run what was there before: an upgrade was interrupted before it restarted them."""
    detail = seen["api"]["detail"]
    tells = {"agent": agent, "api": detail.get("version") if isinstance(detail, dict) else None}
    for unit, found in sorted(seen["running"].items()):
        if found is None:
            continue
        part = PARTS.get(unit, "")
        runs, installed = tells.get(part), seen["penstock"].get(part)
        since = f"{datetime.fromtimestamp(found['since'], UTC):%FT%TZ}"
        problems = [f"it runs {runs}, and {installed} is installed"] if runs and installed and runs != installed else []
        problems += [f"{path} changed after it started" for path in found["newer"]]
        problems += ["its program was replaced after it started"] if found["replaced"] else []
        said = f"{runs or installed or 'started'}{' since' if runs or installed else ' at'} {since}"
        if problems:
            said += (
                f": {'; '.join(problems)}. Hint: run `systemctl daemon-reload; systemctl restart {unit}` on {node.name}"
            )
        yield Check(f"{unit} runs what is installed", ok=not problems, evidence=said)


def _versions(node: Node, seen: Evidence, served: Published) -> Iterator[Check]:
    """Hold what is installed against the publication."""
    if not served:
        return
    debian = served.get(node.release, {})
    wanted = {name: sorted(debian[name]) for name in seen["packages"] if name in debian}
    other = [
        f"{name} {seen['packages'][name]}, and {_words(versions)} is published: run `apt-get update; "
        f"apt-get install --allow-downgrades {name}={versions[-1]}` on {node.name}"
        for name, versions in wanted.items()
        if seen["packages"][name] not in versions
    ]
    own = sorted(served.get(PYTHON, {}).get("penstock", ()))
    other += [
        f"penstock ({part}) {version}, and {_words(own)} is published: run `penstock site deploy`"
        for part, version in sorted(seen["penstock"].items())
        if own and version not in own
    ]
    said = "; ".join(other) or f"{len(wanted) + len(seen['penstock'])} of them were looked at"
    yield Check("versions are those of the publication", ok=not other, evidence=said)


def _ports(site: Site, node: Node, seen: Evidence) -> Check:
    wanted: dict[NodeRole, list[int | None]] = {
        NodeRole.RESERVOIR: [site.ports.reservoir, site.ports.registry],
        NodeRole.MASTER: [site.ports.console, site.ports.api, site.ports.agents, site.ports.apps],
        NodeRole.WORKER: [node.agent_port],
        NodeRole.STORAGE: [NFS_PORT] if seen["exports"] else [],
    }
    expected = {port for role in node.roles for port in wanted[role] if port is not None}
    closed = sorted(expected - set(seen["ports"]))
    said = f"nothing listens on {_words(closed)}" if closed else f"listens on {_words(seen['ports'])}"
    return Check("service ports are open", ok=not closed, evidence=said)


def _network(seen: Evidence) -> Check:
    routes = _words(seen["default_routes"]) or "no default route"
    outside = seen["outside"] or "it answers"
    return Check("network is closed", ok=bool(seen["outside"]), evidence=f"{routes}; 192.0.2.1: {outside}")


def _sources(site: Site, node: Node, seen: Evidence) -> Iterator[Check]:
    reservoir = f"https://reservoir:{site.ports.reservoir}/"
    own = f"file:{inventory.RESERVOIR_ROOT}/" if NodeRole.RESERVOIR in node.roles else reservoir
    packages = seen["package_sources"]
    yield Check(
        "packages come from the reservoir alone",
        ok=bool(packages) and all(url.startswith((own, reservoir)) for url in packages),
        evidence=_words(packages) or "no package source",
    )
    index = seen["pip_index"]
    yield Check(
        "Python packages come from the reservoir alone",
        ok=index.startswith(reservoir),
        evidence=index or "pip has no index of the site",
    )


def _time(seen: Evidence) -> Check:
    time = seen["time"]
    if time is None:
        return Check("clock follows the site", ok=False, evidence="chrony does not answer")
    reference = "its own clock" if time["local"] else time["reference"]
    said = f"{time['offset_s'] * 1000:+.3f} ms to {reference}"
    if not time["synchronised"]:
        said += ", not synchronised"
    return Check("clock follows the site", ok=time["synchronised"] and abs(time["offset_s"]) < OFFSET_S, evidence=said)


def _library(found: Mapping[str, Any] | None) -> Check:
    name = "library of GPU shares is the reservoir's and loads"
    if found is None:
        return Check(name, ok=False, evidence="it was not looked at")
    return Check(name, ok=found["ok"], evidence="it does" if found["ok"] else str(found["detail"]))


def _agent(node: Node, registered: Mapping[str, Any] | None) -> Check:
    name = "agent is registered and ready"
    if registered is None:
        return Check(name, ok=False, evidence="the control API does not list this node")
    gpus, state = registered["gpus"], registered["state"]
    simulated = sum(gpu["simulated"] for gpu in gpus)
    wanted = node.simulated_gpus.count if node.simulated_gpus else 0
    said = f"{state}, {len(gpus)} GPUs" + (f", {simulated} of them simulated" if simulated else "")
    if enforcement := registered.get("enforcement"):
        said += f", shares held by {enforcement}"
    if simulated != wanted:
        said += f" where the site file has {wanted}"
    return Check(name, ok=state == "ready" and simulated == wanted, evidence=said)


def _strangers(site: Site, registered: Mapping[str, Any]) -> Check:
    """Find nodes that report and that the site does not have; one that is gone is only waiting to be deleted."""
    workers = {node.name for node in site.with_role(NodeRole.WORKER)}
    found = sorted(name for name, node in registered.items() if name not in workers and node["state"] != "lost")
    said = f"{_words(found)} reports, and is no worker of the site" if found else "nobody else reports"
    return Check("agents are those of the site's workers", ok=not found, evidence=said)


def _certificate(node: Node, found: Mapping[str, Any], revoked: str) -> Check:
    """Find a certificate that does not count, and a node that has not heard what the site has revoked."""
    problems = [] if found["ok"] else [str(found["detail"])]
    problems += [f"it is that of {found['name'] or 'nobody'}"] if found["name"] != node.name else []
    if revoked and found["crl"] != revoked:
        problems.append("the node has not the site's list of revoked certificates: run `penstock site deploy`")
    said = "; ".join(problems) or f"until {found['ends']}; what the site has revoked is known"
    return Check("certificate is the node's and counts", ok=not problems, evidence=said)


def _session_ways(site: Site, seen: Evidence | None) -> Iterator[Check]:
    """Judge what a container reached; what this node itself does not reach either says nothing."""
    if seen is None or seen["detail"]:
        said = seen["detail"] if seen else "nothing was tried"
        yield Check("sessions are kept apart", ok=False, evidence=str(said))
        return
    tried, services = seen["tried"], site.session_services
    missing = [f"{way}: {tried[way]['container']}" for way in services if tried[way]["container"]]
    yield Check(
        "sessions reach the site's services", ok=not missing, evidence=_words(missing) or f"reached {_words(services)}"
    )
    closed = {way: told for way, told in tried.items() if way not in services}
    reached = [way for way, told in closed.items() if not told["container"]]
    answering = [way for way, told in closed.items() if not told["node"]]
    said = f"a container reached {_words(reached)}" if reached else f"none of {_words(answering)} was reached"
    if not answering:
        said = "nothing answers to this node itself, so nothing is proven"
    yield Check("sessions reach nothing else", ok=bool(answering) and not reached, evidence=said)


def _mount(path: str, options: list[str] | None) -> Check:
    missing = [name for name in ("nosuid", "nodev") if name not in (options or ())]
    said = "not mounted" if options is None else f"mounted without {_words(missing)}" if missing else "mounted"
    return Check(f"{path} is mounted", ok=options is not None and not missing, evidence=said)


def _health(name: str, answer: Mapping[str, Any] | None) -> Check:
    if answer is None:
        return Check(name, ok=False, evidence="it was not asked")
    return Check(name, ok=answer["ok"], evidence="it answers" if answer["ok"] else str(answer["detail"]))


def _facts(seen: Evidence) -> dict[str, Any]:
    versions = {f"penstock ({part})": version for part, version in sorted(seen["penstock"].items())}
    return {
        "os": seen["os"],
        "kernel": seen["kernel"],
        "machine": seen["machine"],
        "versions": versions | dict(sorted(seen["packages"].items())),
    }


def _words(values: list[Any]) -> str:
    return ", ".join(str(value) for value in values)
