"""One closed lab for all end-to-end tests: built from the product's bundle, removed at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.journey import ROOT, Journey


@pytest.fixture(scope="session")
def journey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journey]:
    """A lab that is up and a user who is logged in. PENSTOCK_KEEP_LAB=1 leaves it up for a look afterwards."""
    folder = tmp_path_factory.mktemp("journey")
    journey = Journey(_site(folder), bundles=ROOT / "build" / "bundle", config_home=folder / "config")
    journey.build()
    try:
        journey.up()
        journey.login()
        yield journey
    finally:
        if os.environ.get("PENSTOCK_KEEP_LAB") != "1":
            journey.down()


def _site(folder: Path) -> Path:
    """The example's site under another name and in another network, so that a demo may stay up beside the tests.

    Its workers have eight GPUs each, as those of the reference scenario.
    """
    site = yaml.safe_load((ROOT / "inventory" / "example" / "site.yml").read_text())
    site["name"] = "e2e"
    for node in site["nodes"]:
        node["address"] = node["address"].replace("10.71.8.", "10.71.9.")
        if "simulated_gpus" in node:
            node["simulated_gpus"]["count"] = 8
    path = folder / "site.yml"
    path.write_text(yaml.safe_dump(site, sort_keys=False))
    return path
