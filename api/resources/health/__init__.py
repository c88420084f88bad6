"""Checks of nodes and of the site: their states, their history, and who is told of a change."""
