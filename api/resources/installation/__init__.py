"""The installation: what tells it from others that share something with it."""
