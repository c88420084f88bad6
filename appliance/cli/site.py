"""`penstock site`: check a site file, install the site, judge it, and write its hand-over report."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from appliance.cli.files import read_site
from appliance.site import Site

app = typer.Typer(no_args_is_help=True, help="The site: check, deploy, verify, report.")


class Form(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


SiteFile = Annotated[Path, typer.Option("--file", "-f", help="The site file, site.yml.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="How to print it.")]


@app.command()
def check(file: SiteFile, output: Output = Form.TEXT) -> None:
    """Check a site file without touching a node, and show its nodes."""
    site = read_site(file)
    if output is Form.JSON:
        print(site.model_dump_json())
        return
    Console().print(_nodes(site))
    print(f"\n{site.name}: {len(site.nodes)} nodes, console {site.console_url}, API {site.api_url}")


@app.command()
def deploy(
    file: SiteFile,
    bundle: Annotated[Path, typer.Option(help="Folder of the bundle.")],
    rehearse: Annotated[bool, typer.Option("--check", help="Check bundle and nodes; change nothing.")] = False,
    output: Output = Form.TEXT,
) -> None:
    """Install the site from a bundle. Runs on the reservoir node; a second run changes nothing."""
    from appliance import deploy as deployment
    from appliance.cli.progress import screen

    site = read_site(file)
    if rehearse:
        with screen() as observer:
            deployment.rehearse(site, bundle, observer)
        print(f"{site.name}: bundle and {len(site.nodes)} nodes are fit; nothing was changed")
        return
    with screen() as observer:
        done = deployment.deploy(site, bundle, observer)
    if output is Form.JSON:
        print(json.dumps(done.json() | {"console": site.console_url, "api": site.api_url}))
        return
    table = Table("PHASE", "SECONDS", box=None, pad_edge=False)
    for phase, seconds in done.phases.items():
        table.add_row(phase, f"{seconds:8.1f}")
    Console().print(table)
    print(f"\n{site.name} is deployed in {done.seconds:.1f} s, changed={done.changes}")
    print(f"console  {site.console_url}\nAPI      {site.api_url}\nCA       {deployment.STATE / 'pki' / 'ca.crt'}")
    if done.admin_password:
        print(f"login    admin / {done.admin_password}")
    else:
        print(f"login    admin; its first password is in {deployment.STATE / deployment.PASSWORD_FILE}")


@app.command()
def verify(file: SiteFile) -> None:
    """Ask every node, and print one JSON verdict; the exit code is 0 where everything is as it should be, else 1."""
    from appliance import verify as verification
    from appliance.cli.progress import screen

    site = read_site(file)
    with screen() as observer:
        verdict = verification.verify(site, listen=observer.event)
    print(json.dumps(verdict.json(), indent=1))
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def report(
    file: SiteFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for report.md and report.html.")],
) -> None:
    """Verify the site and write the hand-over report."""
    from appliance import deploy as deployment
    from appliance import report as reporting
    from appliance import verify as verification
    from appliance.cli.progress import screen

    site = read_site(file)
    with screen() as observer:
        verdict = verification.verify(site, listen=observer.event)
    for path in reporting.write(site, verdict, deployment.records(), output):
        print(path)


def _nodes(site: Site) -> Table:
    table = Table("NODE", "ADDRESS", "ROLES", "AGENT", "INFINIBAND", "GPUS", box=None, pad_edge=False)
    for node in site.nodes:
        table.add_row(
            node.name,
            str(node.address),
            " ".join(node.roles),
            str(node.agent_port or "-"),
            str(node.ib_address or "-"),
            f"{node.simulated_gpus.count} simulated" if node.simulated_gpus else "-",
        )
    return table
