"""Domains: companies or faculties that share the cluster and do not see one another."""
