"""Health of what the reservoir serves: until when the makers of its bundles answer for them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from appliance.site import served
from common.checks import Check, CheckState
from common.errors import PenstockError
from common.health import graded
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store

BUNDLE, NAME = "bundle", "makers answer for what the reservoir serves"
DAY_S = 24 * 3600


def checks(root: Path, warn_days: int, now: datetime) -> Iterator[Check]:
    """Judge each bundle with an end that the reservoir at `root` serves; it warns so many days before."""
    try:
        bundles = served.bundles(Store(root)).values()
    except (OSError, PenstockError) as error:
        # one damaged list says nothing of the site's other checks
        yield Check(BUNDLE, NAME, CheckState.UNKNOWN, f"what is served cannot be read: {error}")
        return
    for bundle in sorted(bundles, key=lambda each: each.name):
        if bundle.expires is not None:
            yield _check(bundle, bundle.expires, warn_days, now)


def _check(bundle: Bundle, expires: str, warn_days: int, now: datetime) -> Check:
    days = (datetime.fromisoformat(expires) - now).total_seconds() / DAY_S
    state = graded(-days, -warn_days, 0)
    until = "no more since" if days < 0 else "until"
    said = f"its maker answers for {bundle.name} {bundle.version} {until} {expires[:10]}"
    new = f"ask the maker of {bundle.name} for a newer bundle, and deploy it: `penstock site deploy --bundle FOLDER`"
    return Check(BUNDLE, NAME, state, said, "" if state is CheckState.OK else new, bundle.name)
