"""List queries: long lists as people see them, asked for often and read by few statements."""
