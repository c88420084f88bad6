"""The scheduler: which session runs where, as a pure function."""
