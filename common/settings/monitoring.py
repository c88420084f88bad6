"""Settings of the optional monitoring: the part `monitoring` of `site.yml`. Pure."""

from __future__ import annotations

from pydantic import Field

from common.strict import StrictModel


class MonitoringSettings(StrictModel):
    """Prometheus and Alertmanager of Debian on the master, which a site may have."""

    enabled: bool = Field(
        default=False,
        description="install them on the master, from the bundle that `monitoring.yml` of the product describes",
    )
    keep_days: int = Field(default=15, ge=1, le=3650, description="for so many days Prometheus keeps what it has seen")
    disk_mib: int = Field(default=2048, ge=256, description="at most so much of the master's disk it takes, in MiB")
    webhook: str = Field(
        default="",
        pattern=r"^(https?://\S+)?$",
        description="where Alertmanager posts alerts, in its own form; mail goes where `alerts` says",
    )
