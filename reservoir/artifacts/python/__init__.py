"""Python packages: resolved by uv, published as a simple index."""
