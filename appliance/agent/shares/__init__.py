"""GPU shares of a node while containers run: given, watched, and changed."""
