"""Settings of health that a site chooses: the part `health` of `site.yml`. Pure; times are in seconds."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from common.health import CLOSING
from common.settings.options import WORDS, AbsolutePath
from common.strict import StrictModel

Percent = Annotated[int, Field(ge=1, le=100)]
DAY = 24 * 3600


class CheckSettings(StrictModel):
    """When checks of any machine warn and fail, and how often they are made."""

    health_interval_s: float = Field(default=10, ge=1, le=3600, description="between two looks at the checks of a node")
    health_looks: int = Field(
        default=2, ge=1, le=100, description="so many looks in a row have to find a check worse before it is"
    )
    health_good_looks: int = Field(
        default=3, ge=1, le=100, description="so many have to find it better; one that flaps has to be well for longer"
    )
    health_disk_warn_percent: Percent = Field(
        default=85, description="a disk that is fuller warns; above `disk.stop_percent` it fails"
    )
    health_memory_warn_percent: Percent = Field(default=90, description="memory in use above which a node warns")
    health_memory_fail_percent: Percent = Field(default=97, description="memory in use above which it fails")
    health_certificate_warn_days: int = Field(default=30, ge=1, description="a certificate that ends sooner warns")
    health_certificate_fail_days: int = Field(default=7, ge=0, description="a certificate that ends sooner fails")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for warn, fail in (
            ("health_memory_warn_percent", "health_memory_fail_percent"),
            ("health_certificate_fail_days", "health_certificate_warn_days"),
        ):
            if getattr(self, warn) > getattr(self, fail):
                raise ValueError(f"{warn.removeprefix('health_')} is above {fail.removeprefix('health_')}")
        return self


class HealthSettings(CheckSettings):
    """When checks of a node warn and fail: those of its GPUs and links, too."""

    health_gpu_warn_c: int = Field(default=85, ge=1, le=150, description="a GPU that is hotter, in °C, warns")
    health_gpu_fail_c: int = Field(default=95, ge=1, le=150, description="a GPU that is hotter, in °C, fails")
    health_fabric_gbps: int = Field(
        default=0, ge=0, description="an InfiniBand link that is slower, in Gbit/s, fails; 0: any rate will do"
    )
    health_fabric_errors: int = Field(
        default=10, ge=0, description="an InfiniBand link with more errors than this from one look to the next warns"
    )

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if self.health_gpu_warn_c > self.health_gpu_fail_c:
            raise ValueError("gpu_warn_c is above gpu_fail_c")
        return self


class HealthKeeping(StrictModel):
    """What the control API makes of the checks: which of them close a node, and how long is kept what they were."""

    health_closes: Annotated[list[str], WORDS] = Field(
        default=list(CLOSING), description="checks that, while one of them fails, let a node take nothing new"
    )
    health_keep_s: float = Field(default=90 * DAY, gt=0, description="how long it is kept how checks have changed")


class ServedSettings(StrictModel):
    """When checks of what the reservoir serves warn."""

    health_bundle_warn_days: int = Field(
        default=30,
        ge=0,
        description="a bundle that its maker answers for no longer than this warns; after its end it fails",
    )


class AlertSettings(StrictModel):
    """Who is told of a check that changes: by a webhook, by mail, or both."""

    alerts_webhook: str | None = Field(
        default=None, pattern=r"^https?://\S+$", description="where each change of a check is posted as JSON"
    )
    alerts_webhook_ca: AbsolutePath | None = Field(
        default=None, description="file of the master with the authority of its certificate, PEM"
    )
    alerts_mail_server: str | None = Field(
        default=None, pattern=r"^[^\s:/]+(:[0-9]+)?$", description="`HOST` or `HOST:PORT` of the mail server"
    )
    alerts_mail_tls: bool = Field(default=True, description="speak to it with STARTTLS, never in clear")
    alerts_mail_ca: AbsolutePath | None = Field(
        default=None, description="file of the master with the authority of its certificate, PEM"
    )
    alerts_mail_from: str = Field(
        default="penstock@localhost", pattern=r"^[^\s@<>]+@[^\s@<>]+$", description="as whom mail is sent"
    )
    alerts_mail_to: Annotated[list[Annotated[str, Field(pattern=r"^[^\s@<>]+@[^\s@<>]+$")]], WORDS] = Field(
        default=[], description="who gets mail"
    )
    alerts_keep_s: float = Field(
        default=DAY, gt=0, description="for so long it is tried to tell of a change; then it is given up"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.alerts_mail_server) != bool(self.alerts_mail_to):
            raise ValueError("alerts_mail_server and alerts_mail_to go together")
        return self
