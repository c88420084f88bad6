"""Appliance: the site, its nodes, its lab, the node agent and the command line."""
