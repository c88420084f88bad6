"""Which session runs where: a pure function, and the loop that feeds it."""
