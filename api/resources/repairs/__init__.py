"""Repairs: ladders that the controller climbs, ordered by administrators."""
