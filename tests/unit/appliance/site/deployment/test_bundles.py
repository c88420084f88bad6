"""The bundle of a deploy: what is imported and published, and what stops before."""

from __future__ import annotations

import pytest

from appliance.site import deployment, driver_bundles, product, served
from appliance.site.model import Site
from common.errors import ConflictError, InputError, IntegrityError, NotFoundError, Problem
from common.progress import silent
from reservoir.contents.bundle import Bundle
from tests.unit.appliance.site.deployment.world import World, records, run


def test_only_a_bundle_that_is_new_ends_a_rollback(site: Site, world: World) -> None:
    run(site, world)
    assert not world.unattended
    world.changed, world.rolled_back = False, True
    assert run(site, world).rolled_back == 3
    assert world.unattended


def test_a_bad_bundle_stops_before_anything_else(site: Site, world: World) -> None:
    world.failure = IntegrityError("one bit is wrong")
    with pytest.raises(IntegrityError):
        run(site, world)
    assert world.did == ["import"]
    assert not (world.state / "admin-password").exists()
    assert records(world)[0]["ok"] is False


def test_a_bundle_that_is_only_mended_ends_no_rollback(site: Site, world: World) -> None:
    world.mended = True
    assert "bundle imported" in run(site, world).changed
    assert world.unattended


def test_another_bundle_that_cannot_be_published_stops_no_deploy(site: Site, world: World) -> None:
    world.left_out = [Problem("team-1-def: notes.txt", "two different files have one name", "rename one in its bundle")]
    run(site, world)
    world.left_out = [Problem("penstock-1.2.3-44136fa355b3: notes.txt", "is missing", "carry its bundle here again")]
    with pytest.raises(ConflictError, match=r"penstock-1.2.3-44136fa355b3: notes.txt: is missing"):
        run(site, world)


def test_without_a_bundle_it_is_the_one_that_the_reservoir_holds(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is imported, and what an administrator went back to stays."""
    monkeypatch.setattr(product, "due", lambda _: {"other-1": world.another(), "penstock-1.2.3-abc": world.bundle()})
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(product, "require_sound", lambda _, name, *, read, **__: asked.append((name, read)))
    done = run(site, world, bundle=None)
    assert (done.ok, done.bundle, done.version) == (True, "penstock-1.2.3-abc", "1.2.3")
    assert world.did[0] == "publish"
    assert world.unattended
    assert "bundle imported" not in done.changed
    assert product.verified(None, world.state / "reservoir", silent).identity == "penstock-1.2.3-abc"
    assert asked == [("penstock-1.2.3-abc", False), ("penstock-1.2.3-abc", True)]
    world.left_out = [Problem("penstock-1.2.3-abc: notes.txt", "is missing", "carry its bundle here again")]
    with pytest.raises(ConflictError, match=r"notes\.txt"):
        run(site, world, bundle=None)
    monkeypatch.setattr(product, "due", lambda _: {"other-1": world.another()})
    with pytest.raises(NotFoundError, match=r"no bundle of the reservoir holds penstock.*--bundle"):
        run(site, world, bundle=None)


def test_a_bundle_of_something_else_is_refused(site: Site, world: World) -> None:
    world.artifacts = []
    with pytest.raises(NotFoundError, match="the bundle holds no penstock"):
        run(site, world)
    assert world.did == ["import", "publish", "issue"]


def test_a_bundle_of_a_newer_version_than_the_controller_is_installed_here_first(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(product, "version", lambda _: "1.2.2")
    with pytest.raises(ConflictError, match=r"brings Penstock 1.2.3, .* has 1.2.2.*`penstock site upgrade bundle`"):
        run(site, world)
    assert world.did == []
    # what a site went back to is older
    monkeypatch.setattr(product, "version", lambda _: "1.3")
    assert run(site, world).ok


def test_every_deploy_warns_of_what_is_served_beyond_its_time(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Bundle(
        name="old",
        version="1",
        created="2026-01-01T00:00:00Z",
        expires="2026-01-02T00:00:00Z",
        targets=[],
        artifacts=[],
    )
    monkeypatch.setattr(served, "bundles", lambda _: {"old-1": old})
    monkeypatch.setattr(driver_bundles, "require", lambda *_: None)
    said: list[str] = []
    monkeypatch.setattr(deployment.DeployListener, "progress", lambda _, step, *__: said.append(step))
    run(site, world)
    assert "warning: the time of old 1 is over since 2026-01-02; ask its maker for a newer one" in said


def test_nodes_whose_release_the_bundle_does_not_serve_are_named_before_anything_else(site: Site, world: World) -> None:
    world.releases = ["bookworm"]
    with pytest.raises(InputError) as caught:
        run(site, world)
    assert [problem.where for problem in caught.value.problems] == ["nodes[2].release", "nodes[3].release"]
    assert "worker2 runs trixie, and the bundle is for bookworm. Hint: correct the release" in str(caught.value)
    assert world.did == []


def test_media_that_are_not_complete_stop_the_deploy(site: Site, world: World) -> None:
    world.missing = [2, 3]
    with pytest.raises(ConflictError, match=r"not complete: medium 2, 3 of 3 is missing.*penstock reservoir import"):
        run(site, world)
    assert world.did == ["import"]
