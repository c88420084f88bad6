"""Settings of the edge where people call: the part `edge` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from common.settings.options import PlainPath
from common.strict import StrictModel

DnsName = Annotated[
    str, Field(max_length=253, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$")
]


class EdgeSettings(StrictModel):
    """How much of the edge one caller may have. The server is nginx and knows none of it: the role tells it."""

    connections_per_address: int = Field(
        default=1024,
        ge=16,
        le=8192,
        description="most connections of one address to console, API and apps; raise it where many people share one",
    )
    names: list[DnsName] = Field(
        default=[],
        description="DNS names under which people reach the master, the first of which stands in addresses that the "
        "site tells; the site's own certificate has them, too",
    )
    certificate_file: PlainPath | None = Field(
        default=None,
        description="file on the reservoir node with a certificate of the company's own authority for these names, and "
        "its chain, in PEM; who calls by a name sees this one",
    )
    key_file: PlainPath | None = Field(default=None, description="file with its private key, without a passphrase")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("`certificate_file` and `key_file` belong together")
        if self.certificate_file and not self.names:
            raise ValueError("a certificate is for `names`, and there are none")
        return self
