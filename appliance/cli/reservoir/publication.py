"""Commands about what a site serves and holds: rollback, prune, remove, status."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from appliance.cli.reservoir import uploads
from appliance.cli.reservoir.common import AsJson, Root, progress_bars, show
from reservoir.settings import DEFAULT_ROOT

if TYPE_CHECKING:
    from reservoir.publication.publish import Published
    from reservoir.publication.status import Status

WIDTH = 80
KEEP, VERSIONS = 3, 1


def rollback_command(
    root: Root = DEFAULT_ROOT,
    to: Annotated[
        int | None, typer.Option("--to", metavar="NUMBER", help="The publication; default: the one before.")
    ] = None,
    despite_policy: Annotated[
        bool, typer.Option("--despite-policy", help="Serve it though the site's policy refuses it now.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve an earlier publication again, until `publish` is run; says what that brings back."""
    from reservoir.publication.publish import rollback

    def tell(done: Published) -> None:
        served = f"publication {done.number} is served {'again' if done.changed else 'already'}"
        if to is None and not done.changed:
            served += ", by a rollback that was interrupted; run it once more to go further back"
        show(
            {"publication": done.number, "bundles": done.bundles, "opens": done.opens, "changed": done.changed},
            as_json,
            "\n".join([f"{served}; it stays until you run `penstock reservoir publish`", *done.opens]),
        )

    rollback(root, to, despite_policy=despite_policy, tell=tell)


def prune_command(
    root: Root = DEFAULT_ROOT,
    keep: Annotated[
        int,
        typer.Option("--keep", metavar="NUMBER", help="How many of the newest publications stay."),
    ] = KEEP,
    versions: Annotated[
        int,
        typer.Option("--versions", metavar="NUMBER", help="How many of the newest bundles of each name stay."),
    ] = VERSIONS,
    rehearse: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old publications, bundles that none of the others needs, and blobs that nothing uses."""
    from reservoir.publication import prune

    with progress_bars() as progress:
        gone = prune.prune(root, keep=keep, versions=versions, rehearse=rehearse, progress=progress)
    counts = {
        "publication": len(gone.publications),
        "bundle": len(gone.bundles),
        "blob": len(gone.blobs),
        "leftover": len(gone.leftovers),
    }
    what = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)
    does = "would free" if rehearse else "freed"
    kept = [
        f"{identity} is not whole and holds {human(size)}: import its other media, or "
        f"`penstock reservoir remove {identity}`"
        for identity, size in gone.arrivals.items()
    ]
    show(
        {
            "publications": gone.publications,
            "bundles": gone.bundles,
            "blobs": gone.blobs,
            "leftovers": [str(path) for path in gone.leftovers],
            "bytes": gone.size,
            "arrivals": gone.arrivals,
            "changed": not (rehearse or gone.nothing),
        },
        as_json,
        "\n".join([f"{does} {human(gone.size)}: {what}" if what else "nothing to remove", *kept]),
    )


def remove_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the bundle, or its identity as `status` lists it.")
    ],
    withdraw: Annotated[
        bool, typer.Option("--withdraw", help="Leave out of the next publication what a publication still needs.")
    ] = False,
    rehearse: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    root: Root = DEFAULT_ROOT,
    as_json: AsJson = False,
) -> None:
    """Remove a bundle by name, and the blobs that only it needs; never what a publication was made of."""
    from reservoir.publication import removal

    with progress_bars() as progress:
        gone = removal.remove(root, name, withdraw=withdraw, rehearse=rehearse, progress=progress)
    lines = [f"{'would free' if rehearse else 'freed'} {human(gone.size)}: {', '.join(gone.bundles) or 'leftovers'}"]
    if gone.withdrawn:
        does = "would be" if rehearse else "is"
        lines = [
            f"{', '.join(gone.withdrawn)} {does} left out of the next publication",
            *(lines if gone.bundles else []),
        ]
    told = {"bundles": gone.bundles, "withdrawn": gone.withdrawn, "blobs": gone.blobs, "bytes": gone.size}
    show(told | {"changed": not rehearse}, as_json, "\n".join(lines))


def status_command(root: Root = DEFAULT_ROOT, as_json: AsJson = False) -> None:
    """Show what the site serves and holds, how old it is and how much space it takes."""
    from reservoir.publication import status

    with progress_bars() as progress:
        found = status.status(root, progress=progress)
    hidden = uploads.hidden(root)
    if as_json:
        trusted = found.trust.told() if found.trust else None
        show(asdict(found) | {"trust": trusted, "hidden_uploads": hidden}, as_json, "")
    else:
        _tables(found, uploads.told(hidden))


def human(size: float) -> str:
    """Return a size in bytes as a person reads it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def duration(seconds: int) -> str:
    """Return an age as a person reads it; what lies ahead of this machine's clock says so."""
    if seconds < 0:
        return "in future"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _tables(found: Status, note: str) -> None:
    from rich.console import Console
    from rich.table import Table

    publications = Table("PUBLICATION", "AGE", "OWN", "SHARED", "CONTENTS", box=None, pad_edge=False)
    for one in found.publications:
        mark = (" back" if found.rolled_back else " served") if one.served else ""
        sizes = (duration(one.age_seconds), human(one.own), human(one.shared))
        publications.add_row(f"{one.number}{mark}", *sizes, _contents(one.artifacts))
        publications.add_row("", "", "", "", " ".join(one.bundles))
    held = Table("BUNDLE", "AGE", "SIZE", "CONTENTS", box=None, pad_edge=False)
    for bundle in found.bundles:
        words = _contents(bundle.artifacts)
        if not bundle.complete:
            words += f" (parts are missing, {human(bundle.arrived)} arrived)"
        held.add_row(bundle.identity, duration(bundle.age_seconds), human(bundle.size), words)
    console = Console(width=WIDTH, highlight=False)
    console.print(publications)
    console.print()
    console.print(held)
    console.print()
    if note:
        console.print(note)
    for bundle in found.bundles:
        if bundle.warning:
            console.print(f"warning: {bundle.warning}")
    if found.trust:
        console.print(f"trusts bundles signed by\n{found.trust.fingerprint},\n{found.trust.words}")
    if found.trust_damaged:
        console.print(f"warning: {found.trust_damaged}", markup=False)
    if found.rolled_back:
        console.print("The site went back to this publication; it stays until `penstock reservoir publish`.")
    console.print(
        f"used {human(found.used)}, free {human(found.free)}; "
        f"`penstock reservoir prune` would free {human(found.prunable)}"
    )


def _contents(artifacts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in artifacts.items())
