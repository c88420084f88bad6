"""A bundle: built from a manifest and its lock, described, signed, verified."""
