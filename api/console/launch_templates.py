"""Templates of sessions: what each fills in of the form to launch one, where the site has the image that it is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.resources.images import versions
from api.tables.images import Image


@dataclass(frozen=True)
class LaunchTemplate:
    """An app that people open in a browser: its own name, the image, its command ("" as that says), and its port."""

    name: str
    image: str
    command: str
    port: int


TEMPLATES = {
    "jupyter": LaunchTemplate("JupyterLab", "jupyter", "", 8888),
    "tensorboard": LaunchTemplate(
        "TensorBoard", "tensorboard", "tensorboard --bind_all --port 6006 --logdir /data", 6006
    ),
    "code-server": LaunchTemplate("VS Code", "code-server", "code-server --auth none --bind-addr 0.0.0.0:8080", 8080),
}
"""By the name in addresses. The edge asks who comes in, so that no app does."""


def offered(images: Iterable[Image]) -> Mapping[str, tuple[LaunchTemplate, str]]:
    """Return the templates that there are images for, each with the newest one as `name:tag`."""
    found = list(images)
    tags = {key: [image.tag for image in found if image.name == each.image] for key, each in TEMPLATES.items()}
    return {key: (TEMPLATES[key], f"{TEMPLATES[key].image}:{versions.newest(own)}") for key, own in tags.items() if own}
