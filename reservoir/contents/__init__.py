"""Contents of locks and bundles: artifacts, targets, version sets. Pure: touches no file."""
