"""The lock: the complete closure of a manifest."""
