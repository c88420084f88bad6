"""One site for all fault tests; each leaves it empty, and the agents well-behaved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.agent.conftest import Authority, authority  # noqa: F401
from tests.integration.faults.site import FaultySite, faulty_site


@pytest.fixture(scope="module")
def whole_site(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultySite]:  # noqa: F811
    with faulty_site(authority, tmp_path_factory.mktemp("faults")) as site:
        yield site


@pytest.fixture
def site(whole_site: FaultySite) -> Iterator[FaultySite]:
    yield whole_site
    behaviour = whole_site.fleet.fleet.behaviour
    behaviour.pull_s = behaviour.start_s = behaviour.remove_s = behaviour.resize_s = 0.0
    behaviour.copies, behaviour.late, behaviour.mute = 1, False, False
    for session in whole_site.sessions():
        whole_site.delete(session["name"], session["project"])
    whole_site.until(lambda: not whole_site.sessions())
    whole_site.until(lambda: not whole_site.fleet.fleet.containers())
