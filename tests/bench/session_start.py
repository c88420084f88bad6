"""Print the figures of a lab that is up (`make demo`) as one JSON line."""

from __future__ import annotations

import json

from tests.e2e.figures import list_seconds, submit_seconds
from tests.e2e.journey import ROOT, Journey


def main() -> None:
    """Measure on the example's lab, with the login of the demo."""
    journey = Journey(ROOT / "inventory" / "example" / "site.yml", bundles=ROOT / "build" / "bundle")
    journey.login()
    journey.clear()
    journey.project("4")
    print(json.dumps({"submit_to_running_s": submit_seconds(journey), "list_s": list_seconds(journey)}))


if __name__ == "__main__":
    main()
