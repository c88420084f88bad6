"""Downloads, and the store of files by their hash that they go to."""
