"""Health of what the reservoir serves: until when the makers of its bundles answer for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site.model import Site
from appliance.site.node_health import NodeHealth
from appliance.site.served_health import checks
from reservoir.bundle import expiry
from reservoir.contents.artifact import PythonArtifact
from reservoir.publication.publish import publish
from tests.unit.reservoir import quick_keys as quick_keys_of_tests
from tests.unit.reservoir.parts import artifact, make_bundle, take, wheel

CREATED = "2026-01-02T03:04:05Z"
MADE = datetime.fromisoformat(CREATED)


SITE = Site.model_validate(
    {"name": "s", "nodes": [{"name": "n1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]}
)
Serve = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


@pytest.fixture
def serve(tmp_path: Path, root: Path, key: Ed25519PrivateKey) -> Serve:
    """Import and publish a bundle whose maker answers for it for so many days, or without an end."""

    def served(name: str, days: int | None) -> None:
        path = wheel(tmp_path, name)
        package = (artifact(path, PythonArtifact, name), path)
        end = expiry.end(MADE, days)
        take(make_bundle(tmp_path / name, key, name=name, created=CREATED, expires=end, made=[package]), root)
        publish(root)

    return served


@pytest.fixture(autouse=True, scope="module")
def quick_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quick_keys_of_tests.use(patch)
        yield


def found(root: Path, day: float, warn_days: int = 30) -> dict[str, tuple[str, str, str]]:
    seen = checks(root, warn_days, MADE + timedelta(days=day))
    return {check.subject: (check.state, check.evidence, check.hint) for check in seen}


def test_a_bundle_warns_before_its_end_and_fails_after_it(serve: Serve, root: Path) -> None:
    serve("small", 90)
    assert found(root, 59) == {"small": ("ok", "its maker answers for small 1.0 until 2026-04-02", "")}
    state, evidence, hint = found(root, 60.5)["small"]
    assert (state, evidence) == ("warn", "its maker answers for small 1.0 until 2026-04-02")
    assert hint == "ask the maker of small for a newer bundle, and deploy it: `penstock site deploy --bundle FOLDER`"
    state, evidence, hint = found(root, 90.1)["small"]
    assert (state, evidence) == ("fail", "its maker answers for small 1.0 no more since 2026-04-02")
    assert hint


def test_how_soon_it_warns_is_for_the_site_to_say(serve: Serve, root: Path) -> None:
    serve("small", 90)
    assert [found(root, 80, days)["small"][0] for days in (5, 15)] == ["ok", "warn"]


def test_a_bundle_without_an_end_has_no_check(serve: Serve, root: Path) -> None:
    assert found(root, 0) == {}, "a site that holds nothing"
    serve("endless", None)
    assert found(root, 0) == {}
    serve("ending", 10)
    assert found(root, 20).keys() == {"ending"}


def test_what_cannot_be_read_is_unknown_and_does_not_end_the_look(serve: Serve, root: Path) -> None:
    serve("small", 90)
    (listed,) = root.glob("bundles/*/bundle.json")
    listed.write_text("{")
    state, evidence, _ = found(root, 0)[""]
    assert state == "unknown"
    assert "the list of an imported bundle is damaged" in evidence


def test_the_controller_tells_of_it_at_each_look_by_the_bound_of_the_site(
    serve: Serve, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("small", 90)
    monkeypatch.setattr(NodeHealth, "_nodes", lambda *_: iter(()))
    site = SITE.model_copy(update={"health": SITE.health.model_copy(update={"health_bundle_warn_days": 36_500})})
    health = NodeHealth(state=tmp_path / "state", backups=tmp_path / "backup", root=root)
    (told,) = health.look(site, 0.0)
    assert told.node == ""
    (check,) = [each for each in told.checks if each.id == "bundle"]
    assert (check.thing, check.state) == ("small", expected())


def expected() -> str:
    """Return how a bundle of 2026-01-02 for 90 days counts today."""
    return "fail" if datetime.now(MADE.tzinfo) >= MADE + timedelta(days=90) else "warn"
