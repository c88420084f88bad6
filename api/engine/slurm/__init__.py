"""Slurm as the launcher: one job for each attempt of a session, on the places that the scheduler chose."""
