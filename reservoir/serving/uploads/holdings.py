"""Holdings of accounts, as the server's own data tell: who was first with a name, and whose bytes there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

UPLOAD, PUSH = "upload", "push"


def first_uploader(stage: Any, name: str) -> str:
    """Return the account whose upload of a name was the first that is still there; empty where there is none."""
    found = [(moment, account) for account, moment, _ in _uploads(stage, name)]
    return min(found)[1] if found else ""


def brought(stage: Any, name: str, accounts: Collection[str]) -> set[str]:
    """Return the paths of those files of a name that these accounts brought into an index."""
    found = set()
    for version in stage.list_versions_perstage(name):
        for link in stage.get_linkstore_perstage(name, version).get_links():
            lines = [line for line in link.get_logs() if line["what"] in (UPLOAD, PUSH)]
            if lines and lines[-1]["who"] in accounts:
                found.add(link.relpath)
    return found


def held(stage: Any, account: str) -> int:
    """Return how many bytes of the files in an index are an account's."""
    names = stage.list_projects_perstage()
    return sum(size for name in names for who, _, size in _uploads(stage, name) if who == account)


def _uploads(stage: Any, name: str) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield account, moment and bytes of each file of a name."""
    for version in stage.list_versions_perstage(name):
        for link in stage.get_linkstore_perstage(name, version).get_links():
            for line in link.get_logs():
                if line["what"] == UPLOAD:
                    size = link.entry.file_size() if link.entry.file_exists() else 0
                    yield line["who"] or "", tuple(line["when"]), size
