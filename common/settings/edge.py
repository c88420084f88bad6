"""Settings of the edge where people call: the part `edge` of `site.yml`. Pure."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from common.app_addresses import MAX_LABEL
from common.settings.options import PlainPath
from common.strict import StrictModel

MAX_APPS_NAME = 253 - 64
"""Characters of the name below which apps have their own: each puts a label and a dot before it."""

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

    apps_name: DnsName | None = Field(
        default=None,
        max_length=MAX_APPS_NAME,
        description="name below which each app of a session has one of its own, so that browsers keep them apart: "
        "`apps.gpu.example` where `*.apps.gpu.example` leads to the master; it needs `names`, and a "
        "`certificate_file` has to speak for the `*` as well",
    )

    @property
    def apps_wildcard(self) -> str | None:
        """The names of all apps as a certificate has them; None where apps have none of their own."""
        return f"*.{self.apps_name}" if self.apps_name else None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("`certificate_file` and `key_file` belong together")
        if self.certificate_file and not self.names:
            raise ValueError("a certificate is for `names`, and there are none")
        if self.apps_name:
            self._check_apps_name(self.apps_name)
        return self

    def _check_apps_name(self, name: str) -> None:
        """Refuse a name by which no browser finds an app, or whose apps would be sent to the console's own cookies."""
        if name.rpartition(".")[2].isdigit():
            raise ValueError(f"`apps_name` {name} is an address; write a DNS name such as apps.gpu.example")
        if any(len(label) > MAX_LABEL for label in name.split(".")):
            raise ValueError(f"`apps_name` {name} has a part of more than {MAX_LABEL} characters; write a shorter one")
        if not self.names:
            raise ValueError("`apps_name` needs `names`: from an app people are sent to the first one to sign in")
        if near := [each for each in self.names if f".{each}".endswith(f".{name}")]:
            raise ValueError(
                f"the console's name {near[0]} is `apps_name` {name} or below it, so apps could send it cookies;"
                " write another one such as apps.gpu.example"
            )
