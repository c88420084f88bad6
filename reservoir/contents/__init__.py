"""What locks and bundles say about their contents: artifacts, targets, version sets. Pure: touches no file."""
