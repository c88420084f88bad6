"""Notices: what administrators tell everybody, in the console and on the command line."""
