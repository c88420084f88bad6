"""`penstock reservoir`: bundles, from the manifest to what the site serves."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from reservoir.progress import Progress
from reservoir.settings import DEFAULT_ROOT, load

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
        print(f"made the signing key {settings.signing_key}; keep it safe, it is the name of your bundles", file=sys.stderr)
    size = sum(built.bundle.sizes().values())
    _print(
        {"bundle": str(built.folder), "changed": built.changed, "blobs": len(built.bundle.sizes()), "bytes": size},
        as_json,
        f"{built.folder}: {len(built.bundle.sizes())} blobs, {size / 1e6:.0f} MB"
        + ("" if built.changed else ", unchanged"),
    )


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

        def say(step: str, done: int = 0, total: int = 0) -> None:
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
