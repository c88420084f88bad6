"""Program of a watched service: `python -m common.watched --tls HOST:PORT -- PROGRAM ARGUMENT…`.

It becomes the program that it is to watch, so that systemd's signals reach that one; beforehand it leaves behind a
process that asks the program, and gives a sign of life for each answer. That process ends with the program.
"""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

from common.sd_notify import notify
from common.watched.settings import signs

OFTEN = 4
"""Questions in the time after which systemd ends a service without a sign of life."""

Ask = Callable[[float], None]
"""Asks within so many seconds; raises OSError where nobody answers."""


def main() -> None:
    """Start who asks, then become the program."""
    parser = argparse.ArgumentParser(prog="watched")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--tls", metavar="HOST:PORT", help="where it has to shake hands")
    how.add_argument("--http", metavar="SOCKET", help="where it has to answer a request")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    address, limit_s = signs()
    program = os.getpid()
    if address and limit_s and not os.fork():
        watch(_by_tls(options.tls) if options.tls else _by_http(options.http), address, limit_s / OFTEN, program)
        return
    os.execvp(options.command[0], options.command)  # noqa: S606 - the unit names the program


def watch(ask: Ask, address: str, every_s: float, program: int) -> None:
    """Ask again and again, and give a sign of life for each answer, until the program has ended."""
    while os.getppid() == program:
        with suppress(OSError):
            ask(every_s)
            notify(address, b"WATCHDOG=1")
        time.sleep(every_s)


def _by_tls(target: str) -> Ask:
    """Shake hands: who does so takes connections and works; no request leaves a line in a log."""
    host, _, port = target.rpartition(":")
    context = ssl.create_default_context()
    # it is asked whether it is there, and nothing is told to it
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def ask(within_s: float) -> None:
        with (
            socket.create_connection((host, int(port)), timeout=within_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            pass

    return ask


def _by_http(path: str) -> Ask:
    def ask(within_s: float) -> None:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(within_s)
            channel.connect(path)
            channel.sendall(b"HEAD /+api HTTP/1.0\r\nHost: localhost\r\n\r\n")
            if not channel.recv(64).startswith(b"HTTP/"):
                raise OSError("it does not answer as a server of HTTP")

    return ask


if __name__ == "__main__":
    main()
