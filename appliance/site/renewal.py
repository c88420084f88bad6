"""Renewal of the site's certificates before they end: a deploy of what is deployed, to the nodes that need it.

A timer of the controller asks for it. It brings nothing else: no bundle that nobody has deployed, and no new authority,
which would cut off all nodes that it has not reached yet. Where it is not sure of that, it refuses, or leaves a worker
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from appliance.site import deploy_records, deployment, pki, product, waves
from appliance.site.deploy_records import Record
from appliance.site.deployment import ROOT, STATE, DeployListener, Deployment
from appliance.site.inventory import SITE_FILE
from appliance.site.model import Site
from appliance.site.rollout import Problems
from common.checks import Check, CheckState
from common.errors import ConflictError, PenstockError, Problem
from reservoir.intake.store import Store
from reservoir.publication.due import due
from reservoir.publication.publish import record_of

HINT = "run `penstock site deploy`, which renews certificates, too"
PATIENCE = timedelta(days=7)
"""So long a renewal that is due may not have come: a deploy or a node that is down may hold it up for a while."""
OVERDUE = "look at `systemctl status penstock-renewal.timer` and `journalctl -u penstock-renewal`, or deploy"
CAUGHT_UP = "deploy to it (`penstock site deploy --limit {}`), which renews its certificate, too"


@dataclass
class Renewal:
    """What was renewed: the `ends` of all certificates before, whose were renewed, and the `deploy` that did it.

    `waiting` are nodes whose certificate an earlier deploy has renewed, and that it did not reach. `left_out` are
    workers that it would bring more than a certificate, and why.
    """

    ends: dict[str, datetime]
    due: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    left_out: Problems = field(default_factory=dict)
    deploy: Deployment | None = None

    @property
    def without(self) -> Problems:
        """Return who did not get a certificate, and why."""
        return self.left_out | (self.deploy.left_out if self.deploy else {})

    def json(self) -> dict[str, Any]:
        """Return the renewal as plain data."""
        ends = {name: f"{end:%FT%TZ}" for name, end in self.ends.items()}
        left_out = {name: [asdict(problem) for problem in problems] for name, problems in self.left_out.items()}
        done = self.deploy.json() if self.deploy else None
        return {"ends": ends, "due": self.due, "waiting": self.waiting, "left_out": left_out, "deploy": done}


def renew(listener: DeployListener, *, state: Path = STATE, root: Path = ROOT, now: datetime | None = None) -> Renewal:
    """Renew the certificates of the deployed site that end within 60 days, and bring them to their nodes.

    Workers that a deploy would bring more than that are left out. Raises ConflictError where it would bring more to
    the nodes that all need, or the authority itself is about to end, and UnavailableError where nothing was deployed
    from this machine.
    """
    site, moment = deployment.deployed_site(state), now or datetime.now(UTC)
    ends = pki.ends(state / "pki")
    last = moment + timedelta(days=pki.RENEW_DAYS)
    done = Renewal(ends, [name for name, end in ends.items() if end < last], _waiting(site, state))
    if not done.due and not done.waiting:
        return done
    if pki.AUTHORITY in done.due:
        reason = f"the site's authority ends on {ends[pki.AUTHORITY]:%F}, and each node has to get the new one"
        raise ConflictError(reason, where=str(state / "pki"), hint="run `penstock site deploy` when all nodes are up")
    stands = _stands(site, state, root)
    wanted = {*done.due, *done.waiting}
    workers = [name for name in waves.plan(site).workers if name in wanted]
    done.left_out = _others(workers, deploy_records.read(state), stands)
    if not wanted - done.left_out.keys():
        return done

    def require() -> None:
        if _stands(site, state, root) != stands:
            raise ConflictError("another deploy ran meanwhile", where=str(state), hint="renew again")

    limit = [name for name in workers if name not in done.left_out]
    done.deploy = deployment.deploy(
        site, None, listener, file=_site_file(state), limit=limit, renewal=require, state=state, root=root
    )
    return done


def check(state: Path = STATE, root: Path = ROOT, now: datetime | None = None) -> Check:
    """Judge whether the timer renews what ends next; what it would refuse, or leave out, only its journal says else."""
    moment, name = now or datetime.now(UTC), "certificates are renewed by themselves"
    try:
        site, ends = deployment.deployed_site(state), pki.ends(state / "pki")
        first = min(ends, key=lambda each: ends[each])
        wanted = {each for each, end in ends.items() if end < moment + timedelta(days=pki.RENEW_DAYS)}
        said = f"the first to end, that of {first}, counts until {ends[first]:%F}"
        if pki.AUTHORITY in wanted:
            reasons = ["the authority needs a deploy to all nodes"]
        else:
            stands = _stands(site, state, root)
            workers = [each for each in waves.plan(site).workers if each in wanted]
            others = _others(workers, deploy_records.read(state), stands)
            reasons = [f"{each}: {problem.reason}" for each, problems in others.items() for problem in problems]
    except ConflictError as error:
        reasons = [problem.reason for problem in error.problems]
    except (PenstockError, OSError, ValueError) as error:
        return Check("renewal", name, CheckState.WARN, str(error), HINT)
    since = ends[first] - timedelta(days=pki.RENEW_DAYS)
    if not reasons and moment > since + PATIENCE:
        said = f"{said}; a renewal would refuse nothing, is due since {since:%F}, and has not come"
        return Check("renewal", name, CheckState.WARN, said, OVERDUE)
    if not reasons:
        return Check("renewal", name, CheckState.OK, said)
    evidence = f"{said}; a renewal would refuse: {'; '.join(reasons)}"
    if not wanted:
        return Check("renewal", name, CheckState.OK, evidence)
    return Check("renewal", name, CheckState.WARN, evidence, HINT)


def _stands(site: Site, state: Path, root: Path) -> Record:
    """Return the last deploy that came to its end; raises ConflictError where one now would change more.

    That is one by another site file, from other bundles, with another program or authority, or where one that did not
    come to its end went to a node that all need.
    """
    deploys = deploy_records.read(state)
    stands = next((record for record in deploys if record["ok"]), None)
    if stands is None:
        raise ConflictError("no deploy has come to its end yet", where=str(state), hint=HINT)
    store, (identity, _) = Store(root), product.listed(None, root)
    served = record_of(store.current)["bundles"]
    present = deploy_records.installs(_site_file(state), served, state / "pki" / "ca.crt")
    deployed = stands.get("installs") or {}
    if identity != stands["bundle"]:
        reason = f"the reservoir holds {identity}, and {stands['bundle']} is what was deployed last"
    elif new := sorted(due(store).keys() ^ set(served)):
        reason = f"the reservoir has {', '.join(new)} to publish"
    elif other := [part for part, is_now in present.items() if deployed.get(part) != is_now]:
        reason = f"since {stands['started']}, the last deploy that came to its end, changed: {', '.join(other)}"
    elif pki.AUTHORITY not in pki.ends(state / "pki"):
        reason = "the site's authority is damaged, and a deploy would make another one"
    elif others := _others(waves.plan(site).first, deploys, stands):
        reason = "; ".join(problem.reason for problems in others.values() for problem in problems)
    else:
        return stands
    raise ConflictError(reason, where=str(root), hint=HINT)


def _site_file(state: Path) -> str:
    # with its ends of lines
    return (state / SITE_FILE).read_bytes().decode()


def _others(names: Iterable[str], deploys: Sequence[Record], stands: Record) -> Problems:
    """Return those of the nodes that the last deploy which was to go there left with something else, and why."""
    went = deploy_records.last_by_node(deploys)
    found: Problems = {}
    for name in names:
        record = went.get(name)
        if record is None:
            found[name] = [Problem(name, f"no deploy that is known went to {name}", CAUGHT_UP.format(name))]
        elif any(record.get(part) != stands.get(part) for part in ("bundle", "installs")):
            reason = f"the deploy of {record['started']}, the last one to {name}, installed something else"
            found[name] = [Problem(name, reason, CAUGHT_UP.format(name))]
    return found


def _waiting(site: Site, state: Path) -> list[str]:
    """Return the nodes that some deploy has reached, and none since their certificate was made anew."""
    reached: dict[str, float] = {}
    for record in deploy_records.read(state):
        ended = datetime.fromisoformat(record["started"]).timestamp() + record["seconds"]
        for name in record.get("reached", ()):
            reached[name] = max(ended, reached.get(name, 0.0))
    files = {node.name: state / "pki" / "nodes" / node.name / "node.crt" for node in site.nodes}
    made = {name: path.stat().st_mtime for name, path in files.items() if path.is_file()}
    # who was never reached waits for somebody to deploy there
    return [name for name, moment in made.items() if moment > reached.get(name, moment)]
