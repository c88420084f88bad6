"""`penstock site`: check a site file, install the site, judge it, and write its hand-over report."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.files import read_site, read_text, replace_text
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption, plain, print_json, print_table, show
from appliance.cli.reservoir.common import Key, ReplaceKey, Root, TrustFirst, public_key
from appliance.site.model import Site
from common.checks import Check, CheckState
from common.errors import InputError
from reservoir.settings import DEFAULT_ROOT

if TYPE_CHECKING:
    from appliance.site.deployment import Deployment
    from appliance.site.renewal import Renewal
    from appliance.site.rollout import Problems

app = group("The site: check, deploy, verify, report.")

SiteFile = Annotated[Path, typer.Option("--file", "-f", help="The site file, site.yml.")]


@app.command()
def check(file: SiteFile, output: FormatOption = Format.TABLE) -> None:
    """Check a site file without touching a node, and show its nodes."""
    site = read_site(file)
    if output is Format.JSON:
        print_json(site.model_dump(mode="json"))
        return
    _print_nodes(site)
    print(f"\n{site.name}: {len(site.nodes)} nodes, console {site.console_url}, API {site.api_url}")


@app.command()
def upgrade(
    bundle: Annotated[Path, typer.Argument(help="The folder of the bundle, or of its first medium.", metavar="BUNDLE")],
    *,
    key: Key = None,
    replace_key: ReplaceKey = False,
    allow_rollback: Annotated[
        bool, typer.Option("--allow-rollback", help="Install an older version than what is there.")
    ] = False,
    root: Root = DEFAULT_ROOT,
) -> None:
    """Install the version of a bundle, which this version checks by the key that it trusts; `deploy` comes next.

    Nothing of the bundle runs before that, not even its `install.sh`.
    """
    from appliance.site.upgrade import command

    words: list[str | Path] = ["--root", root]
    words += ["--key", key] if key else []
    words += [name for name, said in (("--replace-key", replace_key), ("--allow-rollback", allow_rollback)) if said]
    # it replaces the environment that this process runs from
    done = command(bundle, words)
    os.execv(done[0], done)  # noqa: S606 - a list of words, and no shell


@app.command()
def deploy(
    file: SiteFile,
    bundle: Annotated[
        Path | None, typer.Option(help="Folder of the bundle; default: the product's that the reservoir holds.")
    ] = None,
    *,
    rehearse: Annotated[
        bool, typer.Option("--check", help="Check bundle and nodes, and tell what was seen; change nothing.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Tell what would change on which node; change nothing.")] = False,
    limit: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="Only these workers, with commas; reservoir, master and storage always."),
    ] = None,
    key: Key = None,
    trust_first: TrustFirst = False,
    replace_key: ReplaceKey = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Install the site from a bundle. Runs on the reservoir node; a second run changes nothing.

    A worker that is down, unfit or fails is left out and named, with exit code 11; the next deploy catches it up.
    A plan ends with 12 where something would change, with 0 where nothing would.
    """
    from appliance.cli import plan_text
    from appliance.cli.progress import screen
    from appliance.site import commands, deployment, planning
    from appliance.site.rollout import require_all
    from reservoir.intake.trust import Spoken

    site = read_site(file)
    chosen = None if limit is None else limit.split(",")
    if rehearse and plan:
        raise InputError(
            "--check and --plan are two questions", where="--plan", hint="a plan checks bundle and nodes, too"
        )
    said = [
        name for name, said in (("--key", key), ("--trust-first", trust_first), ("--replace-key", replace_key)) if said
    ]
    _require_import(said, bundle, asked=rehearse or plan)
    if rehearse:
        looked: dict[str, Sequence[Check]] = {}
        try:
            with screen() as listener:
                unfit = planning.rehearse(site, bundle, listener, limit=chosen, tell=looked.update)
        finally:
            # also where a node that all need is unfit
            if looked:
                show(_plain(looked), output, lambda _: _print_preflight(looked))
        if output is Format.TABLE:
            print(f"{site.name}: bundle and nodes are fit{_without(unfit)}; nothing was changed")
        require_all(unfit)
        return
    if plan:
        with screen() as listener:
            told = planning.plan(site, bundle, listener, limit=chosen)
        show(told.json(), output, lambda _: plan_text.show(told))
        require_all(told.left_out)
        raise typer.Exit(planning.CHANGES if told.changes else 0)
    with commands.told("site deploy", _nodes(chosen)), screen() as listener:
        spoken = Spoken(public_key(key), trust_first, replace_key)
        text = read_text(file)
        done = deployment.deploy(site, bundle, listener, file=text, limit=chosen, spoken=spoken)
    if output is Format.JSON:
        print_json(done.json() | {"console": site.console_url, "api": site.api_url})
    else:
        _print_deployment(site, done)
    accept_gpus(file, text, done)
    require_all(done.left_out)


def _nodes(chosen: list[str] | None) -> str:
    """Return what a deploy is about, in the words of the audit log."""
    return f"nodes/{','.join(chosen)}" if chosen else "nodes"


def accept_gpus(file: Path, text: str, done: Deployment) -> None:
    """Write the GPUs that a deploy found into its site file, which had that text, and tell of them."""
    if not done.expected:
        return
    told = ", ".join(
        f"{gpus['count']} {gpus.get('model', '')}".rstrip() + f" of {name}" for name, gpus in done.expected.items()
    )
    try:
        replace_text(file, text, done.file)
    except (InputError, OSError) as error:
        # all is installed, and the next deploy writes them
        print(plain(f"GPUs     {told}: not written into the site file: {error}"), file=sys.stderr)
    else:
        print(plain(f"GPUs     {told}: from now on {file} expects them"), file=sys.stderr)


def _plain(looked: Mapping[str, Sequence[Check]]) -> dict[str, list[dict[str, str]]]:
    keys = ("id", "name", "state", "evidence", "hint")
    return {node: [{key: str(getattr(check, key)) for key in keys} for check in own] for node, own in looked.items()}


def _print_preflight(looked: Mapping[str, Sequence[Check]]) -> None:
    head = ("STATE", "NODE", "CHECK", "SEEN")
    rows = [
        (check.state.upper(), node, check.id, check.evidence or "-") for node, own in looked.items() for check in own
    ]
    print_table(head, rows, ("SEEN",))
    hints = {(check.id, check.hint) for own in looked.values() for check in own if check.state is CheckState.WARN}
    for identity, hint in sorted(hints):
        print(plain(f"{identity}: {hint}"))


def _require_import(said: list[str], bundle: Path | None, *, asked: bool) -> None:
    """Raise InputError where words about trust were `said` to a deploy that imports nothing, as one that `asked`."""
    if said and bundle is None:
        reason, hint = "without --bundle nothing is imported", "name the bundle with --bundle, or leave the option out"
    elif said and asked:
        reason = "--check and --plan import nothing, and go by the key that the site trusts"
        hint = "leave it out; `penstock reservoir verify BUNDLE --key KEY` checks a bundle by a key"
    else:
        return
    raise InputError(reason, where=", ".join(said), hint=hint)


def _print_deployment(site: Site, done: Deployment) -> None:
    from appliance.site import deployment

    print_table(("PHASE", "SECONDS"), [(phase, f"{seconds:7.1f}") for phase, seconds in done.phases.items()])
    print(f"\n{site.name} is deployed in {done.seconds:.1f} s, changed={done.changes}{_without(done.left_out)}")
    print(f"console  {site.console_url}\nAPI      {site.api_url}\nCA       {deployment.STATE / 'pki' / 'ca.crt'}")
    if done.rolled_back:
        what = f"publication {done.rolled_back}, which was gone back to; `penstock reservoir publish` ends that"
        print(f"serves   {what}")
    if done.backup:
        print(f"backup   {done.backup}, taken before the database was migrated to {done.schema}")
    for node, paths in done.kept.items():
        print(f"kept     {node}: {', '.join(paths)}, below {deployment.KEPT_FOLDER}")
    for name in done.left:
        print(f"left     {name}: it is closed and refused; `penstock node delete {name}` takes it off the list")
    if done.admin_password:
        print(f"login    admin / {done.admin_password}")
    else:
        print(f"login    admin; its first password is in {deployment.STATE / deployment.PASSWORD_FILE}")


def _without(left_out: Problems) -> str:
    return f", without {', '.join(left_out)}" if left_out else ""


@app.command()
def kubernetes(
    name: Annotated[str, typer.Argument(metavar="NODE", help="A node that stands for a Kubernetes cluster.")],
    file: SiteFile,
) -> None:
    """Print what the cluster's administrator applies (`| kubectl apply -f -`): account, rights, network."""
    import yaml

    from appliance.site.kubernetes_manifests import manifests

    print(yaml.safe_dump_all(manifests(read_site(file), name), sort_keys=False), end="")


@app.command()
def revoke(file: SiteFile, node: Annotated[str, typer.Argument(help="Node whose key somebody else may have.")]) -> None:
    """Revoke the certificate of a node that stays; the next deploy brings it another one, and the list to all nodes.

    A node that leaves the site is only taken out of its file: the next deploy revokes its certificate.
    """
    from appliance.site import commands, deployment

    site = read_site(file)
    with commands.told("site revoke", f"nodes/{node}"):
        deployment.revoke(site, node)
    print(f"{node}: its certificate is revoked; run `penstock site deploy` now, which tells all nodes")


@app.command()
def renew(output: FormatOption = Format.TABLE) -> None:
    """Renew the certificates of nodes that end within 60 days; a timer of the reservoir node runs it each day.

    It is a deploy of what is deployed, to the nodes that need it, and refuses where that would bring anything else.
    Workers that are down are tried again the next day, those with something else on them wait for a deploy.
    """
    from appliance.cli.progress import screen
    from appliance.site import commands, renewal
    from appliance.site.rollout import require_all

    with commands.told("site renew", "nodes") as told, screen() as listener:
        done = renewal.renew(listener)
        if not done.deploy:
            told.changed_nothing()
    show(done.json(), output, lambda _: _print_renewal(done))
    require_all(done.without)


def _print_renewal(done: Renewal) -> None:
    if done.deploy:
        renewed = ", ".join(done.due or done.waiting)
        print(f"renewed and brought to its node: {renewed}{_without(done.without)}")
        return
    if done.left_out:
        return
    name, end = min(done.ends.items(), key=lambda each: each[1])
    print(f"nothing to renew: the first certificate to end, that of {name}, counts until {end:%F}")


@app.command()
def uninstall(
    file: SiteFile,
    *,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge",
            help="Remove data, too: what the site is known by, reservoir, backups, database, audit log, journals, "
            "images, and all that lies in exported folders.",
        ),
    ] = False,
    leave: Annotated[
        str | None,
        typer.Option(metavar="NODES", help="Leave these nodes as they are, with commas: they do not answer."),
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would be removed from which node.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """End a site: its sessions, and all that Penstock brought to its nodes; runs on the reservoir node.

    It tells what it removes and asks first. Data stay, unless they are purged. Packages of the distribution stay, and
    so do services and files that were there before.
    """
    from appliance.cli.progress import screen
    from appliance.site import uninstall as end

    site, left = read_site(file), leave.split(",") if leave else []
    with screen() as listener:
        told = end.foreseen(site, listener.event, purge=purge, left=left)
    if plan:
        show(told, output, lambda _: _print_end(told))
        return
    if not yes:
        _print_end(told)
        lost = "its sessions, ITS DATA and itself" if purge else "its sessions and itself"
        typer.confirm(f"End {site.name}, {lost}?", abort=True, err=True)
    with screen() as listener:
        told = end.uninstall(site, listener.event, purge=purge, left=left)
    if output is Format.JSON:
        print_json(told)
        return
    print(f"{site.name}: Penstock is removed from {len(told)} nodes" + (f", without {', '.join(left)}" if left else ""))
    if not purge:
        print(f"kept: {end.DATA} on {site.reservoir.name}, and the data of the other nodes")


def _print_end(told: dict[str, list[str]]) -> None:
    for name, lines in told.items():
        print(f"{name}:" if lines else f"{name}: nothing")
        for line in lines:
            print(f"  {line}")


@app.command()
def verify(
    file: SiteFile,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run a real session with a volume on each worker, too; needs a login.")
    ] = False,
    smoke_wait_s: Annotated[
        int, typer.Option("--smoke-wait-s", min=1, help="How long the sessions of --smoke may take together.")
    ] = 180,
) -> None:
    """Ask every node, and print one JSON verdict.

    The exit code is 0 where everything is as it should be, warnings included, and 1 where a check fails or is unknown.
    """
    from appliance.cli import config
    from appliance.cli.progress import screen
    from appliance.cli.smoke import Smoke
    from appliance.site import verification

    site = read_site(file)
    trial = Smoke(config.load().client, smoke_wait_s) if smoke else None
    with screen() as listener:
        verdict = verification.verify(site, listen=listener.event, trial=trial)
    print_json(verdict.json())
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def report(
    file: SiteFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report.md and report.html.")],
) -> None:
    """Verify the site and write the hand-over report."""
    from appliance.cli.progress import screen
    from appliance.site import deploy_records, deployment, verification
    from appliance.site import report as reporting

    site = read_site(file)
    with screen() as listener:
        verdict = verification.verify(site, listen=listener.event)
    for path in reporting.write(site, verdict, deploy_records.read(deployment.STATE), output):
        print(path)


def _print_nodes(site: Site) -> None:
    print_table(
        ("NODE", "ADDRESS", "ROLES", "AGENT", "INFINIBAND", "GPUS"),
        [
            (
                node.name,
                str(node.address),
                " ".join(node.roles),
                str(node.agent_port or "-"),
                str(node.ib_address or "-"),
                f"{node.simulated_gpus.count} simulated" if node.simulated_gpus else "-",
            )
            for node in site.nodes
        ],
    )
