"""Site files as somebody writes them: what is read of them, and what is wrong with them."""

from __future__ import annotations

from textwrap import dedent

import pytest

from appliance.site.model import Site
from appliance.site.site_file import load
from common.errors import InputError
from common.yaml_document import parse

GOOD = """\
name: north
nodes:
  - {name: m1, address: 10.0.0.2, roles: [reservoir, master]}
  - {name: w1, address: 10.0.0.3, roles: [worker], agent_port: 6001}
  - {name: s1, address: 10.0.0.4, roles: [storage]}
storage:
  - {kind: external, name: shared, path: /srv/shared}
  - {kind: nfs, name: archive, path: /srv/archive}
"""


def site(text: str) -> Site:
    return load(parse(dedent(text), "site.yml"))


def problems(text: str) -> list[tuple[str, str, str]]:
    with pytest.raises(InputError) as caught:
        site(text)
    return [(problem.where, problem.reason, problem.hint) for problem in caught.value.problems]


def check_mistake(old: str, new: str, where: str, reason: str, hint: str) -> None:
    """Expect what is said of a good file with one mistake."""
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    assert found[0][0] == f"site.yml:{where}"
    assert reason in found[0][1]
    assert hint in found[0][2]
