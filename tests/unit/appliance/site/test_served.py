"""A deploy installs what the site serves, or nothing: the stores are real, and it never comes to the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.site import deployment, driver_bundles, playbook, preflight, product
from appliance.site.deployment import DeployListener
from appliance.site.model import Site
from appliance.site.planning import rehearse
from appliance.site.served import bundles, foreseen
from common.errors import ConflictError
from reservoir.contents.artifact import PythonArtifact
from reservoir.contents.bundle import Bundle
from reservoir.intake.store import Store
from reservoir.publication.publish import publish, rollback
from tests.unit.reservoir import quick_keys as quick_keys_of_tests
from tests.unit.reservoir.parts import artifact, make_bundle, take, wheel

NODES = [
    {"name": "m1", "address": "10.0.0.2", "roles": ["reservoir", "master"]},
    {"name": "w1", "address": "10.0.0.3", "roles": ["worker"], "agent_port": 6001},
]
Ask = Callable[[Path | None], None]


class _FarEnoughError(Exception):
    """The deploy has its bundle, and would go on to the nodes."""


@pytest.fixture(autouse=True, scope="module")
def quick_keys() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quick_keys_of_tests.use(patch)
        yield


@pytest.fixture
def versions(tmp_path: Path) -> list[Path]:
    """Two versions of the product."""
    key, made = Ed25519PrivateKey.generate(), []
    for version in ("1.0", "2.0"):
        path = wheel(tmp_path, name="penstock", version=version)
        package = artifact(path, PythonArtifact, "penstock", version)
        made.append(make_bundle(tmp_path, key, name="penstock", version=version, made=[(package, path)]))
    return made


@pytest.fixture
def root(tmp_path: Path, versions: list[Path]) -> Path:
    """The reservoir of a site that served both."""
    for version in versions:
        take(version, tmp_path / "reservoir")
        publish(tmp_path / "reservoir")
    return tmp_path / "reservoir"


@pytest.fixture(params=["deploy", "check"])
def ask(request: pytest.FixtureRequest, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Deploy, or rehearse that, until it has its bundle."""
    site, state = Site.model_validate({"name": "north", "nodes": NODES}), tmp_path / "state"
    monkeypatch.setattr(product, "version", lambda _name: "2.0")

    def far_enough(*_: Any, **__: Any) -> Any:
        raise _FarEnoughError

    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(deployment, "newest_step", lambda _: "")
    monkeypatch.setattr(playbook, "run", far_enough)
    monkeypatch.setattr(preflight, "with_questions", far_enough)

    def run(bundle: Path | None) -> None:
        asked = rehearse if request.param == "check" else partial(deployment.deploy, file="")
        with pytest.raises(_FarEnoughError):
            asked(site, bundle, DeployListener(), state=state, root=root)

    return run


def test_what_is_served_is_deployed_by_name_and_without(ask: Ask, versions: list[Path]) -> None:
    ask(versions[1])
    ask(None)


def test_an_older_bundle_that_is_held_is_not_installed_while_a_newer_one_is_served(
    ask: Ask, versions: list[Path], root: Path
) -> None:
    with pytest.raises(ConflictError, match=r"serves penstock-2.0-\w+, and not penstock-1.0-\w+") as caught:
        ask(versions[0])
    (problem,) = caught.value.problems
    assert f"run `penstock reservoir import --allow-rollback {versions[0]}`, and deploy again" in problem.hint
    take(versions[0], root, allow_rollback=True)
    ask(versions[0])


def test_on_a_site_that_went_back_what_is_served_alone_is_deployed(ask: Ask, versions: list[Path], root: Path) -> None:
    rollback(root)
    ask(versions[0])
    ask(None)
    with pytest.raises(ConflictError, match=r"serves penstock-1.0-\w+, and not penstock-2.0") as caught:
        ask(versions[1])
    assert "run `penstock reservoir publish`, and deploy again" in caught.value.problems[0].hint
    publish(root)
    ask(versions[1])


def test_what_was_set_aside_counts_again_with_a_deploy_of_it(ask: Ask, versions: list[Path], root: Path) -> None:
    take(versions[0], root, allow_rollback=True)
    publish(root)
    ask(versions[1])


def test_what_is_served_counts_for_a_deploy_and_not_what_is_held(versions: list[Path], root: Path) -> None:
    """Drivers of a bundle that is held and not served could not be installed."""
    store = Store(root)

    def told(found: dict[str, Bundle]) -> list[str]:
        return [bundle.version for bundle in found.values()]

    assert told(bundles(store)) == told(foreseen(store, "new")) == ["2.0"]
    rollback(root)
    (served,) = bundles(store)
    assert told(bundles(store)) == told(foreseen(store, served)) == ["1.0"]
    assert told(foreseen(store, "new")) == ["2.0"]


def test_drivers_are_looked_for_in_what_is_served(
    ask: Ask, versions: list[Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked for is played; whose bundles are looked at is not."""
    asked: list[list[str]] = []
    monkeypatch.setattr(
        driver_bundles, "require", lambda _, found: asked.append(sorted({each.version for each in found}))
    )
    rollback(root)
    ask(versions[0])
    assert asked == [["1.0"]]
