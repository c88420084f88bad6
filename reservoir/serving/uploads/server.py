"""The server of users' own packages, seen by an administrator: its indexes, its accounts, what was uploaded."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from common.errors import ConflictError, InputError, NotFoundError, UnauthenticatedError, UnavailableError
from reservoir.serving.uploads.names import Names, normal

ADMIN = "root"
OWNER = "site"
FROZEN = "site/frozen"
INDEX = "site/dev"
TIMEOUT = 30
# the name stands in addresses: with more in it, it would be that of an index
ACCOUNT = re.compile(r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?")


class Server:
    """devpi-server behind a socket of this machine; `password` is the one of its administrator."""

    def __init__(self, http: httpx.Client) -> None:
        """Use a client that knows address and password."""
        self.http = http

    def prepare(self, simple: str) -> bool:
        """Make the indexes, whose base is the simple index at the URL `simple`; return whether anything changed."""
        changed = False
        if OWNER not in self._get("/"):
            # nobody needs the password: the administrator changes what this user owns
            self._send("PUT", f"/{OWNER}", {"password": secrets.token_urlsafe(24)})
            changed = True
        frozen = {
            "type": "mirror",
            "mirror_url": simple,
            "mirror_use_external_urls": True,
            # a new publication counts at once; the way to it is short
            "mirror_cache_expiry": 0,
            # it asks for each project: its list of names is incomplete after an answer "not modified"
            "mirror_no_project_list": True,
            "title": "What the reservoir publishes",
        }
        own = {
            "type": "site",
            "bases": [FROZEN],
            # the plugin decides what an upload may hide, and lets both be seen where that is allowed
            "mirror_whitelist": ["*"],
            "acl_upload": [":AUTHENTICATED:"],
            "volatile": False,
            "title": "What users upload, on top of what the reservoir publishes",
        }
        for name, wanted in ((FROZEN, frozen), (INDEX, own)):
            known = self._get(f"/{OWNER}").get("indexes", {})
            present = known.get(name.partition("/")[2])
            if present is None:
                self._send("PUT", f"/{name}", wanted)
                changed = True
            elif any(present.get(key) != value for key, value in wanted.items()):
                self._send("PATCH", f"/{name}", wanted)
                changed = True
        return changed

    def indexes(self) -> dict[str, str]:
        """Return the indexes, and where each that is a mirror takes its packages from."""
        return {
            f"{user}/{name}": index.get("mirror_url", "")
            for user, known in self._get("/").items()
            for name, index in known.get("indexes", {}).items()
        }

    def accounts(self) -> list[str]:
        """Return the names of those who may upload."""
        return sorted(name for name in self._get("/") if name not in (ADMIN, OWNER))

    def uploaded(self) -> list[str]:
        """Return the names of the packages that were uploaded."""
        return sorted(self._get(f"/{INDEX}").get("projects", []))

    def first_uploader(self, name: str) -> str:
        """Return the account that was the first with a name; empty where nothing of that name was uploaded."""
        return _first(self._brought(name)) if name in self.uploaded() else ""

    def uploaders(self, name: str) -> set[str]:
        """Return the accounts that files of a name came from."""
        return {str(line["who"]) for line in self._brought(name)} if name in self.uploaded() else set()

    def belongings(self, account: str, names: Names) -> list[str]:
        """Return the names that belong to an account of this name, also to one that was removed."""
        first = [
            name
            for name in self.uploaded()
            if not names.owners(name) and _first(self._brought(normal(name))) == account
        ]
        return sorted({*first, *names.given_to(account)})

    def _brought(self, name: str) -> list[dict[str, Any]]:
        """Return by whom and when the files of a name came."""
        versions = self._get(f"/{INDEX}/{name}")
        links = [link for version in versions.values() for link in version.get("+links", [])]
        return [line for link in links for line in link.get("log", []) if line["what"] in ("upload", "push")]

    def add_account(self, name: str) -> str:
        """Make an account and return its password.

        Raises InputError for what cannot be a name, ConflictError where there is an account of that name.
        """
        if ACCOUNT.fullmatch(name) is None:
            raise InputError(
                "is not a name for an account", where=name, hint="use small letters, digits, and - _ . between them"
            )
        if name in self._get("/"):
            raise ConflictError(
                "there is an account of this name",
                where=name,
                hint="choose another name, or remove the account first",
            )
        # hexadecimal: what begins with "-" would be an option on the command lines it is pasted into
        password = secrets.token_hex(16)
        self._send("PUT", f"/{name}", {"password": password})
        return password

    def remove_account(self, name: str) -> None:
        """Remove an account; what it uploaded stays. Raises NotFoundError where there is none."""
        if name not in self.accounts():
            raise NotFoundError(
                "there is no such account", where=name, hint="look at `penstock reservoir uploads list`"
            )
        self._send("DELETE", f"/{name}")

    def _get(self, path: str) -> dict[str, Any]:
        return self._send("GET", path)

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self.http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise UnavailableError(
                f"the server of uploads does not answer: {error}",
                where=path,
                hint="look at `systemctl status penstock-index`; a site without it gets it by `penstock site deploy`",
            ) from error
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UnauthenticatedError(
                "the server of uploads does not take the administrator's password",
                where=path,
                hint="give the file with the password that the site was deployed with",
            )
        if answer.is_error:
            said = answer.json().get("message", "") if "json" in answer.headers.get("content-type", "") else ""
            raise InputError(
                f"the server of uploads refuses: {said or answer.reason_phrase}",
                where=path,
                hint="mend what it names, then run it again",
            )
        result = answer.json().get("result", {})
        return result if isinstance(result, dict) else {}


def _first(lines: list[dict[str, Any]]) -> str:
    """Return the account whose upload was the first; empty where there is none."""
    uploads = [line for line in lines if line["what"] == "upload"]
    return str(min(uploads, key=lambda line: line["when"])["who"]) if uploads else ""


@contextmanager
def connect(socket: Path, password: Path) -> Iterator[Server]:
    """Connect to the server at a socket as the administrator, whose password is in a file.

    Raises NotFoundError where there is no server, or the password cannot be read.
    """
    if not socket.exists():
        raise NotFoundError(
            "this node has no server of uploads",
            where=str(socket),
            hint="run it on the reservoir node, after `penstock site deploy`",
        )
    try:
        secret = password.read_text().strip()
    except OSError as error:
        raise NotFoundError(
            f"cannot read the administrator's password: {error.strerror}", where=str(password), hint="run it as root"
        ) from error
    transport = httpx.HTTPTransport(uds=str(socket))
    headers = {"Accept": "application/json"}
    with httpx.Client(
        transport=transport, base_url="http://uploads", auth=(ADMIN, secret), headers=headers, timeout=TIMEOUT
    ) as http:
        yield Server(http)
