"""Images that sessions may use."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output
from appliance.cli.output import Format, FormatOption
from appliance.client import Image, segment
from reservoir.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Images that sessions may use.")

ImageArgument = Annotated[str, typer.Argument(metavar="NAME:TAG", help="What people write after `submit -i`.")]


@app.command("list")
def list_images(form: FormatOption = Format.TABLE) -> None:
    """List the images."""
    images: list[Image] = config.load().client.get("/images")
    if form is Format.JSON:
        output.print_json(images)
        return
    rows = [
        (f"{image['name']}:{image['tag']}", image["reference"], output.age(image["created_at"])) for image in images
    ]
    output.print_table(("IMAGE", "REFERENCE", "CREATED"), rows)


@app.command("create")
def create(
    image: ImageArgument,
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="What the nodes' Docker pulls.")],
) -> None:
    """Register an image (administrators)."""
    name, tag = _parse(image)
    config.load().client.call("POST", "/images", {"name": name, "tag": tag, "reference": reference})
    print(f"Registered {image}.")


@app.command("delete")
def delete(image: ImageArgument) -> None:
    """Take an image off the list (administrators); sessions that use it go on."""
    name, tag = _parse(image)
    config.load().client.call("DELETE", f"/images/{segment(f'{name}:{tag}')}")
    print(f"Deleted {image}.")


def _parse(image: str) -> tuple[str, str]:
    name, colon, tag = image.partition(":")
    if name and colon and tag:
        return name, tag
    raise InputError(f"{image!r} is not a name with a tag", where="NAME:TAG", cure="write it like python:3.11")
