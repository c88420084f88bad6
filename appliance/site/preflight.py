"""Judgement on what stands on nodes before a deploy, and the questions that the role `preflight` is asked for it.

What belongs to somebody else is a problem, unless the node's `take_over` names its kind.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from appliance.site import apps_names, cluster_engine, duplicates, needs, packets, ways
from appliance.site.inventory import DOCKER_ROOT, POSTGRESQL_PORT
from appliance.site.model import INNER_PORTS, NFS_PORT, Node, NodeRole, Site, TakeOver
from common.checks import Check, CheckState
from common.errors import Problem
from reservoir.contents.artifact import DebianArtifact
from reservoir.contents.bundle import Bundle

FINDINGS, PRESENT, MACHINE = "penstock_findings", "penstock_present", "penstock_machine"
PUBLISHED = (FINDINGS, PRESENT, MACHINE, ways.LISTENS, ways.TRIED, ways.LISTENED, ways.UNHEARD)
LISTENER = "penstock-ways"
"""The process that listens on the ports of services for another preflight."""
FIXED_PORTS = {POSTGRESQL_PORT, NFS_PORT, *cluster_engine.PORTS, *INNER_PORTS}
KEPT = "/var/lib/penstock/kept"

INDEX_FIELDS = {
    *("Package", "Version", "Architecture", "Multi-Arch", "Essential", "Priority", "Depends", "Pre-Depends"),
    *("Conflicts", "Breaks", "Replaces", "Provides"),
}
DOCKER_PACKAGES = re.compile(r"docker|containerd|moby-|runc$")
PODS = {"kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "snap.microk8s.daemon-kubelite", "crio", "cri-o"}

Present = Mapping[str, Any]
Finding = tuple[str, str, str]
"""What it is about, what is wrong, and the hint."""
Table = Mapping[str, Sequence[Check]]
"""What was looked at on nodes, by their names."""


def with_questions(hosts: dict[str, Any], site: Site, bundles: Iterable[Bundle], roles: Path) -> dict[str, Any]:
    """Return an inventory with what the role asks of each node: packages and ports of the roles that it gets.

    `bundles` are all that the nodes take packages from.
    """
    held = list(bundles)
    everything = hosts["all"]
    members = {group: set(each["hosts"]) for group, each in everything["children"].items()}
    asked, tried = {}, ways.questions(site)
    for node in site.nodes:
        known = everything["hosts"][node.name]
        groups = [group for group in members if node.name in members[group]]
        asked_for = packages(groups, {node.release, known.get("node_storage_server")}, roles)
        ports = {"node_ports": sorted(_ports(site, node))} | tried[node.name]
        asked[node.name] = {**known, "node_packages": asked_for} | ports
    releases = {node.release for node in site.nodes}
    indexes = {release: "\n".join(_index(bundle, release) for bundle in held) for release in releases}
    of_run = {"site_preflight": secrets.token_hex(8), "site_listen_s": ways.ANSWER_S + len(site.nodes)}
    variables = {**everything["vars"], "site_indexes": indexes, **of_run}
    return {"all": {**everything, "vars": variables, "hosts": asked}}


def unfit(table: Table) -> dict[str, list[Problem]]:
    """Return all that makes nodes unfit, by their names, of what was looked at."""
    failed = {name: [check for check in checks if check.state is CheckState.FAIL] for name, checks in table.items()}
    return {
        name: [Problem(f"{name}: {check.id}", check.evidence, check.hint) for check in checks]
        for name, checks in failed.items()
        if checks
    }


def table(
    site: Site,
    bundle: Bundle,
    published: Mapping[str, Mapping[str, Any]],
    resolve: apps_names.Resolver = apps_names.addresses_of,
) -> dict[str, list[Check]]:
    """Return all that was looked at, by the names of the nodes that answered, of what the role published.

    Names of apps are those of the master; where they lead elsewhere, the name servers may be told later.
    """
    machines = {name: said[MACHINE] for name, said in published.items() if MACHINE in said}
    named = [check if check.ok else replace(check, state=CheckState.WARN) for check in apps_names.checks(site, resolve)]
    among = [
        duplicates.judge(machines),
        packets.judge(site, machines),
        ways.judge(ways.between(site), published),
        {site.master.name: named},
    ]
    return {
        node.name: [
            *_looked_at(site, node, bundle, published[node.name]),
            *(check for checks in among for check in checks.get(node.name, ())),
        ]
        for node in site.nodes
        if node.name in published
    }


def _looked_at(site: Site, node: Node, bundle: Bundle, said: Mapping[str, Any]) -> Iterator[Check]:
    for each in said.get(FINDINGS, ()):
        evidence = each["seen"] if each["ok"] else each["reason"]
        yield Check.of(each["name"], each["name"], ok=each["ok"], evidence=evidence, hint=each["hint"])
    if MACHINE in said:
        yield from needs.judge(site, node, said[MACHINE])
    if PRESENT in said:
        wrong = list(judge(site, node, said[PRESENT], _postgresql(bundle, node.release)))
        yield from (Check.of(name, name, ok=False, evidence=reason, hint=hint) for name, reason, hint in wrong)
        if not wrong:
            yield Check.of("present", "nothing is in the way", ok=True, evidence="packages, ports, databases, exports")


def judge(site: Site, node: Node, present: Present, postgresql: str) -> Iterator[Finding]:
    """Yield what may not stay as it is on a node; `postgresql` is the major version that the bundle has."""
    if present["locked"]:
        yield "dpkg", f"{present['locked']} is at work with apt or dpkg", "wait until it has ended, then deploy again"
    if present["broken"]:
        yield "dpkg", present["broken"], "run `dpkg --configure -a && apt-get --fix-broken install` on the node"
    yield from _unwanted_packages(node, present)
    if NodeRole.WORKER in node.roles:
        yield from _engines(node, present)
        yield from _docker_root(node, present)
    yield from _busy_ports(site, node, present)
    if NodeRole.MASTER in node.roles:
        yield from _clusters(node, present, postgresql)
    if present["exports"] and not any(
        _is_ours(present, path) for path in ("/etc/exports", "/etc/ganesha/ganesha.conf")
    ):
        reason = f"it exports folders of somebody else: {present['exports'][0]}"
        yield from _unless(node, TakeOver.EXPORTS, reason, "what they are for ends, and the file is kept")
    if present["web_server"] and {NodeRole.MASTER, NodeRole.RESERVOIR} & set(node.roles):
        reason = "nginx serves something of somebody else"
        yield from _unless(node, TakeOver.WEB_SERVER, reason, "its default site is removed, and it may be stopped")


def _unless(node: Node, kind: TakeOver, reason: str, means: str) -> Iterator[Finding]:
    if kind not in node.take_over:
        hint = f"move it to another machine, or write `take_over: [{kind}]` at the node in the site file: {means}"
        yield kind.replace("_", " "), reason, hint


def _is_ours(present: Present, path: str) -> bool:
    """Say whether a file is Penstock's; an earlier release kept no record of them, and all of a node was its own."""
    return present["recorded"] is None or path in present["recorded"]


def _unwanted_packages(node: Node, present: Present) -> Iterator[Finding]:
    simulation = present["simulation"]
    if simulation["error"]:
        held = f"; held are {', '.join(simulation['held'])}" if simulation["held"] else ""
        hint = "release what is held (`apt-mark unhold NAME`) or pinned (/etc/apt/preferences.d), or remove it"
        yield "packages", f"apt cannot install what the node needs{held}: {simulation['error']}", hint
    removed = simulation["removed"]
    if TakeOver.CONTAINER_ENGINE in node.take_over:
        removed = [name for name in removed if not DOCKER_PACKAGES.match(name)]
    if removed:
        reason = f"apt would remove {', '.join(removed)}"
        yield from _unless(node, TakeOver.PACKAGES, reason, "these packages are removed")


def _engines(node: Node, present: Present) -> Iterator[Finding]:
    engines, containers = dict(present["engines"]), present["containers"]
    if _is_ours(present, "/etc/docker/daemon.json"):
        # what Debian's Docker brings along
        engines = {
            name: version for name, version in engines.items() if name not in ("docker", "docker.io", "containerd")
        }
    elif any(name in engines for name in ("docker.io", "docker-ce")) or not containers["containerd-shim"]:
        # a part of Docker, or a library that nobody uses
        engines = {name: version for name, version in engines.items() if not name.startswith("containerd")}
    if not containers["conmon"]:
        engines.pop("podman", None)
    if node.kubernetes:
        engines = {name: version for name, version in engines.items() if name not in PODS}
    if engines:
        names = ", ".join(f"{name} ({version})" for name, version in engines.items())
        reason = f"somebody else's containers are run by {names}; {sum(containers.values())} are running"
        means = f"Docker's packages are replaced, its daemon.json is kept in {KEPT}, others go on beside Penstock"
        yield from _unless(node, TakeOver.CONTAINER_ENGINE, reason, means)


def _docker_root(node: Node, present: Present) -> Iterator[Finding]:
    """Find containers that a Docker with another folder would not know any more, and a folder that is not its own."""
    found, wanted, about = present["docker_root"], node.docker_root or DOCKER_ROOT, "docker root"
    if node.docker_root and found["kind"]:
        reason = f"{wanted} is on a file system of the kind {found['kind']}, on which Docker can lay no layers"
        yield about, reason, "name a folder on a disk of the node's own, such as one with ext4 or xfs"
    if node.docker_root and found["real"]:
        reason = f"{wanted} leads to {found['real']}, for whose mount Docker would not wait"
        yield about, reason, f"write `docker_root: {found['real']}`"
    if node.docker_root and found["foreign"]:
        reason = f"{wanted} is to be Docker's alone, and holds {', '.join(found['foreign'])}"
        yield about, reason, "name an empty folder, or one that does not exist yet"
    if found["containers"]:
        reason = f"{found['containers']} containers of Docker lie in {found['before']}, and not in {wanted}"
        # they run on when Docker stops, and would write to the folder before
        end = "systemctl stop penstock-agent && docker ps --quiet | xargs --no-run-if-empty docker stop"
        copy = f"rsync -aHAX --numeric-ids {found['before']}/ {wanted}/"
        bring = f"end them and bring them along (`{end} && systemctl stop docker.socket docker && {copy}`)"
        stay = f"leave Docker where it is (`docker_root: {found['before']}`)"
        yield about, reason, f"drain the node until it has none, or {bring}, then deploy again; or {stay}"


def _busy_ports(site: Site, node: Node, present: Present) -> Iterator[Finding]:
    wanted = _ports(site, node)
    for held in present["listening"]:
        units = wanted.get(held["port"], ())
        # where it is not somebody else's, nginx serves the reservoir, or what once was the edge
        own = held["unit"].startswith(tuple(units)) or (held["unit"] == "nginx.service" and not present["web_server"])
        if not held["process"]:
            own = held["port"] == NFS_PORT and _is_ours(present, "/etc/exports")
        if not own and held["process"] != LISTENER:
            who = (
                f"{held['process']} (pid {held['pid']}, {held['unit'] or 'no unit'})"
                if held["process"]
                else "the kernel"
            )
            stop = f"stop it (`systemctl disable --now {held['unit']}`)" if held["unit"] else "stop it"
            other = "" if held["port"] in FIXED_PORTS else ", or choose another port in the site file"
            yield "ports", f"port {held['port']} is held by {who}", stop + other


def _clusters(node: Node, present: Present, version: str) -> Iterator[Finding]:
    clusters = present["clusters"]
    if any(cluster["ours"] for cluster in clusters):
        return
    names = ", ".join(f"{each['version']}/{each['name']} (port {each['port']})" for each in clusters)
    if len(clusters) > 1 or any(version not in ("", each["version"]) or each["name"] != "main" for each in clusters):
        reason = f"PostgreSQL has clusters of somebody else: {names}"
        yield "database", reason, f"move them to another machine: the node's only cluster is to be {version}/main"
        return
    for cluster in clusters:
        databases = [name for name in cluster["databases"] or () if name != "postgres"]
        if databases or cluster["databases"] is None:
            whose = (
                f"has databases of somebody else: {', '.join(databases)}"
                if databases
                else "does not tell its databases"
            )
            means = "Penstock's database is made beside them, and the network does not reach them any more"
            yield from _unless(node, TakeOver.DATABASE, f"the PostgreSQL cluster {names} {whose}", means)


def _ports(site: Site, node: Node) -> dict[int, tuple[str, ...]]:
    """Return the ports that services of a node listen on, and how the names of their units begin."""
    ports: dict[int, tuple[str, ...]] = {}
    edge, inner = ("penstock-edge.",), dict.fromkeys(INNER_PORTS, ("docker-registry.",))
    if NodeRole.RESERVOIR in node.roles:
        ports |= dict.fromkeys((site.ports.reservoir, site.ports.registry), ("nginx.",)) | inner
    if NodeRole.MASTER in node.roles:
        ports |= dict.fromkeys((site.ports.console, site.ports.api, site.ports.apps), edge)
        ports |= {site.ports.agents: ("penstock-agent-edge.",), POSTGRESQL_PORT: ("postgresql@",)}
    if node.agent_port is not None:
        ports[node.agent_port] = ("penstock-agent.",)
    if NodeRole.STORAGE in node.roles:
        ports[NFS_PORT] = ("nfs-",)
    return ports | {port: (unit,) for port, unit in cluster_engine.ports(site, node).items()}


def packages(groups: Collection[str], kinds: Collection[str | None], roles: Path) -> list[str]:
    """Return the packages that the roles of a node install, as their defaults name them, some by kind or release."""
    found: set[str] = set()
    for group in groups:
        defaults = yaml.safe_load((roles / group / "defaults/main.yml").read_text(encoding="utf-8"))
        # what evidence names is looked for, and not installed
        named = [] if group == "evidence" else defaults.get(f"{group}_packages", [])
        found |= {name for kind in kinds for name in (named.get(kind, ()) if isinstance(named, dict) else named)}
    return sorted(found)


def _debs(bundle: Bundle, release: str) -> list[DebianArtifact]:
    names = {target.name for target in bundle.targets if target.release == release}
    return [deb for deb in bundle.of_kind(DebianArtifact) if names & set(deb.targets)]


def _index(bundle: Bundle, release: str) -> str:
    """Return the bundle's packages for a release as apt's index of them, without what apt decides nothing by."""
    ends = (
        f"{_fields(deb.metadata.stanza)}Filename: {deb.filename}\nSize: {deb.size}\n" for deb in _debs(bundle, release)
    )
    return "\n".join(ends)


def _fields(stanza: str) -> str:
    wanted, kept = False, []
    for line in stanza.splitlines():
        wanted = wanted if line[:1].isspace() else line.partition(":")[0] in INDEX_FIELDS
        kept += [f"{line}\n"] if wanted else []
    return "".join(kept)


def _postgresql(bundle: Bundle, release: str) -> str:
    """Return the major version of PostgreSQL that a release has; nothing where it has none."""
    versions = (re.fullmatch(r"postgresql-(\d+)", deb.name) for deb in _debs(bundle, release))
    return next((version[1] for version in versions if version), "")
