"""Debian packages: resolved by apt, published as a signed repository."""
