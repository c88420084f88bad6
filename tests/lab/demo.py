"""`make demo`: one disk into a running fractional-GPU session in a closed network."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.lab.figures import list_seconds, submit_seconds
from tests.lab.journey import ROOT, Journey

FIGURES = {"submit to RUNNING": submit_seconds, "penstock list": list_seconds}


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
        measure(journey)
    tell(journey)


def measure(journey: Journey) -> None:
    """Print figures of the lab; what could not be measured is said, and decides nothing."""
    for figure, seconds in FIGURES.items():
        try:
            journey.clear()
            print(f"   {figure}, median of 10: {seconds(journey):.2f} s", flush=True)
        except Exception as error:
            print(f"   {figure}: not measured ({error})", flush=True)


def tell(journey: Journey) -> None:
    """Print address, login, and the time of each phase."""
    lab = journey.lab
    print("\n\033[1m== The cluster is up\033[0m")
    print(f"   console                        {lab['console']}")
    print(f"   API documentation              {lab['console']}/docs")
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
    except (RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
