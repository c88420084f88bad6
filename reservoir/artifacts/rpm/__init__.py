"""RPM packages: resolved by solv, published as a signed repository."""
