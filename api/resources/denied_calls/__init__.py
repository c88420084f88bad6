"""Denied calls: the system calls that sandboxes denied to sessions."""
