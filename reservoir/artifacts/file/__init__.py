"""Files: carried and served as they are."""
