"""The site of the example."""

from __future__ import annotations

import pytest

from appliance.site.model import Site
from appliance.site.site_file import load
from common.yaml_document import parse
from tests.unit.appliance.site.example import EXAMPLE


@pytest.fixture
def site() -> Site:
    return load(parse(EXAMPLE.read_text(), "site.yml"))
