"""Accounting: how long sessions ran and what they held, by user, project and domain."""
