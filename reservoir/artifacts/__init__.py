"""The kinds of artifacts: each one a package that resolves, fetches, publishes and describes its own."""
