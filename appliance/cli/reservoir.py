"""`penstock reservoir`: bundles, from the manifest to what the site serves."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from reservoir.errors import NotFoundError
from reservoir.progress import Progress
from reservoir.settings import DEFAULT_ROOT, load

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP)
key_app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP)
app.add_typer(key_app, name="key", help="The key that signs bundles: new, show.")

ManifestPath = Annotated[Path, typer.Argument(help="The manifest.", metavar="MANIFEST")]
LockPath = Annotated[Path | None, typer.Option("--lock", help="The lock; default: reservoir.lock beside the manifest.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command("lock")
def lock_command(
    manifest: ManifestPath,
    lock: LockPath = None,
    if_changed: Annotated[
        bool, typer.Option("--if-changed", help="Keep a lock that matches the manifest already.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Resolve the complete closure of a manifest and write it down with sizes and hashes."""
    from reservoir import lock as locks
    from reservoir.cache import Cache

    path = _lock_path(manifest, lock)
    if if_changed and locks.matches(path, manifest):
        _print({"lock": str(path), "changed": False}, as_json, f"{path} matches {manifest} already")
        return
    with _progress() as progress:
        made = locks.make(manifest, Cache(load().cache), progress)
    changed = locks.write(made, path)
    size = sum(artifact.size for artifact in made.artifacts)
    _print(
        {"lock": str(path), "changed": changed, "artifacts": len(made.artifacts), "bytes": size},
        as_json,
        f"{path}: {len(made.artifacts)} artifacts, {size / 1e6:.0f} MB",
    )


@app.command("build")
def build_command(
    manifest: ManifestPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder that gets the bundle's folder.")],
    lock: LockPath = None,
    as_json: AsJson = False,
) -> None:
    """Build a signed bundle from a manifest and its lock."""
    from reservoir import build

    settings = load()
    with _progress() as progress:
        built = build.make(manifest, _lock_path(manifest, lock), output, settings, progress)
    if built.new_key:
        made = f"made the signing key {settings.signing_key}; keep it safe, your bundles are known by it"
        print(made, file=sys.stderr)
    size = sum(built.bundle.sizes().values())
    _print(
        {"bundle": str(built.folder), "changed": built.changed, "blobs": len(built.bundle.sizes()), "bytes": size},
        as_json,
        f"{built.folder}: {len(built.bundle.sizes())} blobs, {size / 1e6:.0f} MB"
        + ("" if built.changed else ", unchanged"),
    )


BundlePath = Annotated[Path, typer.Argument(help="The folder of a bundle.", metavar="BUNDLE")]
Root = Annotated[Path, typer.Option("--root", help="Where the site keeps what was imported.")]
Key = Annotated[Path | None, typer.Option("--key", help="The maker's public key, got on another way.")]


@app.command("verify")
def verify_command(bundle: BundlePath, key: Key = None, as_json: AsJson = False) -> None:
    """Check a bundle's signature and every hash; nothing may be missing or extra."""
    from reservoir.verify import fingerprint, verify

    with _progress() as progress:
        found = verify(bundle, _public(key), progress)
    sizes = found.bundle.sizes()
    how = "" if found.pinned else " (the key travels with the bundle: compare it with its maker's)"
    _print(
        {
            "bundle": found.identity,
            "key": fingerprint(found),
            "pinned": found.pinned,
            "blobs": len(sizes),
            "bytes": sum(sizes.values()),
        },
        as_json,
        f"{found.identity} is whole: {len(sizes)} blobs, {sum(sizes.values()) / 1e6:.0f} MB, "
        f"signed by {fingerprint(found)}{how}",
    )


@app.command("import")
def import_command(
    bundle: BundlePath,
    root: Root = DEFAULT_ROOT,
    key: Key = None,
    allow_older: Annotated[
        bool, typer.Option("--allow-older", help="Take a bundle older than what the site holds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take a bundle into the site, all of it or nothing."""
    from reservoir import intake

    with _progress() as progress:
        taken = intake.take(bundle, root, key=_public(key), allow_older=allow_older, progress=progress)
    said = "imported" if taken.changed else "was imported already"
    _print({"bundle": taken.identity, "changed": taken.changed}, as_json, f"{taken.identity} {said}")


@app.command("publish")
def publish_command(
    root: Root = DEFAULT_ROOT,
    registry: Annotated[
        str | None, typer.Option("--registry", metavar="HOST:PORT", help="Push the images to this registry as well.")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="The CA that signed the registry's certificate.")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve what was imported: Debian and Python packages, images, files."""
    from reservoir import publication
    from reservoir import registry as registries

    with _progress() as progress:
        done = publication.publish(root, progress)
        pushed = registries.push(root, registry, ca, progress) if registry else []
    changed = done.changed or bool(pushed)
    _print(
        {"publication": done.number, "bundles": done.bundles, "pushed": pushed, "changed": changed},
        as_json,
        f"publication {done.number} {'is served now' if done.changed else 'is served already'}"
        + (f", pushed {', '.join(pushed)}" if pushed else ""),
    )


@key_app.command("new")
def key_new() -> None:
    """Make the key that signs bundles; one that is there already stays."""
    from reservoir import signing

    path = load().signing_key
    key = signing.new_key(path)
    print(f"{path}: {signing.fingerprint(key.public_key())}")


@key_app.command("show")
def key_show() -> None:
    """Print the public half of the key that signs bundles, and its fingerprint on standard error."""
    from reservoir import signing

    key = signing.read_key(load().signing_key)
    print(f"fingerprint {signing.fingerprint(key.public_key())}", file=sys.stderr)
    print(signing.public_pem(key).decode(), end="")


def _public(path: Path | None) -> Ed25519PublicKey | None:
    """Return the public key in a file, where one was given."""
    from reservoir import signing

    if path is None:
        return None
    try:
        return signing.read_public(path.read_bytes(), str(path))
    except OSError as error:
        raise NotFoundError(
            f"cannot read the key: {error.strerror}", where=str(path), cure="give the maker's penstock.pub"
        ) from error


def _lock_path(manifest: Path, lock: Path | None) -> Path:
    return lock or manifest.parent / "reservoir.lock"


def _print(result: dict[str, Any], as_json: bool, text: str) -> None:
    print(json.dumps(result) if as_json else text)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show progress on standard error: bars on a terminal, one line a step elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = ""

        def say(step: str, done: int = 0, total: int = 0) -> None:  # noqa: ARG001
            nonlocal last
            if step != last:
                last = step
                print(f"{step}" + (f" ({total / 1e6:.0f} MB)" if total else ""), file=sys.stderr, flush=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int = 0, total: int = 0) -> None:
            if step not in tasks:
                for finished in tasks.values():
                    bars.update(finished, total=1, completed=1)
                tasks[step] = bars.add_task(step, total=total or None)
            if total:
                bars.update(tasks[step], completed=done, total=total)

        yield show
