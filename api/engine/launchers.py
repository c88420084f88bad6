"""The choice of the launcher that lends the places of a site."""

from __future__ import annotations

from api.engine.launcher import DirectLauncher, Launcher
from api.engine.slurm.launcher import SlurmLauncher
from api.settings import Launching, Settings


def launcher_of(settings: Settings) -> Launcher:
    """Return the launcher that the settings name."""
    if settings.engine is Launching.SLURM:
        return SlurmLauncher(settings.slurm_partition, settings.slurm_conf, holder=settings.slurm_holder)
    return DirectLauncher()
