"""Projects: a quota of GPUs and the members who share it."""
