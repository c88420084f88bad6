"""Repairs of known issues, run on the controller of a site."""
