"""The deploy of a site from a bundle. It runs on the reservoir node, which is the controller of its site.

Every step keeps what is right already, so that a second deploy changes nothing and a broken one is simply repeated.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from appliance.site import (
    departure,
    deploy_records,
    driver_bundles,
    edge_certificate,
    engine_change,
    expected_gpus,
    inventory,
    optional_bundles,
    pki,
    playbook,
    preflight,
    product,
    served,
    settings,
    site_file_edit,
    waves,
)
from appliance.site.alone import Alone, alone
from appliance.site.backup.make import Backups
from appliance.site.backup.migration import migrates, newest_step
from appliance.site.backup.secrets import Places
from appliance.site.model import NodeRole, Site
from appliance.site.rollout import KEPT, Problems, Rollout
from appliance.site.site_file import load
from appliance.site.slurm import Engine
from common import files
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, Problem, UnavailableError
from common.progress import Progress
from common.yaml_document import parse
from reservoir.bundle import bundles, expiry
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.intake.take import Imported, take
from reservoir.intake.trust import Spoken
from reservoir.publication.publish import publish

STATE = Path(inventory.STATE)
ROOT = Path(inventory.RESERVOIR_ROOT)
PASSWORD_FILE = "admin-password"  # noqa: S105 - the name of a file
INDEX_PASSWORD_FILE = "index-password"  # noqa: S105 - the name of a file
AUDIT_KEY_FILE = "audit-key"
WAL_KEY_FILE = "wal-key"
MUNGE_KEY_FILE = "munge-key"
SECRET_FILES = (PASSWORD_FILE, INDEX_PASSWORD_FILE, AUDIT_KEY_FILE, WAL_KEY_FILE, MUNGE_KEY_FILE)
READABLE = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits that cannot be taken for each other."""

KEPT_FOLDER = preflight.KEPT


@dataclass
class Deployment:
    """What came of a deploy.

    `phases` are seconds by phase, `nodes` counts tasks by node, `tasks` names those that changed it, `changed` says
    what else was changed on the controller, `kept` names the files of others by node of which a copy was kept,
    `admin_password` is set only when this deploy made it. `reached` are the nodes that it installed, and `left_out`
    says why others were not; it is `ok` where it came to its end with the others. `workers` are those of the site,
    `left` nodes that it refuses from now on. `rolled_back` is the number of the publication that it installed where an
    administrator went back to that, else 0. `schema` is the step that it brings the database to, `backup` the one that
    it took before. `engine` is that of the site where nodes were changed, `installs` what they install, and `renewal`
    says that it was to bring certificates alone. `expected` are the GPUs of workers of which the site file said
    nothing, and `file` is its text with them.
    """

    site: str
    version: str
    bundle: str
    started: str
    phases: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, playbook.Counts] = field(default_factory=dict)
    tasks: dict[str, list[str]] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    left_out: Problems = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    workers: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    rolled_back: int = 0
    schema: str = ""
    backup: str = ""
    engine: str = ""
    installs: dict[str, Any] = field(default_factory=dict)
    renewal: bool = False
    expected: expected_gpus.Expected = field(default_factory=dict)
    ok: bool = False
    file: str = ""
    admin_password: str | None = None

    @property
    def seconds(self) -> float:
        """Return how long all phases took."""
        return round(sum(self.phases.values()), 1)

    @property
    def changes(self) -> int:
        """Return how many things this deploy changed, on all nodes."""
        return len(self.changed) + sum(counts.changed for counts in self.nodes.values())

    def add(self, result: playbook.Result) -> None:
        """Take in what came of one playbook."""
        for phase, seconds in result.phases.items():
            self.phases[phase] = round(self.phases.get(phase, 0.0) + seconds, 2)
        for node, counts in result.nodes.items():
            self.nodes[node] = self.nodes.get(node, playbook.Counts()) + counts
        for node, changes in result.changes.items():
            self.tasks.setdefault(node, []).extend(changes)
        self.kept |= {node: said[KEPT] for node, said in result.published.items() if said.get(KEPT)}

    def json(self) -> dict[str, Any]:
        """Return the deployment as plain data, without the password and the site file."""
        plain = asdict(self)
        del plain["admin_password"], plain["file"]
        return plain | {"seconds": self.seconds, "changes": self.changes}


class DeployListener:
    """Hears how a deploy goes on: phases, long steps and the tasks of playbooks. This one keeps silent."""

    def phase(self, name: str) -> None:
        """Take note that a phase begins on the controller."""

    def progress(self, step: str, done: int = 0, total: int = 0) -> None:
        """Take note of the state of a long step."""

    def event(self, event: playbook.Event) -> None:
        """Take note of a task on a node."""


def deploy(
    site: Site,
    bundle: Path | None,
    listener: DeployListener,
    *,
    file: str,
    limit: Sequence[str] | None = None,
    spoken: Spoken = Spoken(),  # noqa: B008 - frozen
    renewal: Callable[[], None] | None = None,
    state: Path = STATE,
    root: Path = ROOT,
) -> Deployment:
    """Install a site from a bundle; nodes are changed only after bundle and nodes were found good.

    Without the folder of one it is the product's that the reservoir holds.

    `file` is the text of the site file, which is kept for backups and goes into them. `spoken` says whose bundles to
    trust, where the site does not know that yet.

    Of the workers it goes to those in `limit`, if there is one, and leaves out which are down or fail.

    As a `renewal` it makes nothing but certificates of nodes, and leaves out any number of workers. That function is
    called before anything changes, and when no other deploy can run; it raises an error where this one may not.
    """
    plan = waves.plan(site, limit, all_may_fail=renewal is not None)
    require_controller(site)
    identity, listed = product.listed(bundle, root)
    product.require_installed(listed, bundle)
    done = Deployment(site.name, listed.version, identity, f"{datetime.now(UTC):%FT%TZ}")
    done.renewal = renewal is not None
    done.workers = [node.name for node in site.with_role(NodeRole.WORKER)]
    clock = _Clock(done.phases, listener.phase)
    with alone(state) as held:
        run = partial(playbook.run, state=state, listen=listener.event, held=held)
        try:
            if renewal:
                renewal()
            require_releases(site, listed)
            if not renewal:
                edge_certificate.require(site, state)
            # before anything changes, and before their certificates are revoked
            engine_change.require_idle(site, state, run)
            done.left = departure.close(site, state, run)
            with clock("bundle"):
                published = _publish(bundle, root, spoken, listener.progress, done)
                bundles = list(served.bundles(Store(root)).values())
                driver_bundles.require(site, bundles)
                optional_bundles.require(site, bundles, settings.ansible_root() / "roles")
            with clock("identity"):
                if renewal:
                    certify(site, state, done)
                else:
                    identify(site, state, done)
                    files.write(state / inventory.SITE_FILE, file, 0o600)
            done.installs = deploy_records.installs(file, published, state / "pki" / "ca.crt")
            done.schema = newest_step(Store(root).blobs / product.own(listed).sha256)
            hosts = inventory.build(site, version=product.own(listed).version, state=str(state), root=str(root))
            rollout = Rollout(plan, hosts, run, done.add, done.left_out, done.reached)
            with clock("preflight"):
                asked = preflight.with_questions(hosts, site, bundles, settings.ansible_root() / "roles")
                table = partial(preflight.table, site, listed)
                seen = rollout.preflight(asked, lambda published: preflight.unfit(table(published)))
            _back_up(Backups(site, listener.event, places=Places(state, root)), done, held, clock)
            done.engine = str(site.engine)
            rollout.install()
            done.ok = True
            if not renewal:
                done.expected = expected_gpus.found(site, done.reached, seen, hosts, run)
                done.file = _with_expected(file, done, published, state)
        finally:
            deploy_records.keep(done.json(), state)
    return done


def revoke(site: Site, node: str, *, state: Path = STATE) -> None:
    """Revoke the certificate of a node; the next deploy makes another one, and tells all nodes."""
    require_controller(site)
    with alone(state):
        pki.revoke(state / "pki", node)


def require_controller(site: Site) -> None:
    """Raise ConflictError where this machine is not the site's reservoir node."""
    address = str(site.reservoir.address)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        raise ConflictError(
            f"this machine does not have the address {address} of the reservoir node {site.reservoir.name}",
            where="nodes",
            hint=f"run the command on {site.reservoir.name}, or correct its address in the site file",
        ) from error


class _Clock:
    """Notes how many seconds each phase took."""

    def __init__(self, seconds: dict[str, float], tell: Callable[[str], None]) -> None:
        self._seconds = seconds
        self._tell = tell

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._tell(phase)
        begin = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = round(time.monotonic() - begin, 2)


def _import(bundle: Path, root: Path, spoken: Spoken, progress: Progress) -> Imported:
    return take(bundle, root, key=spoken.key, trust_first=spoken.first, replace_key=spoken.replace, progress=progress)


def _publish(bundle: Path | None, root: Path, spoken: Spoken, progress: Progress, done: Deployment) -> list[str]:
    """Import and publish; returns the bundles that are served from now on."""
    imported = Imported(done.bundle, changed=False) if bundle is None else _import(bundle, root, spoken, progress)
    if imported.identity != done.bundle:
        reason = f"the medium showed {done.bundle} before, and {imported.identity} now"
        raise IntegrityError(reason, where=str(bundle), hint=bundles.HINT)
    if imported.trust:
        progress(f"{imported.identity} is signed by {imported.trust.fingerprint}, {imported.trust.words}")
    if not imported.complete:
        lacking = ", ".join(str(number) for number in sorted(imported.missing + imported.damaged))
        raise ConflictError(
            f"the bundle is not complete: medium {lacking} of {imported.media} is missing",
            where=str(bundle),
            hint="import the other media with `penstock reservoir import`, then deploy again",
        )
    # what an administrator went back to stays, unless this deploy brought something new, and mended nothing only
    published = publish(root, progress=progress, unattended=not imported.new)
    if mine := [problem for problem in published.left_out if problem.where.startswith(f"{imported.identity}: ")]:
        raise ConflictError.of(mine)
    for problem in published.left_out:
        progress(f"left out of the publication: {problem}")
    served.require(Store(root), imported.identity, published.bundles, bundle)
    for each in served.bundles(Store(root)).values():
        if warning := expiry.warning(each, datetime.now(UTC)):
            progress(f"warning: {warning}")
    done.rolled_back = published.number if published.rolled_back else 0
    if imported.changed:
        done.changed.append("bundle imported")
    if published.changed:
        done.changed.append("publication made")
    return published.bundles


def _with_expected(file: str, done: Deployment, bundles: list[str], state: Path) -> str:
    """Return the site file with the GPUs that are expected from now on, and take it for what was deployed."""
    if not done.expected:
        return file
    try:
        file = site_file_edit.with_gpus(file, "site file", done.expected)
    except InputError:
        done.expected = {}  # it has a form that people have to change; `site verify` tells of it
        return file
    files.write(state / inventory.SITE_FILE, file, 0o600)
    done.installs = deploy_records.installs(file, bundles, state / "pki" / "ca.crt")
    return file


def certify(site: Site, state: Path, done: Deployment) -> None:
    """Make or renew the CA and the certificates of the nodes."""
    if pki.issue(site, state / "pki"):
        done.changed.append("certificates issued")


def identify(site: Site, state: Path, done: Deployment) -> None:
    """Make what the site is known by: its CA, the certificates of its nodes, the passwords of its administrators."""
    certify(site, state, done)
    path = state / PASSWORD_FILE
    if not path.is_file():
        done.admin_password = new_password()
        files.write(path, done.admin_password + "\n", 0o600)
        done.changed.append("administrator's password made")
    if edge_certificate.keep(site, state):
        done.changed.append("certificate of the company's own authority")
    # nobody types this one: commands of the administrator read it from here
    if not (state / INDEX_PASSWORD_FILE).is_file():
        files.write(state / INDEX_PASSWORD_FILE, new_password() + "\n", 0o600)
        done.changed.append("password of the package index made")
    if not (state / AUDIT_KEY_FILE).is_file():
        files.write(state / AUDIT_KEY_FILE, secrets.token_hex(32) + "\n", 0o600)
        done.changed.append("key of the audit log made")
    if site.backup.wal_to and not (state / WAL_KEY_FILE).is_file():
        files.write(state / WAL_KEY_FILE, secrets.token_hex(32) + "\n", 0o600)
        done.changed.append("key of the archive of the database's log made")
    if site.engine is Engine.SLURM and not (state / MUNGE_KEY_FILE).is_file():
        files.write(state / MUNGE_KEY_FILE, secrets.token_hex(64) + "\n", 0o600)
        done.changed.append("key of Slurm made")


def is_controller(state: Path = STATE) -> bool:
    """Return whether this is the controller of a site, and the caller may read its state."""
    return os.access(state / inventory.SITE_FILE, os.R_OK)


def deployed_site(state: Path = STATE) -> Site:
    """Return the site as the last deploy knew it; raises UnavailableError where this machine has deployed none."""
    file = state / inventory.SITE_FILE
    try:
        return load(parse(file.read_text(encoding="utf-8"), str(file)))
    except OSError as error:
        raise UnavailableError(
            f"no site was deployed from this machine: {error.strerror}",
            where=str(file),
            hint="run it as root on the reservoir node, after `penstock site deploy`",
        ) from error


def new_password() -> str:
    """Return a random password of 79 bits that people can read out: letters and digits in groups of four."""
    while True:
        text = "@".join("".join(secrets.choice(READABLE) for _ in range(4)) for _ in range(4))
        if any(char.isdigit() for char in text) and any(char.isalpha() for char in text):
            return text


def _back_up(backups: Backups, done: Deployment, held: Alone, clock: _Clock) -> None:
    """Take a verified backup before the database is migrated."""
    if migrates(done.schema, deploy_records.read(backups.places.state)):
        with clock("backup"), suppress(NotFoundError):  # a master that is new has no database
            done.backup = backups.take(held).name


def require_releases(site: Site, bundle: Bundle) -> None:
    """Raise InputError that lists every node whose release the bundle does not serve."""
    served = sorted({target.release for target in bundle.targets if target.os == "debian"})
    problems = [
        Problem(
            f"nodes[{index}].release",
            f"{node.name} runs {node.release}, and the bundle is for {', '.join(served) or 'no Debian release'}",
            "correct the release, or build the bundle with a target for it",
        )
        for index, node in enumerate(site.nodes)
        if node.release not in served
    ]
    if problems:
        raise InputError.of(problems)
