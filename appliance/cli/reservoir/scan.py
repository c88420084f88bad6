"""The command of the security checker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.reservoir.common import Key, progress_bars, public_key
from common.errors import InputError

Bundle = Annotated[Path | None, typer.Argument(help="The folder of a bundle.", metavar="[BUNDLE]")]
Site = Annotated[
    Path | None,
    typer.Option("--root", help="Scan what this site would publish, or go back to, and keep the reports there."),
]
Advisories = Annotated[
    list[Path] | None,
    typer.Option("--advisories", help="Offline OSV advisories: a folder or a zip file; may be repeated."),
]
PolicyPath = Annotated[Path | None, typer.Option("--policy", help="The policy; with --root it becomes the site's own.")]


def scan_command(  # noqa: PLR0917
    bundle: Bundle = None,
    root: Site = None,
    advisories: Advisories = None,
    policy: PolicyPath = None,
    clamav: Annotated[bool, typer.Option("--clamav", help="Search every file for malware, too.")] = False,
    signatures: Annotated[
        Path | None, typer.Option("--signatures", help="ClamAV's signatures; default: this machine's.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the report of a bundle here.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write the report of a bundle here, as a page.")] = None,
    key: Key = None,
) -> None:
    """Check packages against offline advisories, licences and malware signatures; fails where the policy refuses."""
    from reservoir.publication import scanning
    from reservoir.scan.clamav import Clamav

    if (bundle is None) == (root is None):
        raise InputError("give either a bundle or --root", where="scan", hint="see `penstock reservoir scan --help`")
    if root and (json or html):
        reason = "the reports of a site are kept in its folder `security`"
        raise InputError(reason, where="--json, --html", hint="leave them out with --root")
    asked = scanning.Asked(advisories or [], policy, Clamav(signatures) if clamav else None)
    with progress_bars() as progress:
        scans = [scanning.folder(bundle, asked, public_key(key), progress)] if bundle else []
        scans += scanning.site(root, asked, progress) if root else []
        others, unread = scanning.standby(root, asked, progress) if root else ([], [])
    for scanned in scans:
        if json:
            json.write_bytes(scanned.report.encode())
        if html:
            html.write_bytes(scanned.page)
        print(scanned.words)
    for scanned in others:
        print(f"only after a rollback, or in place of another:\n{scanned.words}")
    for problem in unread:
        print(f"warning: not scanned: {problem}", file=sys.stderr)
    scanning.require_passed(scans)
