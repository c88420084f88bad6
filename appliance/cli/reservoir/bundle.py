"""Commands where there is internet: lock, build, verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.reservoir.common import (
    AsJson,
    BundlePaths,
    Key,
    LockPath,
    ManifestPath,
    lock_path,
    progress_bars,
    public_key,
    show,
)
from common.errors import InputError, IntegrityError
from reservoir.settings import load

if TYPE_CHECKING:
    from reservoir.bundle.verification import Verified


def lock_command(
    manifest: ManifestPath,
    lock: LockPath = None,
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Keep a lock that matches the manifest already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Resolve the complete closure of a manifest and write it down with sizes and hashes."""
    from reservoir.download.cache import Cache
    from reservoir.lock.file import matches, write_lock
    from reservoir.lock.make import make

    path = lock_path(manifest, lock)
    if if_changed and matches(path, manifest):
        show({"lock": str(path), "changed": False}, as_json, f"{path} matches {manifest} already")
        return
    with progress_bars() as progress:
        made = make(manifest, Cache(load().cache), progress)
    changed = write_lock(made, path)
    size = sum(artifact.size for artifact in made.artifacts)
    show(
        {"lock": str(path), "changed": changed, "artifacts": len(made.artifacts), "bytes": size},
        as_json,
        f"{path}: {len(made.artifacts)} artifacts, {size / 1e6:.0f} MB",
    )


def build_command(
    manifest: ManifestPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder that gets the bundle's folder.")],
    lock: LockPath = None,
    *,
    since: Annotated[
        Path | None, typer.Option("--since", metavar="RECEIPT", help="Write a delta as well: what this site lacks.")
    ] = None,
    trust_site: Annotated[
        str | None,
        typer.Option("--trust-site", metavar="FINGERPRINT", help="Take the site with this key as known from now on."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a signed bundle from a manifest and its lock; for a site's receipt also what that site lacks."""
    from reservoir.bundle import build
    from reservoir.media import delta

    settings = load()
    with progress_bars() as progress:
        if since is None:
            made = None
            built = build.make(manifest, lock_path(manifest, lock), output, settings, progress)
        else:
            made = delta.build_since(
                since, manifest, lock_path(manifest, lock), output, settings, trusted=trust_site, progress=progress
            )
            built = made.built
    if built.new_key:
        note = f"made the signing key {settings.signing_key}; keep it safe, your bundles are known by it"
        print(note, file=sys.stderr)
    if made is not None:
        carried = [path.stat().st_size for path in (made.folder / "blobs/sha256").iterdir()]
        show(
            {
                "bundle": str(made.folder),
                "full": str(built.folder),
                "site": made.receipt.fingerprint,
                "serial": made.receipt.serial,
                "blobs": len(carried),
                "bytes": sum(carried),
            },
            as_json,
            f"{made.folder}: {len(carried)} of {len(built.bundle.sizes())} blobs, {sum(carried) / 1e6:.0f} MB, "
            f"for the site {made.receipt.fingerprint} as of receipt {made.receipt.serial}",
        )
        return
    size = sum(built.bundle.sizes().values())
    show(
        {"bundle": str(built.folder), "changed": built.changed, "blobs": len(built.bundle.sizes()), "bytes": size},
        as_json,
        f"{built.folder}: {len(built.bundle.sizes())} blobs, {size / 1e6:.0f} MB"
        + ("" if built.changed else ", unchanged"),
    )


def verify_command(bundles: BundlePaths, key: Key = None, as_json: AsJson = False) -> None:
    """Check a bundle, a delta or media: signatures and every hash; nothing may be missing or extra."""
    from common.errors import PenstockError, Problem
    from reservoir.bundle.verification import fingerprint, missing_media, verify

    media: list[Verified] = []
    problems: list[Problem] = []
    with progress_bars() as progress:
        for folder in bundles:
            try:
                media.append(verify(folder, public_key(key), progress))
            except PenstockError as error:
                if len(bundles) == 1:
                    raise
                problems += error.problems
    if problems:
        raise IntegrityError.of(problems)
    _require_one_bundle(media)
    found = media[0]
    files = {name: size for medium in media for name, size in medium.files().items()}
    missing = missing_media(media)
    how = " (the given key)" if found.pinned else " (the key travels with the bundle: compare it with its maker's)"
    what = f"medium {_numbers(media)} of {found.medium.count} of " if found.of_set and found.medium else ""
    lacking = f"; not given: medium {', '.join(map(str, missing))}" if missing else ""
    show(
        {
            "bundle": found.identity,
            "key": fingerprint(found),
            "pinned": found.pinned,
            "blobs": len(files),
            "bytes": sum(files.values()),
            "complete": not missing,
            "missing": missing,
            "since": found.medium.since.model_dump() if found.medium and found.medium.since else None,
        },
        as_json,
        f"{what}{found.identity} is whole: {len(files)} files, {sum(files.values()) / 1e6:.0f} MB, "
        f"signed by {fingerprint(found)}{how}{lacking}",
    )


def _require_one_bundle(media: list[Verified]) -> None:
    """Raise InputError where the folders do not belong together."""
    names = sorted({medium.identity for medium in media})
    if len(names) > 1:
        raise InputError(f"these are media of {', '.join(names)}", where="verify", hint="check one bundle at a time")


def _numbers(media: list[Verified]) -> str:
    """Return the numbers of media, for people."""
    return ", ".join(str(number) for number in sorted(medium.medium.number for medium in media if medium.medium))
