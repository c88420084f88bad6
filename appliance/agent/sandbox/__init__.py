"""Sandboxes on a node: filters of system calls, and who listens to what they deny."""
