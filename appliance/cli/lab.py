"""`penstock lab`: rehearse a site in containers on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.files import read_site
from appliance.cli.options import group
from appliance.cli.output import Format, FormatOption, print_json, print_table
from appliance.site import lab, settings
from appliance.site.model import NAME, Site
from common.errors import InputError

app = group("Rehearse a site in containers: up, down, status.")

SiteFile = Annotated[Path, typer.Option("--file", "-f", help="The site file, site.yml.")]


@app.command()
def up(
    file: SiteFile,
    bundle: Annotated[Path | None, typer.Option(help="Folder of the bundle; mounted read-only in the lab.")] = None,
    image: Annotated[
        str | None, typer.Option(help="Node image in Docker, for all nodes; default: the bundle's.")
    ] = None,
    deploy: Annotated[bool, typer.Option(help="Install the site on the nodes.")] = True,
) -> None:
    """Start the nodes on a closed network and install the site on them; the exit code is that of the deploy."""
    site = read_site(file)
    if bundle is None and (deploy or image is None):
        raise InputError("no bundle is given", where="--bundle", hint="name the folder of a bundle with --bundle")
    releases = sorted({node.release for node in site.nodes})
    images: dict[str, str] = {release: image or lab.node_image(_given(bundle), release, _tell) for release in releases}
    lab.up(site, images=images, bundle=bundle, tell=_tell)
    if deploy:
        code = lab.install(site, file.read_text(), _tell)
        ca = lab.fetch_ca(site, _folder(site))
        print(f"from this machine:\n  penstock login {lab.by_address(site).api_url} --user admin --ca {ca}")
        raise typer.Exit(code)


@app.command()
def down(
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The site file of the lab.")] = None,
    name: Annotated[str | None, typer.Option(help="The name of the lab, where its site file is gone.")] = None,
) -> None:
    """Remove the containers, networks and volumes of a lab."""
    if (file is None) == (name is None):
        raise InputError("it is not clear which lab", where="-f", hint="give the site file, or --name")
    lab_name = _checked(name) if name else read_site(_given(file)).name
    lab.down(lab_name, _labs() / lab_name, _tell)


@app.command()
def status(
    file: SiteFile,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the nodes of a lab, their addresses and states, and where its services are."""
    site = read_site(file)
    found = lab.status(site, _folder(site))
    if output is Format.JSON:
        print_json(found.json())
        return
    print_table(
        ("NODE", "STATE", "ADDRESS", "ROLES", "CONTAINER"),
        [(node.name, node.state, node.address, " ".join(node.roles), node.container) for node in found.nodes],
    )
    print(f"\nconsole  {found.console}\nAPI      {found.api}\nCA       {found.ca or 'none before the first deploy'}")


def _checked(name: str) -> str:
    if re.fullmatch(NAME, name) is None:
        raise InputError(f"{name!r} is not the name of a lab", where="--name", hint="give the `name` of its site file")
    return name


def _given(path: Path | None) -> Path:
    if path is None:
        raise InputError("a path is missing", where="-f", hint="give it")
    return path


def _labs() -> Path:
    return settings.state_folder() / "labs"


def _folder(site: Site) -> Path:
    return _labs() / site.name


def _tell(line: str) -> None:
    print(line, flush=True)
