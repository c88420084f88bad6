"""Reservoir: from a manifest to a signed bundle, and from a bundle to what a closed site serves."""
