"""Settings of the server of users' own Python packages: the part `package_index` of `site.yml`. Pure."""

from __future__ import annotations

from pydantic import Field

from common.strict import StrictModel


class PackageIndexSettings(StrictModel):
    """What uploads may be. The server is not ours and knows none of it: the role tells it."""

    upload_limit_mib: int = Field(default=1024, ge=1, le=1024 * 1024, description="largest upload, in MiB")
    account_quota_mib: int = Field(
        default=20 * 1024,
        ge=1,
        le=1024 * 1024 * 1024,
        description="most that an account's uploads take, in MiB",
    )
