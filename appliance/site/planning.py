"""Plans: what a deploy would do, told before it does it. Are bundle and nodes fit, and what would change where?

Nothing is changed, on nodes or controller: what a deploy would make on the controller first, such as the certificate
of a new node, is made in a folder that is removed again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from appliance.site import (
    departure,
    deploy_records,
    deployment,
    driver_bundles,
    edge_certificate,
    engine_change,
    inventory,
    optional_bundles,
    playbook,
    preflight,
    product,
    served,
    settings,
    waves,
)
from appliance.site.backup.migration import migrates, newest_step
from appliance.site.deployment import ROOT, STATE, DeployListener, Deployment, require_releases
from appliance.site.foreseen import Foreseen
from appliance.site.model import Site
from appliance.site.preflight import Table
from appliance.site.product import Product
from appliance.site.rollout import Problems, Rollout, Said
from common.errors import IntegrityError
from reservoir.intake.store import Store
from reservoir.publication.publish import LAYOUT, record_of

RESTARTED = "restarted"
CHANGES = 12
"""The exit code of a plan by which something would change, as that of `terraform plan -detailed-exitcode`."""

COPIED = (
    *("pki", "storages", "known_hosts", edge_certificate.CERTIFICATE, edge_certificate.KEY),
    *deployment.SECRET_FILES,
)
"""What a controller has of its nodes, and their playbooks read."""


@dataclass
class NodePlan:
    """What would change on one node.

    `packages` are what apt would install of another bundle, each with the versions before and after, `restarted` units
    that still run what was there before an earlier deploy, `secrets` how many tasks that handle one would change
    something, of which no more is told. `whole` says that there is nothing yet to compare with.
    """

    tasks: list[Foreseen] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    secrets: int = 0
    whole: bool = False

    @property
    def changes(self) -> int:
        """How many things would change."""
        return self.whole + len(self.packages) + len(self.tasks) + self.secrets


@dataclass
class Plan:
    """What a deploy would do: on the controller, on its nodes by name, and whom it would refuse or leave out."""

    site: str
    version: str
    bundle: str
    controller: list[str] = field(default_factory=list)
    nodes: dict[str, NodePlan] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    left_out: Problems = field(default_factory=dict)

    @property
    def changes(self) -> int:
        """How many things would change."""
        return len(self.controller) + len(self.left) + sum(node.changes for node in self.nodes.values())

    def json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        return asdict(self) | {"changes": self.changes}


@dataclass
class _Rehearsal:
    """Bundle and nodes, found good."""

    found: Product
    rollout: Rollout
    left: list[str]
    said: Said

    @classmethod
    def of(
        cls,
        site: Site,
        bundle: Path | None,
        listener: DeployListener,
        *,
        limit: Sequence[str] | None,
        state: Path,
        root: Path,
        tell: Callable[[Table], None] = lambda _: None,
    ) -> _Rehearsal:
        """Do all that a deploy does before it changes anything; `tell` hears what was looked at on the nodes."""
        order = waves.plan(site, limit)
        deployment.require_controller(site)
        run = partial(playbook.run, state=state, listen=listener.event, check=True)
        engine_change.require_idle(site, state, run)
        left = departure.close(site, state, run, check=True)
        listener.phase("bundle")
        found = product.verified(bundle, root, listener.progress)
        product.require_installed(found.bundle, bundle)
        served.require_foreseen(Store(root), found.identity, bundle)
        require_releases(site, found.bundle)
        edge_certificate.require(site, state)
        bundles = [found.bundle, *served.foreseen(Store(root), found.identity).values()]
        driver_bundles.require(site, bundles)
        optional_bundles.require(site, bundles, settings.ansible_root() / "roles")
        listener.phase("preflight")
        hosts = inventory.build(site, version=product.own(found.bundle).version, state=str(state), root=str(root))
        rollout = Rollout(order, hosts, run)
        asked = preflight.with_questions(hosts, site, bundles, settings.ansible_root() / "roles")

        def unfit(published: Said) -> Problems:
            table = preflight.table(site, found.bundle, published)
            tell(table)
            return preflight.unfit(table)

        said = rollout.preflight(asked, unfit)
        return cls(found, rollout, left, said)


def rehearse(
    site: Site,
    bundle: Path | None,
    listener: DeployListener,
    *,
    limit: Sequence[str] | None = None,
    state: Path = STATE,
    root: Path = ROOT,
    tell: Callable[[Table], None] = lambda _: None,
) -> Problems:
    """Do all that a deploy does before it changes anything: check controller, bundle and nodes.

    Returns which workers a deploy would leave out now, and why. `tell` hears what was looked at on the nodes, also
    where that stops a deploy.
    """
    done = _Rehearsal.of(site, bundle, listener, limit=limit, state=state, root=root, tell=tell)
    return done.rollout.left_out


def plan(
    site: Site,
    bundle: Path | None,
    listener: DeployListener,
    *,
    limit: Sequence[str] | None = None,
    state: Path = STATE,
    root: Path = ROOT,
) -> Plan:
    """Return what a deploy would change now; raises what the deploy would raise before it changed anything."""
    done = _Rehearsal.of(site, bundle, listener, limit=limit, state=state, root=root)
    found, rollout = done.found, done.rollout
    version = product.own(found.bundle).version
    told = Plan(site.name, version, found.identity, left=done.left, left_out=rollout.left_out)
    names = [name for name in rollout.plan.nodes if name not in rollout.left_out]
    told.nodes = {name: NodePlan() for name in names}
    if not _is_served(root, found.identity):
        told.controller += ["bundle imported", "publication made"]
        for name, node in told.nodes.items():
            simulated = done.said.get(name, {}).get(preflight.PRESENT, {}).get("simulation", {})
            node.packages = simulated.get("installed", [])
    with _beside(site, state) as (folder, made):
        told.controller += made
        told.controller += _migration(found, state)
        if Store(root).serving() is None:
            for node in told.nodes.values():
                node.whole = True
        else:
            hosts = inventory.build(site, version=version, state=str(folder), root=str(root))
            result = playbook.run(
                "site",
                hosts,
                state=state,
                listen=listener.event,
                publish=[RESTARTED],
                check=True,
                diff=True,
                limit=names,
                together=False,
            )
            _take_in(told, result, rollout.plan.first)
    return told


def _is_served(root: Path, identity: str) -> bool:
    """Say whether nodes take their packages from this very bundle."""
    try:
        record = record_of(Store(root).current)
    except IntegrityError:
        return False
    return identity in record["bundles"] and record["layout"] == LAYOUT


@contextmanager
def _beside(site: Site, state: Path) -> Iterator[tuple[Path, list[str]]]:
    """Make what the site would be known by in a folder beside what it is known by; yields it, and what was made."""
    # beside the logs, of which the oldest are forgotten: a plan that was killed leaves its folder
    with tempfile.TemporaryDirectory(prefix=f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-plan-", dir=state / "runs") as name:
        folder = Path(name)
        for each in COPIED:
            if (state / each).is_dir():
                shutil.copytree(state / each, folder / each)
            elif (state / each).is_file():
                shutil.copy2(state / each, folder / each)
        made = Deployment(site.name, "", "", "")
        deployment.identify(site, folder, made)
        yield folder, made.changed


def _migration(found: Product, state: Path) -> list[str]:
    """Return to which step the database would be migrated, with a backup before that."""
    wheel = found.wheel
    step = newest_step(wheel) if wheel else ""
    migrated = step and migrates(step, deploy_records.read(state))
    return [f"backup taken, then the database migrated to {step}"] if migrated else []


def _take_in(told: Plan, result: playbook.Result, first: Sequence[str]) -> None:
    """Note what each node said in a dry run; raises ProcessError where one of the `first` could not say it."""
    failed = result.failed()
    if failed.keys() & set(first):
        result.require_success()
    told.left_out |= failed
    told.nodes = {name: node for name, node in told.nodes.items() if name not in failed}
    for name, node in told.nodes.items():
        node.tasks = result.foreseen.get(name, [])
        node.secrets = result.hidden(name)
        node.restarted = result.published.get(name, {}).get(RESTARTED, [])
