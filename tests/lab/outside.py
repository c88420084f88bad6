"""A program that tries to leave the closed network, run inside its nodes and sessions."""

from __future__ import annotations

CONNECT = """
import errno, socket, sys, time
begin = time.monotonic()
try:
    socket.create_connection(("192.0.2.1", 443), 5)
except OSError as error:
    print(errno.errorcode.get(error.errno), time.monotonic() - begin)
"""
"""Prints why an address that only documents use cannot be reached, and after how many seconds that was known."""
