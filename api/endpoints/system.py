"""The API itself: whether it is well, and the settings that clients need."""

from __future__ import annotations

from importlib.metadata import version

from api.auth.policy import Action
from api.endpoints.access import SettingsOf, action, public
from api.endpoints.outages import WriteCheckOf
from api.endpoints.routes import Router
from api.resources.schemas import View
from common.gpu.share import MAX_GPUS, MILLI

VERSION = version("penstock")
health = Router(tags=["system"])
router = Router(tags=["system"])


class HealthView(View):
    """The API answers, and its database answers and can write."""

    status: str = "healthy"
    version: str = VERSION


class SettingsView(View):
    """How GPUs are divided here, in milli-GPU."""

    version: str = VERSION
    fgpu_per_gpu: int
    steps_per_fgpu: int
    fgpu_milli: int
    step_milli: int
    largest_milli: int


@health.get("/health")
@public
async def show_health(check: WriteCheckOf) -> HealthView:
    """Answer 200 while the API works and its database can write, else 503 with the reason, within a few seconds."""
    await check.run()
    return HealthView()


@router.get("/settings")
@action(Action.SETTINGS_READ)
async def show_settings(settings: SettingsOf) -> SettingsView:
    """Show the granularity of shares, and the largest share that a container may ask for."""
    granularity = settings.granularity
    return SettingsView(
        fgpu_per_gpu=granularity.fgpu_per_gpu,
        steps_per_fgpu=granularity.steps_per_fgpu,
        fgpu_milli=granularity.fgpu_milli,
        step_milli=granularity.step_milli,
        largest_milli=MAX_GPUS * MILLI,
    )
