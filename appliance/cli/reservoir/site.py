"""Commands in the closed network: import, publish."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.reservoir import uploads
from appliance.cli.reservoir.common import (
    AsJson,
    BundlePaths,
    Key,
    ReplaceKey,
    Root,
    TrustFirst,
    progress_bars,
    public_key,
    show,
)
from common.errors import PartialError, Problem
from reservoir.settings import DEFAULT_ROOT

if TYPE_CHECKING:
    from reservoir.intake.take import Imported


def import_command(
    bundles: BundlePaths,
    root: Root = DEFAULT_ROOT,
    *,
    key: Key = None,
    trust_first: TrustFirst = False,
    replace_key: ReplaceKey = False,
    allow_rollback: Annotated[
        bool, typer.Option("--allow-rollback", help="Take a bundle older than what the site holds.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take a bundle into the site, all of it or nothing; media in any order, together or one after another.

    A site that trusts no key yet needs `--key` or `--trust-first`.
    """
    from common.errors import IntegrityError
    from reservoir.intake.store import Store
    from reservoir.intake.take import take_held
    from reservoir.intake.trust import Spoken

    problems: list[Problem] = []
    answers: dict[str, Imported] = {}
    store, spoken = Store(root), Spoken(public_key(key), trust_first, replace_key)
    # held as a whole, so that what one medium brought needs no second look with the next
    with progress_bars() as progress, store.changing():
        for folder in bundles:
            try:
                taken = take_held(store, folder, spoken, allow_rollback=allow_rollback, progress=progress)
            except IntegrityError as error:
                # what is good of a medium counts, and so do the others
                problems += error.problems
                continue
            changed = taken.changed or (taken.identity in answers and answers[taken.identity].changed)
            answers[taken.identity] = replace(taken, changed=changed)
        for taken in answers.values():
            if taken.warning:
                print(f"warning: {taken.warning}", file=sys.stderr)
        if problems:
            raise IntegrityError.of(problems)
    if as_json:
        results = [_described(taken) for taken in answers.values()]
        print(json.dumps(results[0] if len(results) == 1 else results))
        return
    for taken in answers.values():
        print(_told(taken))


def _described(taken: Imported) -> dict[str, object]:
    """Return what became of an import, for programs."""
    return {
        "bundle": taken.identity,
        "changed": taken.changed,
        "complete": taken.complete,
        "media": taken.media,
        "missing": taken.missing,
        "damaged": taken.damaged,
        "trust": taken.trust.told() if taken.trust else None,
    }


def _told(taken: Imported) -> str:
    """Return what became of an import, for people."""
    signed = f"\nsigned by {taken.trust.fingerprint}, {taken.trust.words}" if taken.trust else ""
    if taken.complete:
        return f"{taken.identity} {'imported' if taken.changed else 'was imported already'}{signed}"
    here = taken.media - len(taken.missing) - len(taken.damaged)
    lacking = [f"still missing {', '.join(map(str, taken.missing))}"] if taken.missing else []
    lacking += [f"damaged {', '.join(map(str, taken.damaged))}"] if taken.damaged else []
    return f"{taken.identity}: {here} of {taken.media} media, {', '.join(lacking)}; it is not imported yet{signed}"


def publish_command(
    root: Root = DEFAULT_ROOT,
    registry: Annotated[
        str | None,
        typer.Option("--registry", metavar="HOST:PORT", help="Push the images to this other registry as well."),
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="The CA that signed the registry's certificate.")] = None,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Leave what an administrator went back to as it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve what was imported: Debian and Python packages, images, files.

    A bundle that cannot be published is left out and named, and the rest is served.
    """
    from reservoir.publication.publish import publish
    from reservoir.serving.registry import push

    with progress_bars() as progress:
        done = publish(root, progress, unattended=unattended)
        pushed = push(root, registry, ca, progress) if registry else []
    changed = done.changed or bool(pushed)
    hidden = uploads.hidden(root)
    show(
        {
            "publication": done.number,
            "bundles": done.bundles,
            "pushed": pushed,
            "rolled_back": done.rolled_back,
            "left_out": [str(problem) for problem in done.left_out],
            "hidden_uploads": hidden,
            "changed": changed,
        },
        as_json,
        f"publication {done.number} {'is served now' if done.changed else 'is served already'}"
        + (" (went back to it; publish without --unattended ends that)" if done.rolled_back else "")
        + (f", pushed {', '.join(pushed)}" if pushed else "")
        + (f"\n{note}" if (note := uploads.told(hidden)) else ""),
    )
    _tell_left_out(done.left_out, unattended=unattended)


def _tell_left_out(problems: list[Problem], *, unattended: bool) -> None:
    """Name the bundles that could not be published; whoever asked for that by hand gets an exit code of its own."""
    if problems and not unattended:
        raise PartialError.of(problems)
    for problem in problems:
        print(f"warning: left out of the publication: {problem}", file=sys.stderr)
