"""The choice of the launcher that lends the places of a site."""

from __future__ import annotations

from api.engine.launcher import DirectLauncher, Launcher
from api.engine.slurm.launcher import Owner, SlurmLauncher
from api.settings import Launching, Settings


def launcher_of(settings: Settings, owner: Owner) -> Launcher:
    """Return the launcher that the settings name; `owner` tells the installation that asks it."""
    if settings.engine is Launching.SLURM:
        return SlurmLauncher(settings.slurm_partition, owner, settings.slurm_conf, holder=settings.slurm_holder)
    return DirectLauncher()
