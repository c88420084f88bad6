"""The holder of a lease: what a step of Slurm runs on each of its nodes, `python -m appliance.agent.lease_holder`.

It tells the agent of its node, at a socket, which lease it holds, for as long as it runs. Told to end, it lets go, and
waits until the agent has ended the containers: so long Slurm gives the place to nobody else. It starts with each
session, and needs the standard library alone.
"""

from __future__ import annotations

import argparse
import signal
import socket
import time
from types import FrameType

SOCKET = "/run/penstock/leases/agent.sock"
ENDED = b"ended"
"""What the agent says when the containers have ended."""
PAUSE_S = 0.2


class Holder:
    """One lease, held over the connections of one agent after the other."""

    def __init__(self, lease: str, address: str) -> None:
        """Hold nothing yet."""
        self._lease = lease
        self._address = address
        self._connection: socket.socket | None = None
        self._was_held = False
        self._is_over = False

    def hold(self) -> None:
        """Return when the lease is to end, and its containers have ended."""
        signal.signal(signal.SIGTERM, self._let_go)
        # without an agent that was told of the lease there are no containers
        while not self._is_over or self._was_held:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                    connection.connect(self._address)
                    connection.sendall(f"{self._lease}\n".encode())
                    self._connection, self._was_held = connection, True
                    if self._is_over:
                        connection.shutdown(socket.SHUT_WR)
                    # an agent that ends itself says nothing
                    if connection.recv(len(ENDED)) == ENDED:
                        return
            except OSError:
                pass
            self._connection = None
            time.sleep(PAUSE_S)

    def _let_go(self, _: int, __: FrameType | None) -> None:
        self._is_over = True
        if self._connection:
            try:
                self._connection.shutdown(socket.SHUT_WR)
            except OSError:
                # the agent is away, and is told when it is back
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Holds a lease at the agent of this node.")
    parser.add_argument("lease")
    parser.add_argument("socket", nargs="?", default=SOCKET)
    told = parser.parse_args()
    Holder(told.lease, told.socket).hold()
