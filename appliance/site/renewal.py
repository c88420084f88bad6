"""Renewal of the site's certificates before they end: a deploy of what is deployed, to the nodes that need it.

A timer of the controller asks for it. It brings nothing else: no bundle that nobody has deployed, and no new authority,
which would cut off all nodes that it has not reached yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from appliance.site import deploy_records, deployment, pki, product
from appliance.site.deployment import ROOT, STATE, DeployListener, Deployment
from appliance.site.inventory import SITE_FILE
from appliance.site.model import NodeRole, Site
from common.errors import ConflictError
from reservoir.intake.store import Store
from reservoir.publication.due import due
from reservoir.publication.publish import record_of

HINT = "run `penstock site deploy`, which renews certificates, too"


@dataclass
class Renewal:
    """What was renewed: the `ends` of all certificates before, whose were renewed, and the `deploy` that did it.

    `waiting` are nodes whose certificate an earlier deploy has renewed, and that it did not reach.
    """

    ends: dict[str, datetime]
    due: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    deploy: Deployment | None = None

    def json(self) -> dict[str, Any]:
        """Return the renewal as plain data."""
        ends = {name: f"{end:%FT%TZ}" for name, end in self.ends.items()}
        done = self.deploy.json() if self.deploy else None
        return {"ends": ends, "due": self.due, "waiting": self.waiting, "deploy": done}


def renew(listener: DeployListener, *, state: Path = STATE, root: Path = ROOT, now: datetime | None = None) -> Renewal:
    """Renew the certificates of the deployed site that end within 60 days, and bring them to their nodes.

    Raises ConflictError where a deploy would bring more than that, or the authority itself is about to end, and
    UnavailableError where nothing was deployed from this machine.
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
    _require_deployed(state, root)
    workers = [node.name for node in site.with_role(NodeRole.WORKER) if node.name in {*done.due, *done.waiting}]
    text = (state / SITE_FILE).read_text(encoding="utf-8")
    done.deploy = deployment.deploy(site, None, listener, file=text, limit=workers, state=state, root=root)
    return done


def _require_deployed(state: Path, root: Path) -> None:
    """Raise ConflictError where a deploy of what the reservoir holds would change more than certificates."""
    store = Store(root)
    identity, _ = product.listed(None, root)
    deployed = next((record["bundle"] for record in deploy_records.read(state) if record["ok"]), "nothing")
    if identity != deployed:
        reason = f"the reservoir holds {identity}, and {deployed} is what was deployed last"
    elif new := sorted(due(store).keys() ^ set(record_of(store.current)["bundles"])):
        reason = f"the reservoir has {', '.join(new)} to publish"
    else:
        return
    raise ConflictError(reason, where=str(root), hint=HINT)


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
