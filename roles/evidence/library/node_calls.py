#!/usr/bin/python3
"""What a node gets when it calls the services of its site as their users do. It only asks; others judge."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: node_calls
short_description: Call the services of a site from one of its nodes
description: Asks services for an answer, and the reservoir for an index, a wheel and an image; changes nothing.
author: Penstock
options:
  services: {type: dict, default: {}, description: URLs by the name of the service.}
  release: {type: str, default: "", description: URL of the signed index of packages; empty means not to fetch it.}
  index: {type: str, default: "", description: URL of a Python package in the index; empty means not to fetch it.}
  registry: {type: str, default: "", description: URL of the registry of images; empty means not to fetch from it.}
  ca: {type: path, required: true, description: The site's CA.}
  crl: {type: path, required: true, description: What it has revoked.}
  certificate: {type: path, required: true, description: The certificate of this node.}
  key: {type: path, required: true, description: Its private key.}
"""

OPTIONS: dict[str, dict[str, Any]] = {
    "services": {"type": "dict", "default": {}},
    "release": {"type": "str", "default": ""},
    "index": {"type": "str", "default": ""},
    "registry": {"type": "str", "default": ""},
    "ca": {"type": "path", "required": True},
    "crl": {"type": "path", "required": True},
    "certificate": {"type": "path", "required": True},
    "key": {"type": "path", "required": True, "no_log": False},
}
WAIT_S = 10
SIGNED = b"-----BEGIN PGP SIGNED MESSAGE-----"
MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def main() -> None:
    """Call all at once and return what came of it as `penstock_calls`."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    module.exit_json(changed=False, penstock_calls=call_all(module.params))


def call_all(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what came of each call by the name of the service.

    `ok` says whether it was answered, `detail` what was said, `until` when the certificate of who answered ends.
    """
    trust = context(options)
    fetches = {"release": fetch_release, "index": fetch_wheel, "registry": fetch_manifest}
    wanted = {name: (ask, url) for name, url in options["services"].items()}
    wanted |= {name: (fetch, options[name]) for name, fetch in fetches.items() if options[name]}
    with ThreadPoolExecutor(16) as threads:
        calls = {name: threads.submit(_try, do, url, trust) for name, (do, url) in wanted.items()}
        return {name: call.result() for name, call in calls.items()}


def context(options: dict[str, Any]) -> ssl.SSLContext:
    """Return whom this node trusts, and who it is."""
    trust = ssl.create_default_context(cafile=options["ca"])
    if Path(options["crl"]).is_file():
        trust.load_verify_locations(cafile=options["crl"])
        trust.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    trust.load_cert_chain(options["certificate"], options["key"])
    return trust


class Service:
    """A service by its URL; `until` is when the certificate ends that it has shown, in seconds since 1970."""

    def __init__(self, url: str, trust: ssl.SSLContext) -> None:
        self.until: int | None = None
        self._base, self._trust = url, trust

    def get(self, path: str = "", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Return the answer to a request for a path, which goes by no proxy."""
        where = urlsplit(urljoin(self._base, path))
        connection = http.client.HTTPSConnection(
            str(where.hostname), where.port or 443, timeout=WAIT_S, context=self._trust
        )
        try:
            connection.connect()
            shown = connection.sock.getpeercert()  # type: ignore[attr-defined]
            self.until = ssl.cert_time_to_seconds(shown["notAfter"])
            connection.request("GET", where.path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def fetch(self, path: str = "", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
        """Return an answer that has what was asked for; raises ValueError."""
        answer, body = self.get(path, **headers)
        if answer.status != 200:
            raise ValueError(f"{urljoin(self._base, path)}: HTTP {answer.status} {answer.reason}")
        return answer, body


def _try(do: Callable[[Service], str], url: str, trust: ssl.SSLContext) -> dict[str, Any]:
    service = Service(url, trust)
    try:
        said, ok = do(service), True
    except ssl.SSLCertVerificationError as error:
        said, ok = f"what answers has no certificate of the site that counts: {error.verify_message}", False
    except ssl.SSLError as error:
        said, ok = f"what answers speaks no TLS of the site: {error.reason or error}", False
    except TimeoutError:
        said, ok = f"no answer within {WAIT_S} s", False
    except (OSError, ValueError, http.client.HTTPException) as error:
        said, ok = getattr(error, "strerror", None) or str(error) or type(error).__name__, False
    return {"ok": ok, "detail": said, "until": service.until, "url": url}


def ask(service: Service) -> str:
    """Ask for an answer; a service that wants to know who calls has given one."""
    answer, _ = service.get()
    if answer.status >= 400 and answer.status != 401:
        raise ValueError(f"HTTP {answer.status} {answer.reason}")
    return f"HTTP {answer.status}"


def fetch_release(service: Service) -> str:
    """Fetch the signed index of packages, as apt does first."""
    _, body = service.fetch()
    if not body.startswith(SIGNED):
        raise ValueError("the index of packages is not signed")
    return f"{len(body)} bytes, signed"


def fetch_wheel(service: Service) -> str:
    """Fetch a wheel that the page of a Python package names, as pip does."""
    _, page = service.fetch()
    found = re.search(r'href="([^"#]+\.whl)#sha256=([0-9a-f]{64})"', page.decode())
    if not found:
        raise ValueError("the index has no wheel of this package")
    _, wheel = service.fetch(found[1])
    if hashlib.sha256(wheel).hexdigest() != found[2]:
        raise ValueError(f"{found[1]} is not what the index says")
    return f"{Path(found[1]).name}, {len(wheel)} bytes"


def fetch_manifest(service: Service) -> str:
    """Fetch the manifest of an image, as Docker does."""
    names = json.loads(service.fetch("/v2/_catalog?n=1")[1])["repositories"]
    if not names:
        raise ValueError("the registry has no image")
    tags = json.loads(service.fetch(f"/v2/{names[0]}/tags/list")[1])["tags"]
    if not tags:
        raise ValueError(f"{names[0]} has no tag")
    answer, manifest = service.fetch(f"/v2/{names[0]}/manifests/{tags[0]}", Accept=", ".join(MANIFESTS))
    digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
    if answer.getheader("Docker-Content-Digest") != digest:
        raise ValueError(f"{names[0]}:{tags[0]} is not what the registry says")
    return f"{names[0]}:{tags[0]}, {digest[:19]}"


if __name__ == "__main__":
    main()
