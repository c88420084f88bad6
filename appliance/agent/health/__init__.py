"""Health of a node: what is looked at, and what is told of it."""
