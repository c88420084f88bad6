"""Bundles that are older than what a site has: when they are refused, and the way back."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common import files
from common.errors import ConflictError
from reservoir.intake.store import Store
from tests.unit.reservoir.parts import contents, copied, make_bundle, take


def test_an_older_bundle_is_refused_unless_it_is_wanted(
    tmp_path: Path, bundle: Path, second: Path, key: Ed25519PrivateKey
) -> None:
    root = tmp_path / "other-site"
    take(second, root)
    before = contents(root)
    with pytest.raises(
        ConflictError,
        match=r"the site holds small 2.0 of .*, which is newer than 1.0.*`penstock reservoir import --allow-rollback`",
    ):
        take(bundle, root)
    assert contents(root) == before
    assert take(bundle, root, allow_rollback=True).changed


def test_what_a_site_went_back_to_counts_until_the_newer_one_is_imported_again(
    tmp_path: Path, bundle: Path, second: Path
) -> None:
    root = tmp_path / "other-site"

    def counts() -> list[str]:
        return [bundle.version for bundle in Store(root).newest().values()]

    take(second, root)
    take(bundle, root, allow_rollback=True)
    assert counts() == ["1.0"]
    assert not take(bundle, root).changed
    assert take(second, root).changed
    assert counts() == ["2.0"]
    assert not take(bundle, root).changed
    assert counts() == ["2.0"], "what is held already is no reason to go back"
    assert take(bundle, root, allow_rollback=True).changed
    assert counts() == ["1.0"]
    assert not take(bundle, root, allow_rollback=True).changed


@pytest.mark.parametrize("target", ["1.0", "2.0"])
def test_going_back_that_is_killed_at_any_write_is_done_or_not_and_ends_when_it_is_run_again(
    tmp_path: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """An older bundle that was set aside comes back; one of the store, or one that comes anew."""
    made = {
        version: make_bundle(tmp_path / "made", key, version=version, made=[])
        for version in ("0.5", "1.0", "2.0", "3.0", "10.0")
    }
    whole = tmp_path / "whole"
    for version in ("0.5", "1.0", "3.0", "10.0"):
        take(made[version], whole)
    take(made["0.5"], whole, allow_rollback=True)
    take(made["3.0"], whole)
    take(made["10.0"], whole)
    write, left = files.write, 0

    def counted(*args: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        write(*args)

    def counts(root: Path) -> list[str]:
        return [bundle.version for bundle in Store(root).newest().values()]

    for writes in range(1, 99):
        root, left = copied(whole, tmp_path / f"killed-{writes}"), writes
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(files, "write", counted)
            take(made[target], root, allow_rollback=True)
        ended = left > 0
        assert counts(root) == ([target] if ended else ["10.0"])
        with suppress(ConflictError):
            assert not take(made[target], root).changed, "nobody asked for it here"
        take(made[target], root, allow_rollback=True)
        assert counts(root) == [target]
        assert {"0.5", "1.0", "3.0", "10.0", target} == {one.version for one in Store(root).imported().values()}
        if ended:
            break
    assert writes > 1


def test_of_one_version_the_time_of_the_build_counts(tmp_path: Path, site: Path, key: Ed25519PrivateKey) -> None:
    earlier = make_bundle(tmp_path, key, body="earlier", created="2026-01-02T03:04:04Z")
    with pytest.raises(
        ConflictError, match=r"1\.0 of 2026-01-02T03:04:05Z, which is newer than 1.0 of 2026-01-02T03:04:04Z"
    ):
        take(earlier, site)
    later = make_bundle(tmp_path, key, body="later", created="2026-01-02T03:04:06Z")
    assert take(later, site).changed


def test_of_two_builds_of_one_moment_the_one_that_came_last_counts(
    tmp_path: Path, site: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    """A build may be given its time, so that the same time says nothing about which is newer."""
    for body in ("one", "two", "three"):
        done = take(make_bundle(tmp_path / body, key, body=body), site)
        assert done.changed
        assert list(Store(site).newest()) == [done.identity]
