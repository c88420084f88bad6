"""Health of a site: the parts `health` and `alerts` of `site.yml`. Pure: no file, no network."""

from __future__ import annotations

from common.settings.health import AlertSettings, HealthKeeping, HealthSettings, ServedSettings
from common.settings.options import keys_without


class Health(ServedSettings, HealthSettings, HealthKeeping):
    """When checks warn and fail, and what follows from it."""

    model_config = keys_without("health_")


class Alerts(AlertSettings):
    """Who is told of a check that changes."""

    model_config = keys_without("alerts_")
