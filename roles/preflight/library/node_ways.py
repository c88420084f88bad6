#!/usr/bin/python3
"""Ways from this node to others, tried before there are services: it listens on their ports for a moment itself.

Who listens is a process without a parent. It ends when it is told to, or after a time; the kernel takes connections
for it, and it answers by UDP what this run asks. Every run has a name of its own, so that two do not end each other.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: node_ways
short_description: Try ports between nodes
description: Listens on ports for a moment, tries those of other nodes, or ends what listens; keeps nothing.
author: Penstock
options:
  step: {type: str, choices: [listen, try, end], required: true, description: What to do.}
  run: {type: str, required: true, description: Name of the run; it ends what it has started itself.}
  address: {type: str, default: "", description: Address to listen on.}
  ports: {type: list, elements: dict, default: [], description: Ports with `callers`; none whose file `unless` exists.}
  seconds: {type: int, default: 120, description: For how long to listen at most.}
  listens: {type: list, elements: str, default: [], description: "Ports that were listened on, as `tcp/443`."}
  ways: {type: list, elements: dict, default: [], description: "What to try: `address`, `port`, `protocol`, `key`."}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "step": {"type": "str", "choices": ["listen", "try", "end"], "required": True},
    "run": {"type": "str", "required": True},
    "address": {"type": "str", "default": ""},
    "ports": {"type": "list", "elements": "dict", "default": []},
    "seconds": {"type": "int", "default": 120},
    "listens": {"type": "list", "elements": "str", "default": []},
    "ways": {"type": "list", "elements": "dict", "default": []},
}
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
# by which another preflight knows it where it holds a port; the kernel keeps 15 letters
NAME = "penstock-ways"
# root's alone, as the folders of runs in it are: nobody else ends a run
PLACE = Path("/run")
QUEUE = 4096
# equally long, and an answer is no request: who forges a sender makes neither more of it nor two of these talk
ASKS, ANSWERS = b"penstock-ways? ", b"penstock-ways! "
LONGEST = 128
FIREWALL = "penstock_firewall"
# a small machine has no names of protocols
NUMBERS = {"tcp": 6, "udp": 17}
PATIENCE_S, TIMES = 1.0, 3
TOGETHER = 64
END_S = 5.0


def main() -> None:
    """Listen, try or end; return what it has found under names that begin with `penstock_`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    said = module.params
    if said["step"] == "listen":
        module.exit_json(changed=False, **listen(said["run"], said["address"], said["ports"], said["seconds"]))
    if said["step"] == "try":
        module.exit_json(changed=False, penstock_tried=tried(said["run"], said["ways"]))
    listened = still(said["address"], said["listens"])
    if not end(said["run"]):
        module.warn(f"what listens for preflight does not end yet; it does so by itself within {said['seconds']} s")
    module.exit_json(changed=False, penstock_listened=listened)


def listen(run: str, address: str, ports: list[dict[str, Any]], seconds: int) -> dict[str, Any]:
    """Start to listen on ports, and return those that answer, as `tcp/443`: these, and those that others hold.

    Where it cannot listen it says why, and that no port answers.
    """
    end(run)
    held, opened, listened = [], [], []
    for each in ports:
        if each.get("unless") and Path(each["unless"]).exists():
            continue
        protocol, port = each["protocol"], int(each["port"])
        listening, answers = opening(address, protocol, port)
        opened += [listening] if listening else []
        held += [f"{protocol}/{port}"] if answers else []
        listened += [each] if answers else []
    try:
        if opened:
            start(run, opened, seconds)
        let_in(listened, seconds)
    except OSError as error:
        return {"penstock_listens": [], "penstock_unheard": f"{folder(run)}: {error.strerror or error}"}
    return {"penstock_listens": held}


def let_in(listened: list[dict[str, Any]], seconds: int) -> None:
    """Let those through the node's own firewall, if it has one, who try its ports: this deploy opens what is new.

    The kernel forgets them after that time; of those that are there already it begins anew.
    """
    callers = [
        f"{address} . {NUMBERS[each['protocol']]} . {each['port']}" for each in listened for address in each["callers"]
    ]
    if not callers or not shutil.which("nft"):
        return
    known = f"element inet {FIREWALL} preflight {{ {', '.join(callers)} }}"
    anew = known.replace(",", f" timeout {seconds}s,").replace(" }", f" timeout {seconds}s }}")
    with suppress(OSError, subprocess.TimeoutExpired):
        batch = f"add {known}\ndelete {known}\nadd {anew}\n"
        subprocess.run(["nft", "--file", "-"], input=batch, text=True, capture_output=True, check=False, timeout=END_S)


def still(address: str, listens: list[str]) -> list[str]:
    """Return on which ports somebody listens still: another preflight that held one may have ended."""
    found = []
    for each in listens:
        protocol, _, port = each.partition("/")
        free, _ = opening(address, protocol, int(port))
        if free:
            free.close()
        else:
            found.append(each)
    return found


def folder(run: str) -> Path:
    """Return the folder of a run, which is root's alone and goes with it."""
    return PLACE / f"penstock-preflight-{run}"


def opening(address: str, protocol: str, port: int) -> tuple[socket.socket | None, bool]:
    """Return a socket on a port, if it can be had, and whether somebody answers there; of UDP no stranger does."""
    found = socket.socket(socket.AF_INET, KINDS[protocol])
    try:
        if protocol == "tcp":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((address, port))
        if protocol == "tcp":
            found.listen(QUEUE)
    except OSError as error:
        found.close()
        return None, error.errno == errno.EADDRINUSE and protocol == "tcp"
    return found, True


def start(run: str, opened: list[socket.socket], seconds: int) -> None:
    """Let a process of its own have the sockets; raises OSError where the run's folder is there already."""
    place = folder(run)
    place.mkdir(mode=0o700)
    control = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    control.bind(str(place / "control"))
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        for each in (control, *opened):
            each.close()
        return
    # whatever happens, nothing of the module's own end is done twice
    try:
        os.setsid()
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(nowhere, standard)
            with suppress(OSError):
                Path("/proc/self/comm").write_text(NAME)
            try:
                answer(run, control, opened, time.monotonic() + seconds)
            finally:
                for each in (*opened, control):
                    each.close()
                shutil.rmtree(place, ignore_errors=True)
    finally:
        os._exit(0)


def answer(run: str, control: socket.socket, opened: list[socket.socket], until: float) -> None:
    """Answer what the run asks by UDP, until somebody says that it is enough."""
    asks = request(run, b"")
    packets = [each for each in opened if each.type == socket.SOCK_DGRAM]
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([control, *packets], [], [], left)
        if control in ready:
            return
        for each in ready:
            with suppress(OSError):
                said, sender = each.recvfrom(LONGEST)
                if said.startswith(asks):
                    each.sendto(ANSWERS + said[len(ASKS) :], sender)


def request(run: str, word: bytes) -> bytes:
    """Return what a run asks by UDP; what it is answered has the same run and word."""
    return ASKS + run.encode() + b" " + word


def end(run: str) -> bool:
    """End who listens for a run, if anybody does; return whether nobody does any more."""
    until = time.monotonic() + END_S
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as control:
        control.setblocking(False)
        while time.monotonic() < until:
            try:
                control.sendto(b"end", str(folder(run) / "control"))
            except (FileNotFoundError, NotADirectoryError):
                return True
            except ConnectionRefusedError:
                # it was killed
                shutil.rmtree(folder(run), ignore_errors=True)
            except OSError:
                pass
            time.sleep(0.02)
    return False


def tried(run: str, ways: list[dict[str, Any]]) -> dict[str, str]:
    """Return by their keys why ways led nowhere; those that did not are empty."""
    with ThreadPoolExecutor(TOGETHER) as threads:
        said = threads.map(lambda way: reason(run, way["address"], int(way["port"]), way["protocol"]), ways)
        return dict(zip([way["key"] for way in ways], said, strict=True))


def reason(run: str, address: str, port: int, protocol: str) -> str:
    """Return why a port does not answer; nothing where it does."""
    asked = request(run, os.urandom(8))
    for _ in range(TIMES):
        try:
            with socket.socket(socket.AF_INET, KINDS[protocol]) as way:
                way.settimeout(PATIENCE_S)
                way.connect((address, port))
                if protocol == "udp":
                    way.send(asked)
                    if way.recv(LONGEST) != ANSWERS + asked[len(ASKS) :]:
                        return "what answers is not this preflight"
            return ""
        except TimeoutError:
            said = f"no answer within {PATIENCE_S * TIMES:.0f} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
    return said


if __name__ == "__main__":
    main()
