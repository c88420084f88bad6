"""Verification of a deployed site: from what every node says about itself to one verdict. `judge` is pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cmp_to_key
from pathlib import Path
from types import MappingProxyType
from typing import Any

from appliance.site import (
    apps_names,
    deploy_records,
    edge_certificate,
    firewall,
    inventory,
    machine_checks,
    pki,
    playbook,
    renewal,
    served_health,
)
from appliance.site.agent_checks import agent, gpus, listed, strangers
from appliance.site.backup import health
from appliance.site.backup.make import FOLDER
from appliance.site.deployment import ROOT, STATE, require_controller
from appliance.site.model import NFS_PORT, Node, NodeRole, Site
from appliance.site.seen import Evidence, NotGatheredError, Seen, guarded
from appliance.site.service_checks import calls, certificate, company_certificate, session_ways
from appliance.site.verdict import NodeVerdict, Verdict
from common import files
from common.checks import Check
from common.errors import UnavailableError
from reservoir.contents.artifact import DebianArtifact, PythonArtifact
from reservoir.intake.store import Store
from reservoir.publication.publish import record_of
from reservoir.scan import versions

EVIDENCE = "penstock_evidence"
PARTS = {"penstock_calls": "calls", "penstock_running": "running", "penstock_session_ways": "ways"}
"""What other modules say of a node, by the part of its evidence that it becomes."""

LAST = "verdict.json"
"""The last verdict, in the folder of the controller's state."""

INSTALLATIONS = {"penstock-agent.service": "agent", "penstock-api.service": "api", "penstock-index.service": "index"}
"""Which installation of Penstock on a node a unit runs."""

BY_DPKG = cmp_to_key(versions.debian)

Published = Mapping[str, Mapping[str, Collection[str]]]
"""The versions of each package that the site serves, by release; those of Python packages under `PYTHON`."""

PYTHON = "python"


Trial = Callable[[Site], Iterable[tuple[str, Check]]]
"""What is tried beside the evidence: checks by the node that they are about."""


def verify(
    site: Site,
    *,
    listen: playbook.Listener,
    trial: Trial | None = None,
    state: Path = STATE,
    root: Path = ROOT,
    folder: Path = FOLDER,
) -> Verdict:
    """Ask every node and judge; changes nothing but what the controller remembers of the last verdict."""
    require_controller(site)
    if not (state / "pki" / "ca.crt").is_file():
        raise UnavailableError(
            "the site is not deployed from this machine", where=str(state), hint="run `penstock site deploy` first"
        )
    hosts = inventory.build(site, version="", state=str(state))
    result = playbook.run("verify", hosts, state=state, listen=listen, publish=[EVIDENCE, *PARTS])
    gathered = {name: _joined(values) for name, values in result.published.items()}
    if not gathered and not result.failures:
        result.require_success()
    silent: dict[str, str] = {}
    for event in result.failures:
        silent[event.node] = "; ".join(filter(None, [silent.get(event.node), event.reason]))
    # none before the first deploy of a release that has such lists
    revoked = state / "pki" / pki.LIST
    digest = hashlib.sha256(revoked.read_bytes()).hexdigest() if revoked.is_file() else ""
    verdict = judge(
        site,
        gathered,
        silent,
        f"{datetime.now(UTC):%FT%TZ}",
        published(Store(root)),
        revoked=digest,
        missed=deploy_records.behind(site, deploy_records.read(state)),
    )
    now = datetime.now(UTC)
    verdict.add(site.reservoir.name, health.judged(site, folder, now))
    verdict.add(site.reservoir.name, served_health.checks(root, site.health.health_bundle_warn_days, now))
    verdict.add(site.reservoir.name, [renewal.check(state, root, now)])
    if (ends := edge_certificate.until(state)) is not None:
        verdict.add(site.master.name, [company_certificate(ends, now)])
    verdict.add(site.master.name, apps_names.checks(site))
    for node, check in trial(site) if trial else ():
        verdict.add(node, [check])
    _remember(verdict, state)
    return verdict


def _remember(verdict: Verdict, state: Path) -> None:
    """Say of each check since when it is as it is, by the verdict before this one, which this one replaces."""
    try:
        before = json.loads((state / LAST).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        before = {}
    verdict.date(before)
    files.write(state / LAST, json.dumps(verdict.json(), indent=1) + "\n", 0o600)


def _joined(values: Mapping[str, Any]) -> Evidence:
    """Return what the modules said of a node as one thing."""
    return {**values.get(EVIDENCE, {}), **{part: values[name] for name, part in PARTS.items() if name in values}}


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
    now = datetime.fromisoformat(time)
    master = Seen(evidence.get(site.master.name, {}), silent.get(site.master.name, "the master did not answer"))
    verdict = Verdict(site.name, time, {node.name: NodeVerdict([]) for node in site.nodes})
    for name, reason in missed.items():
        said, hint = "the last deploy came to this node", "run `penstock site deploy`, which catches it up"
        verdict.add(name, [Check.of("deployed", said, ok=False, evidence=reason, hint=hint)])
    for node in site.nodes:
        if (gathered := evidence.get(node.name)) is None:
            reason = silent.get(node.name, "it gave no evidence")
            hint = f"look whether {node.name} is up, and whether SSH from {site.reservoir.name} reaches it"
            verdict.add(node.name, [Check.of("answers", "answers", ok=False, evidence=reason, hint=hint)])
            continue
        seen = Seen(gathered, silent.get(node.name, ""))
        for identity, name, found in _checks(site, node, seen, master, served):
            verdict.add(node.name, guarded(identity, name, found))
        judged = (
            ("certificate", "certificate is the node's and counts", certificate(node, seen, revoked, now)),
            ("call", "services of the site answer", calls(site, seen, now)),
        )
        for identity, name, found in judged:
            verdict.add(node.name, guarded(identity, name, found))
        verdict.nodes[node.name].facts = _facts(gathered)
    return verdict


def _checks(
    site: Site, node: Node, seen: Seen, master: Seen, served: Published
) -> Iterator[tuple[str, str, Iterator[Check]]]:
    """Yield the judgements of a node: what is known of each where it cannot be made, and the checks that it makes."""
    yield "answers", "answers", _answers(seen)
    yield "service", "services run", machine_checks.services(seen)
    yield "service.enabled", "services start with the machine", machine_checks.enabled(node, seen)
    yield "service.current", "services run what is installed", _current(node, seen, master)
    yield "versions", "versions are those of the publication", _versions(node, seen, served)
    yield "ports", "service ports are open", _ports(site, node, seen)
    yield "network", "network is closed", _network(seen)
    yield "source.packages", "packages come from the reservoir alone", _package_sources(site, node, seen)
    yield "source.python", "Python packages come from the reservoir alone", _pip_sources(site, seen)
    yield "time", "clock follows the site", machine_checks.time(site, node, seen)
    yield "api", "control API answers this node", _health("api", "control API answers this node", seen, "api")
    if NodeRole.MASTER in node.roles:
        yield "database", "database answers", _health("database", "database answers", seen, "database")
        yield "audit", "audit log is written", _audit(node, seen)
        yield "nodes", "control API lists its nodes", _nodes(node, seen)
        yield "strangers", "agents are those of the site's workers", strangers(site, master)
    if NodeRole.WORKER in node.roles:
        yield "docker", "container engine answers", _docker(node, seen)
        yield "confinement", "sessions are limited by the kernel", machine_checks.confinement(node, seen)
        yield "gpu_library", "library of GPU shares is the reservoir's and loads", _library(seen)
        yield "agent", "agent is registered and ready", agent(node, master)
        yield "gpus", "GPUs are those of the site file", gpus(node, seen, master)
        if node.kubernetes is None:
            yield "session.ways", "sessions are kept apart", _ways(site, seen)
    yield "limits", "connections are limited", machine_checks.limits(seen)
    if firewall.has_one(site, node):
        yield "firewall", "other ports are closed", machine_checks.firewall(node, seen)
    yield "storage", "storages are mounted", machine_checks.storages(seen)
    yield "mount", "folders are mounted", machine_checks.mounts(seen)
    yield "export", "folders are exported", _exports(seen)


def _answers(seen: Seen) -> Iterator[Check]:
    yield Check.of("answers", "answers", ok=True, evidence=f"{seen['os']}, Linux {seen['kernel']}")


def _current(node: Node, seen: Seen, master: Seen) -> Iterator[Check]:
    """Find services that still run what was there before: an upgrade was interrupted before it restarted them."""
    detail = seen["api"]["detail"] if "api" in seen else None
    tells = {"agent": _agent_version(node, master), "api": detail.get("version") if isinstance(detail, dict) else None}
    for unit, found in sorted(seen["running"].items()):
        if found is None:
            continue
        part = INSTALLATIONS.get(unit, "")
        runs, installed = tells.get(part), seen["penstock"].get(part)
        since = f"{datetime.fromtimestamp(found['since'], UTC):%FT%TZ}"
        problems = [f"it runs {runs}, and {installed} is installed"] if runs and installed and runs != installed else []
        problems += [f"{path} changed after it started" for path in found["newer"]]
        problems += ["its program was replaced after it started"] if found["replaced"] else []
        said = f"{runs or installed or 'started'}{' since' if runs or installed else ' at'} {since}"
        yield Check.of(
            *("service.current", f"{unit} runs what is installed"),
            ok=not problems,
            evidence=f"{said}: {'; '.join(problems)}" if problems else said,
            hint=f"run `systemctl daemon-reload; systemctl restart {unit}` on {node.name}",
            subject=unit,
        )


def _agent_version(node: Node, master: Seen) -> str | None:
    try:
        return listed(master).get(node.name, {}).get("agent_version")
    except NotGatheredError:
        return None


def _versions(node: Node, seen: Seen, served: Published) -> Iterator[Check]:
    """Hold what is installed against the publication."""
    if not served:
        return
    debian = served.get(node.release, {})
    wanted = {name: sorted(debian[name], key=BY_DPKG) for name in seen["packages"] if name in debian}
    other = {name: versions for name, versions in wanted.items() if seen["packages"][name] not in versions}
    problems = [
        f"{name} {seen['packages'][name]}, and {_words(published)} is published" for name, published in other.items()
    ]
    install = " ".join(f"{name}={versions[-1]}" for name, versions in other.items())
    hints = [f"`apt-get update; apt-get install --allow-downgrades {install}` on {node.name}"] if other else []
    own = sorted(served.get(PYTHON, {}).get("penstock", ()))
    parts = sorted(seen["penstock"].items())
    older = [
        f"penstock ({part}) {version}, and {_words(own)} is published"
        for part, version in parts
        if own and version not in own
    ]
    hints += ["`penstock site deploy`"] if older else []
    yield Check.of(
        *("versions", "versions are those of the publication"),
        ok=not hints,
        evidence="; ".join(problems + older) or f"{len(wanted) + len(parts)} of them were looked at",
        hint=f"run {' and '.join(hints)}",
    )


def _ports(site: Site, node: Node, seen: Seen) -> Iterator[Check]:
    wanted: dict[NodeRole, list[int | None]] = {
        NodeRole.RESERVOIR: [site.ports.reservoir, site.ports.registry],
        NodeRole.MASTER: [site.ports.console, site.ports.api, site.ports.agents, site.ports.apps],
        NodeRole.WORKER: [node.agent_port],
        NodeRole.STORAGE: [NFS_PORT] if seen["exports"] else [],
    }
    expected = {port for role in node.roles for port in wanted[role] if port is not None}
    closed = sorted(expected - set(seen["ports"]))
    said = f"nothing listens on {_words(closed)}" if closed else f"listens on {_words(seen['ports'])}"
    hint = f"look at `systemctl --failed` and `ss -ltnp` on {node.name}"
    yield Check.of("ports", "service ports are open", ok=not closed, evidence=said, hint=hint)


def _network(seen: Seen) -> Iterator[Check]:
    routes = _words(seen["default_routes"]) or "no default route"
    outside = seen["outside"] or "it answers"
    said = f"{routes}; 192.0.2.1: {outside}"
    yield Check.of("network", "network is closed", ok=bool(seen["outside"]), evidence=said)


def _package_sources(site: Site, node: Node, seen: Seen) -> Iterator[Check]:
    own = (f"file:{inventory.RESERVOIR_ROOT}/",) if NodeRole.RESERVOIR in node.roles else ()
    sources, proxies = seen["package_sources"], seen["package_proxies"]
    foreign = [url for url in sources if not url.startswith((*own, _reservoir(site)))]
    said = f"apt fetches from {_words(foreign or sources)}" if sources else "no package source"
    yield Check.of(
        *("source.packages", "packages come from the reservoir alone"),
        ok=bool(sources) and not foreign and not proxies,
        evidence=f"{said}, by {_words(proxies)}" if proxies else said,
        hint=f"take foreign sources out of /etc/apt on {node.name}, or run `penstock site deploy`, which disables them",
    )


def _pip_sources(site: Site, seen: Seen) -> Iterator[Check]:
    found = seen["pip_sources"]
    foreign = [url for urls in found.values() for url in urls if not url.startswith(_reservoir(site))]
    said = f"pip fetches from {_words(foreign or found['index-url'])}"
    yield Check.of(
        *("source.python", "Python packages come from the reservoir alone"),
        ok=bool(found["index-url"]) and not foreign,
        evidence=said if found["index-url"] or foreign else "pip has no index of the site",
        hint=(
            "run `penstock site deploy`, which writes /etc/pip.conf; take foreign indexes out of all other files that"
            " `pip config debug` names for root"
        ),
    )


def _docker(node: Node, seen: Seen) -> Iterator[Check]:
    docker = seen["docker"]
    said = f"Docker {docker['version']}, {docker['driver']}" if docker else "Docker does not answer"
    hint = f"look at `journalctl -u docker` on {node.name}"
    astray = docker is not None and node.docker_root not in (None, docker["root"])
    if docker and astray:
        said = f"{said}, which keeps its things at {docker['root']} and not at {node.docker_root}"
    ok = docker is not None and not astray
    yield Check.of("docker", "container engine answers", ok=ok, evidence=said, hint=hint)


def _library(seen: Seen) -> Iterator[Check]:
    found = seen["gpu_library"]
    name = "library of GPU shares is the reservoir's and loads"
    if found is None:
        yield Check.of("gpu_library", name, ok=False, evidence="it was not looked at")
    else:
        said = "it does" if found["ok"] else str(found["detail"])
        yield Check.of("gpu_library", name, ok=found["ok"], evidence=said)


def _ways(site: Site, seen: Seen) -> Iterator[Check]:
    yield from session_ways(site, seen["ways"])


def _exports(seen: Seen) -> Iterator[Check]:
    for path, answer in seen["exports"].items():
        yield _answered("export", f"{path} is exported", answer, path)


def _health(identity: str, name: str, seen: Seen, part: str) -> Iterator[Check]:
    yield _answered(identity, name, seen[part])


def _audit(node: Node, seen: Seen) -> Iterator[Check]:
    found, hint = seen["audit"], f"look at the folder's owner and disk on {node.name}, and run `penstock audit verify`"
    yield Check.of("audit", "audit log is written", ok=found["ok"], evidence=found["detail"], hint=hint)


def _nodes(node: Node, seen: Seen) -> Iterator[Check]:
    hint = f"look at `journalctl -u penstock-api` and `uptime` on {node.name}: it may be overloaded, or hang"
    yield _answered("nodes", "control API lists its nodes", seen["nodes"], hint=hint)


def _answered(identity: str, name: str, answer: Mapping[str, Any] | None, subject: str = "", hint: str = "") -> Check:
    if answer is None:
        return Check.of(identity, name, ok=False, evidence="it was not asked", subject=subject)
    said = "it answers" if answer["ok"] else str(answer["detail"])
    return Check.of(identity, name, ok=answer["ok"], evidence=said, hint=hint, subject=subject)


def _facts(gathered: Evidence) -> dict[str, Any]:
    parts = sorted(gathered.get("penstock", {}).items())
    packages = sorted(gathered.get("packages", {}).items())
    versions = {f"penstock ({part})": version for part, version in parts} | dict(packages)
    return {name: gathered.get(name, "unknown") for name in ("os", "kernel", "machine")} | {"versions": versions}


def _reservoir(site: Site) -> str:
    return f"https://reservoir:{site.ports.reservoir}/"


def _words(values: Collection[Any]) -> str:
    return ", ".join(str(value) for value in values)
