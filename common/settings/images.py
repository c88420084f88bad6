"""Settings of images that a site chooses: the part `images` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from common.settings.options import WORDS
from common.strict import StrictModel

Registry = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$")]


class ImageSettings(StrictModel):
    """Where images may come from. Control API and agents have the same list, with the site's own registry in it."""

    registries: Annotated[tuple[Registry, ...], WORDS] = Field(
        default=(), description="registries, as HOST:PORT, that images may be pulled from beside the site's own"
    )
