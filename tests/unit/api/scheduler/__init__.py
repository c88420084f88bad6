"""The scheduler as a function."""
