"""What locks and bundles say about their contents: artifacts, targets, tuples of versions. Pure: touches no file."""
