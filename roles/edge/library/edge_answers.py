#!/usr/bin/python3
"""Whether the edge itself answers on its ports, and not another program that was there before it."""

from __future__ import annotations

import re
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: edge_answers
short_description: Wait until the edge answers on its ports
description: Waits until each port answers over HTTP with the certificate of this node, and fails with who has it else.
author: Penstock
options:
  ports: {type: list, elements: int, required: true, description: Ports of the edge.}
  certificate: {type: path, required: true, description: The certificate that it has to show.}
  ca: {type: path, required: true, description: The CA of the certificate.}
  wait_s: {type: int, default: 20, description: How long to wait for all of them, in seconds.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "ports": {"type": "list", "elements": "int", "required": True},
    "certificate": {"type": "path", "required": True},
    "ca": {"type": "path", "required": True},
    "wait_s": {"type": "int", "default": 20},
}
HINT = "stop what is not nginx, or choose another port in `ports` of the site file, then deploy again"
ANSWER_S = 5.0
STEP_S = 0.2


def main() -> None:
    """Wait for the answers, and fail with the ports that have none."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    options = module.params
    trust = ssl.create_default_context(cafile=options["ca"])
    own = ssl.PEM_cert_to_DER_cert(Path(options["certificate"]).read_text())
    end = time.monotonic() + options["wait_s"]
    silent = {port: why for port in options["ports"] if (why := wait(port, own, trust, end))}
    if silent:
        problems = [f"port {port}: {why}; {holder(port, module.run_command)}" for port, why in silent.items()]
        module.fail_json(msg=f"The edge does not answer: {'. '.join(problems)}. Hint: {HINT}.")
    module.exit_json(changed=False)


def wait(port: int, own: bytes, trust: ssl.SSLContext, end: float) -> str:
    """Return why a port does not answer as the edge by the moment `end`; empty where it does."""
    while why := ask(port, own, trust):
        if time.monotonic() > end:
            return why
        time.sleep(STEP_S)
    return ""


def ask(port: int, own: bytes, trust: ssl.SSLContext) -> str:
    """Return why a port does not answer as the edge now; empty where it does."""
    try:
        with (
            socket.create_connection(("127.0.0.1", port), ANSWER_S) as plain,
            trust.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            if connection.getpeercert(binary_form=True) != own:
                return "it shows another certificate than the node's"
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return "" if connection.recv(5) == b"HTTP/" else "it does not speak HTTP"
    except ssl.SSLCertVerificationError as error:
        return f"its certificate does not count: {error.verify_message}"
    except ssl.SSLError as error:
        return f"it does not speak TLS: {error.reason or error}"
    except OSError as error:
        return error.strerror or "no answer in time"


def holder(port: int, run: Callable[[list[str]], tuple[int, str, str]]) -> str:
    """Return who listens on a port."""
    words = ["ss", "--no-header", "--listening", "--tcp", "--numeric", "--processes", f"sport = :{port}"]
    found = dict.fromkeys(re.findall(r'"([^"]+)",pid=(\d+)', run(words)[1]))
    return f"{', '.join(f'{name} ({pid})' for name, pid in found)} listens there" if found else "nobody listens there"


if __name__ == "__main__":
    main()
