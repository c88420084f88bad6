"""Images that sessions may use."""

from __future__ import annotations

from typing import Annotated

import typer

from appliance.cli import config, output, parse
from appliance.cli.options import complete_images, given, group
from appliance.cli.output import Format, FormatOption
from appliance.client.views import Image

app = group("Images that sessions may use.")

ImageArgument = Annotated[
    str, typer.Argument(metavar="NAME:TAG", help="What people write after `submit -i`.", autocompletion=complete_images)
]
OwnProject = Annotated[
    str | None, typer.Option("-p", "--project", help="Its project, where the image is not for all of them.")
]


@app.command("list")
def list_images(
    *,
    project: Annotated[str | None, typer.Option("-p", "--project", help="Only what this project may use.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the images that sessions may use: those for all projects, and those of your projects."""
    output.show(config.load().client.images.list(project), form, _table)


@app.command("create")
def create(
    image: ImageArgument,
    reference: Annotated[str, typer.Argument(metavar="REFERENCE", help="What the nodes' Docker pulls.")],
    *,
    projects: Annotated[
        list[str] | None,
        typer.Option("-p", "--project", metavar="NAME", help="Only for this project; repeat for more. Default: all."),
    ] = None,
    description: Annotated[str | None, typer.Option("--description", help="What the image is for.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Register an image; one for all projects takes an administrator. A node then tries whether it can be pulled."""
    name, tag = parse.image(image)
    options = given(projects=projects, description=description)
    made = config.load().client.images.create(name=name, tag=tag, reference=reference, **options)
    output.show(made, form, lambda _: print(f"Registered {image} for {_scope(made)}."))


@app.command("check")
def check(image: ImageArgument, *, project: OwnProject = None, form: FormatOption = Format.TABLE) -> None:
    """Let a node try once more to pull an image."""
    found = config.load().client.images.check(*parse.image(image), project=project)
    output.show(found, form, lambda _: print(f"{image}: {found['status']}"))


@app.command("delete")
def delete(image: ImageArgument, *, project: OwnProject = None) -> None:
    """Take an image off the list; sessions that use it go on."""
    config.load().client.images.delete(*parse.image(image), project=project)
    print(f"Deleted {image}.")


def _table(images: list[Image]) -> None:
    rows = [
        (
            f"{image['name']}:{image['tag']}",
            _scope(image),
            image["status"].capitalize(),
            image["reference"],
            output.age(image["created_at"]),
        )
        for image in images
    ]
    output.print_table(("IMAGE", "FOR", "STATUS", "REFERENCE", "CREATED"), rows)
    for image in images:
        if image["error"]:
            print(f"{image['name']}:{image['tag']} failed: {image['error']}")


def _scope(image: Image) -> str:
    return "all projects" if image["visibility"] == "global" else output.listed(image["projects"])
