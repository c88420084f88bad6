"""Submit to RUNNING and `penstock list` on the lab of the demo, which is started where it is not up: one JSON line."""

from __future__ import annotations

import json

from tests.lab.figures import list_seconds, submit_seconds
from tests.lab.journey import ROOT, Journey


def main() -> None:
    """Measure on an otherwise idle lab and leave it up."""
    journey = Journey(ROOT / "inventory" / "example" / "site.yml", bundles=ROOT / "build" / "bundle")
    journey.build()
    journey.up()
    journey.login()
    journey.project("4")
    journey.clear()
    submit_seconds(journey, rounds=1)  # brings the image to the node
    print(json.dumps({"submit_to_running_s": submit_seconds(journey), "list_s": list_seconds(journey)}))


if __name__ == "__main__":
    main()
