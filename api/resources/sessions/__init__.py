"""Sessions: containers with a GPU share."""
