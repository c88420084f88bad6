"""Backups: the controller takes them, and administrators order them."""
