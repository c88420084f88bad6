"""`make demo`: one disk into a running fractional-GPU session in a closed network."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.lab.figures import list_seconds, submit_seconds
from tests.lab.journey import ROOT, Journey


def main() -> None:
    """Run the whole way and leave the cluster up for the reader to try."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, required=True, help="site.yml of the lab")
    journey = Journey(parser.parse_args().site, bundles=ROOT / "build" / "bundle")
    journey.build()
    journey.up()
    journey.login()
    journey.project("1")
    journey.clear()
    journey.three_for_two()
    journey.third_runs()
    with journey.phase("measure"):
        journey.clear()
        journey.project("4")
        print(f"   submit to RUNNING, median of 10: {submit_seconds(journey):.2f} s")
        print(f"   penstock list, median of 10:     {list_seconds(journey):.2f} s")
        journey.project("1")
    tell(journey)


def tell(journey: Journey) -> None:
    """Print address, login, and the time of each phase."""
    lab = journey.lab
    print("\n\033[1m== The cluster is up\033[0m")
    print(f"   console and API documentation  {lab['console']}/docs")
    print(f"   API                            {lab['api']}")
    print(f"   site authority                 {lab['ca']}")
    print(f"   login                          admin / {journey.own_password.read_text().strip()}")
    print("\n   time of each phase")
    for name, seconds in journey.seconds.items():
        print(f"   {seconds:8.1f} s  {name}")
    print(
        "\n   try: .venv/bin/penstock submit hello -i python -g 0.5 --interactive --command sleep --args infinity"
        "\n        .venv/bin/penstock bash hello        (a shell in the session)"
        "\n        .venv/bin/penstock node list         (who uses which GPU)"
        "\n   end: make demo-down"
    )


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)  # the command has said why
