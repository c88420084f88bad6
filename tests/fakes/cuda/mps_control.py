"""A fake `nvidia-cuda-mps-control`: with -f a daemon whose clients hang on its socket, else it says `quit` to one."""

from __future__ import annotations

import os
import selectors
import socket
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Be the daemon, or end it."""
    control = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "control")
    if arguments == ["-f"]:
        serve(control)
    elif "quit" in sys.stdin.read():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(control))
            client.sendall(b"quit")


def serve(control: Path) -> None:
    """Keep all clients until one says that it is over."""
    control.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
        listener.bind(str(control))
        listener.listen()
        selector.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    selector.register(listener.accept()[0], selectors.EVENT_READ)
                    continue
                assert isinstance(key.fileobj, socket.socket)
                said = key.fileobj.recv(64)
                if said == b"quit":
                    control.unlink(missing_ok=True)
                    return
                if not said:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def install(folder: Path) -> Path:
    """Put the program into a folder; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__)} "$@"\n')
    program.chmod(0o755)
    return program


if __name__ == "__main__":
    main(sys.argv[1:])
