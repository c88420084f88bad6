"""Reconcilers: they bring the machines to what the database wants, and the database to what the machines say."""
