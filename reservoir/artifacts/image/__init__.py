"""Container images: built from packages or taken as they are, published as an OCI layout and to a registry."""
