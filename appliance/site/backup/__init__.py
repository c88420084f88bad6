"""Backups of a site: the database of its master, and what its controller alone has, sealed."""
