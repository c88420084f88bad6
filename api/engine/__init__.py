"""Engines: what lies between a decision and the machines."""
