#!/usr/bin/python3
"""Whether a node has the symptom of a known issue. It only looks; ladders act on what it says."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: symptom
short_description: Look whether a node has the symptom of a known issue
description: Looks at units, answers, lists and nodes, and waits a while until all is well; changes nothing.
author: Penstock
options:
  name: {type: str, required: true, description: What is looked for.}
  rung: {type: str, default: "", description: The rung that was climbed before; empty for the first look.}
  wait_s: {type: int, default: 0, description: How long to look again until all is well.}
  units: {type: list, elements: str, default: [], description: Units that must run.}
  answers: {type: dict, default: {}, description: "URLs by name that must answer, with an HTTP status of success."}
  listens: {type: dict, default: {}, description: "URLs by name that must answer, whatever they say."}
  lists: {type: dict, default: {}, description: "By name, a `command` and the lines that it has to print, `has`."}
  nodes_command: {type: list, elements: str, default: [], description: Command that prints the nodes of the API.}
  ready: {type: str, default: "", description: The node of these that must not be lost.}
  sessions: {type: bool, default: false, description: Whether to name the sessions that run on the node.}
  ca: {type: path, required: true, description: The site's CA.}
  certificate: {type: path, required: true, description: The certificate of this node.}
  key: {type: path, required: true, description: Its private key.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "required": True},
    "rung": {"type": "str", "default": ""},
    "wait_s": {"type": "int", "default": 0},
    "units": {"type": "list", "elements": "str", "default": []},
    "answers": {"type": "dict", "default": {}},
    "listens": {"type": "dict", "default": {}},
    "lists": {"type": "dict", "default": {}},
    "nodes_command": {"type": "list", "elements": "str", "default": []},
    "ready": {"type": "str", "default": ""},
    "sessions": {"type": "bool", "default": False},
    "ca": {"type": "path", "required": True},
    "certificate": {"type": "path", "required": True},
    "key": {"type": "path", "required": True, "no_log": False},
}
WAIT_S = 4
"""How long one answer may take."""
STEP_S = 0.5
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json"
)
LABEL = '{{.Label "io.penstock.session-name"}} of {{.Label "io.penstock.user"}}'


def main() -> None:
    """Look until all is well or the time is over, and return `penstock_symptom`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params

    def run(command: list[str]) -> tuple[int, str]:
        code, out, err = module.run_command(["timeout", "20", *command], cwd="/")
        return code, out if code == 0 else (err or out).strip()

    begin = time.monotonic()
    while True:
        problems = look(options, run)
        waited = time.monotonic() - begin
        if not problems or waited > options["wait_s"]:
            break
        time.sleep(STEP_S)
    said = {
        "name": options["name"],
        "rung": options["rung"],
        "ok": not problems,
        "evidence": "; ".join(problems) or "all is well",
        "sessions": running_sessions(run) if options["sessions"] else [],
    }
    module.exit_json(changed=False, penstock_symptom=said)


def look(options: dict[str, Any], run: Callable[[list[str]], tuple[int, str]]) -> list[str]:
    """Return what is wrong."""
    return [
        *stopped(options["units"], run),
        *silent(options),
        *(problem for name, listed in options["lists"].items() for problem in missing(name, listed, run)),
        *lost(options, run),
    ]


def stopped(units: list[str], run: Callable[[list[str]], tuple[int, str]]) -> list[str]:
    """Return the units that do not run."""
    if not units:
        return []
    _, said = run(["systemctl", "show", "--property=ActiveState", "--value", *units])
    states = said.split()
    return [f"{unit} is {state}" for unit, state in zip(units, states, strict=False) if state != "active"]


def silent(options: dict[str, Any]) -> list[str]:
    """Return which URLs do not answer as they should."""
    asked = [
        (name, url, strict)
        for kind, strict in (("answers", True), ("listens", False))
        for name, url in options[kind].items()
    ]
    if not asked:
        return []
    trust = ssl.create_default_context(cafile=options["ca"])
    trust.load_cert_chain(options["certificate"], options["key"])
    with ThreadPoolExecutor(8) as threads:
        said = threads.map(lambda each: ask(each[1], trust, strict=each[2]), asked)
    return [f"{name}: {problem}" for (name, _, _), problem in zip(asked, said, strict=True) if problem]


def ask(url: str, trust: ssl.SSLContext, *, strict: bool) -> str:
    """Return what is wrong with an answer; what is not `strict` may have any status."""
    where = urlsplit(url)
    connection = http.client.HTTPSConnection(str(where.hostname), where.port or 443, timeout=WAIT_S, context=trust)
    try:
        connection.request("GET", where.path or "/", headers={"Accept": f"{MANIFESTS}, */*"})
        answer = connection.getresponse()
        answer.read()
    except TimeoutError:
        return f"no answer within {WAIT_S} s"
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
    finally:
        connection.close()
    return f"HTTP {answer.status} {answer.reason}" if strict and answer.status >= 300 else ""


def missing(name: str, listed: dict[str, Any], run: Callable[[list[str]], tuple[int, str]]) -> list[str]:
    """Return what a list does not have."""
    code, said = run(listed["command"])
    if code:
        return [f"{name}: {cause(code, said)}"]
    lines = set(said.split())
    absent = [each for each in listed["has"] if each not in lines]
    return [f"{name}: {', '.join(absent)} not there"] if absent else []


def lost(options: dict[str, Any], run: Callable[[list[str]], tuple[int, str]]) -> list[str]:
    """Return whether the API cannot list its nodes, or lists one as lost."""
    if not options["nodes_command"]:
        return []
    code, said = run(options["nodes_command"])
    if code:
        return [f"nodes: {cause(code, said)}"]
    wanted = options["ready"]
    states = {node["name"]: node["state"] for node in json.loads(said)}
    if wanted and states.get(wanted, "not listed") in ("lost", "not listed"):
        return [f"{wanted} is {states.get(wanted, 'not listed')}"]
    return []


def cause(code: int, said: str) -> str:
    """Return why a command failed, in one line; what is indented explains another line, or leads to one."""
    lines = (line for line in said.splitlines() if line.strip() and not line[0].isspace())
    return next((line.strip() for line in lines if not line.startswith("Traceback ")), f"code {code}")


def running_sessions(run: Callable[[list[str]], tuple[int, str]]) -> list[str] | None:
    """Return the sessions that have a container on this node, as NAME of USER; None where Docker is silent."""
    code, said = run(["docker", "ps", "--filter", "label=io.penstock.session", "--format", LABEL])
    return sorted(set(said.splitlines())) if code == 0 else None


if __name__ == "__main__":
    main()
