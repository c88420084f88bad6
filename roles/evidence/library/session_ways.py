#!/usr/bin/python3
"""Where connections from inside a container of this worker lead, and where those of the worker itself do."""

from __future__ import annotations

import contextlib
import json
import sys
import tarfile
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., tuple[int, str]]

DOCUMENTATION = r"""
module: session_ways
short_description: Try ways out of a container on a worker
description: >-
  Starts two containers on Docker's default network with this machine's own programs, lets one try to reach the other,
  the worker and other nodes, and removes them.
author: Penstock
options:
  ways: {type: list, elements: str, required: true, description: ADDRESS:PORT of what is tried.}
  own_port: {type: int, required: true, description: A port on which this machine listens at every address.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "ways": {"type": "list", "elements": "str", "required": True},
    "own_port": {"type": "int", "required": True},
}
PORT = 8765
WAIT_S = 20.0
LINK_SCOPE = "20"
BRIDGE_NAME = "com.docker.network.bridge.name"
LISTEN = f"""
import socket
server = socket.create_server(("::", {PORT}), family=socket.AF_INET6, dualstack_ipv6=True)
links = [line.split() for line in open("/proc/net/if_inet6")]
print(*[words[0] for words in links if words[3] == "20" and words[5] != "lo"], "ready", flush=True)
while True:
    server.accept()[0].close()
"""
"""Listens, and says the link-local addresses of its machine in hexadecimal."""
TRY = """
import concurrent.futures, json, socket, sys
def reach(way):
    host, _, port = way.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), 3).close()
        return ""
    except OSError as error:
        return error.strerror or "timed out"
with concurrent.futures.ThreadPoolExecutor(32) as threads:
    print(json.dumps(dict(zip(sys.argv[1:], threads.map(reach, sys.argv[1:])))))
"""
"""Prints what comes of connections; nothing where they succeed."""
LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def main() -> None:
    """Try the ways and return what came of them as `penstock_session_ways`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)

    def run(*command: str) -> tuple[int, str]:
        try:
            code, out, err = module.run_command(list(command), handle_exceptions=False, cwd="/")
        except OSError as error:
            return 127, str(error)
        return code, (out if code == 0 else out + err).strip()

    module.exit_json(changed=False, penstock_session_ways=look(module.params, run))


def look(options: dict[str, Any], run: Run) -> dict[str, Any]:
    """Return what a container reaches: `tried` has for each way what the container and this machine are told.

    Empty words mean that the way leads there. `detail` says why nothing could be tried.
    """
    with _image(run) as image, _neighbour(image, run) as (network, links, why):
        if why:
            return {"tried": {}, "detail": why}
        bridge = json.loads(run("docker", "network", "inspect", "bridge")[1])[0]["Options"][BRIDGE_NAME]
        own = [_address(words[0]) for words in _interfaces() if words[3] == LINK_SCOPE and words[5] == bridge]
        port = options["own_port"]
        plain = [*options["ways"], f"{network['IPAddress']}:{PORT}", f"{network['Gateway']}:{port}"]
        # a link-local address is one of an interface, whose name is another one on either side
        linked = [*((link, PORT) for link in links), *((link, port) for link in own)]
        inside = [*plain, *(f"[{link}%eth0]:{number}" for link, number in linked)]
        here = [*plain, *(f"[{link}%{bridge}]:{number}" for link, number in linked)]
        code, told = run(*_container(image), "python3", "-I", "-c", TRY, *inside)
        if code:
            return {"tried": {}, "detail": told}
        container, node = json.loads(told), json.loads(run(sys.executable, "-I", "-c", TRY, *here)[1])
        pairs = zip(inside, here, strict=True)
        return {"tried": {way: {"container": container[way], "node": node[same]} for way, same in pairs}, "detail": ""}


def _container(image: str, *options: str) -> tuple[str, ...]:
    """Return the command of a container that has this machine's programs and no rights."""
    limits = ("--rm", "--network", "bridge", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    return ("docker", "run", *limits, "--user", "65534:65534", "--volume", "/usr:/usr:ro", *options, image)


@contextlib.contextmanager
def _image(run: Run) -> Iterator[str]:
    """Give an image that has nothing in it but the links into /usr."""
    name = f"penstock-verify:{uuid.uuid4().hex[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "image.tar")
        with tarfile.open(path, "w") as archive:
            for link, target in LINKS.items():
                entry = tarfile.TarInfo(link)
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                archive.addfile(entry)
        run("docker", "import", str(path), name)
    try:
        yield name
    finally:
        run("docker", "image", "rm", "--force", name)


@contextlib.contextmanager
def _neighbour(image: str, run: Run) -> Iterator[tuple[dict[str, Any], list[str], str]]:
    """Give another container that listens: where it is, its link-local addresses, or why there is none."""
    name = image.replace(":", "-")
    code, said = run(*_container(image, "--detach", "--name", name), "python3", "-I", "-c", LISTEN)
    try:
        if code:
            yield {}, [], said
            return
        deadline = time.monotonic() + WAIT_S
        while "ready" not in (said := run("docker", "logs", name)[1]) and time.monotonic() < deadline:
            time.sleep(0.2)
        found = json.loads(run("docker", "inspect", name)[1] or "[]")
        if "ready" not in said or not found:
            yield {}, [], f"a container does not start to listen: {said}"
            return
        yield found[0]["NetworkSettings"]["Networks"]["bridge"], [*map(_address, said.split()[:-1])], ""
    finally:
        run("docker", "rm", "--force", name)


def _interfaces() -> list[list[str]]:
    try:
        return [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    except OSError:
        return []


def _address(digits: str) -> str:
    return ":".join(digits[start : start + 4] for start in range(0, 32, 4))


if __name__ == "__main__":
    main()
