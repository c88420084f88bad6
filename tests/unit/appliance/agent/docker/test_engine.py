"""What the agent asks of Docker's API, and what it believes of the answers; the rest needs a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.agent.docker import containers
from appliance.agent.docker.engine import DockerEngine
from appliance.agent.docker.engine_calls import EngineAwayError
from appliance.agent.docker.mount_points import MountPoints
from appliance.agent.labels import LABEL_ID
from common.errors import UnavailableError
from tests.fakes.docker_engine import FakeDocker, serving

ID = f"sha256:{'5f' * 32}"
DIGEST = f"sha256:{'ab' * 32}"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDocker]:
    with serving(FakeDocker(), tmp_path / "docker.sock") as fake:
        yield fake


@pytest.fixture
def engine(fake: FakeDocker, tmp_path: Path) -> Iterator[DockerEngine]:
    engine = made(tmp_path)
    engine.negotiate()
    yield engine
    engine.close()


def made(folder: Path) -> DockerEngine:
    mount_points, limits = MountPoints(folder / "mounts", []), containers.CONTAINER_LIMITS
    return DockerEngine(
        folder / "docker.sock", mount_points, limits, folder / "listener", folder / "cores", hosts=dict, site_files=dict
    )


def image(*tags: str, digests: tuple[str, ...] = (), **config: Any) -> dict[str, Any]:
    return {"Id": ID, "Size": 7, "RepoTags": list(tags), "RepoDigests": list(digests), "Config": config or None}


@pytest.mark.parametrize(
    ("oldest", "newest", "spoken"),
    [
        ("1.12", "1.41", "1.41"),
        ("1.24", "1.44", "1.44"),
        ("1.44", "1.52", "1.45"),
        ("1.45", "1.60", "1.45"),
    ],
)
def test_the_newest_version_is_spoken_that_both_sides_know(
    fake: FakeDocker, tmp_path: Path, oldest: str, newest: str, spoken: str
) -> None:
    """From Engine 20.10, which knows 1.41 at most, to Engine 29, which refuses all below 1.44."""
    fake.oldest, fake.newest = oldest, newest
    engine = made(tmp_path)
    engine.negotiate()
    assert engine.api_version == spoken
    assert engine.info()["ServerVersion"] == "29.0.0"
    assert fake.calls[-1] == f"/v{spoken}/info"


@pytest.mark.parametrize(("oldest", "newest"), [("1.12", "1.40"), ("1.46", "1.60")])
def test_an_engine_that_speaks_no_version_of_ours_is_refused_by_name(
    fake: FakeDocker, tmp_path: Path, oldest: str, newest: str
) -> None:
    fake.oldest, fake.newest = oldest, newest
    with pytest.raises(
        UnavailableError, match=rf"speaks {oldest} to {newest} of its API, and the agent 1\.41 to 1\.45"
    ):
        made(tmp_path).negotiate()


def test_an_engine_that_was_upgraded_is_asked_anew_when_its_events_are_followed(
    fake: FakeDocker, tmp_path: Path
) -> None:
    fake.oldest, fake.newest = "1.12", "1.41"
    engine = made(tmp_path)
    engine.negotiate()
    fake.oldest, fake.newest = "1.44", "1.52"
    with pytest.raises(UnavailableError, match=r"1\.41 is too old"):
        engine.info()
    assert next(engine.events())["Action"] == "start"
    assert engine.info()["ServerVersion"] == "29.0.0"


def test_an_engine_that_is_away_is_away(tmp_path: Path) -> None:
    with pytest.raises(EngineAwayError):
        made(tmp_path).negotiate()


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        ("python:3.11", ["python:3.11"]),
        ("python", ["python:latest"]),
        ("library/python:3.11", ["python:3.11"]),
        ("registry:5000/team/python:3.11", ["registry:5000/team/python:3.11"]),
    ],
)
def test_an_image_is_here_under_its_name(
    fake: FakeDocker, engine: DockerEngine, reference: str, names: list[str]
) -> None:
    fake.images[reference] = image(*names, Labels={"a": "b"})
    found = engine.image(reference)
    assert found
    assert (found.digest, found.size, list(found.labels)) == (ID, 7, ["a"])
    fake.images[reference] = image("other:1", digests=(f"python@{DIGEST}",))
    assert engine.image(reference) is None


@pytest.mark.parametrize("written", [f"python@{DIGEST}", f"python:3.11@{DIGEST}"])
def test_an_image_is_here_by_the_digest_that_its_own_registry_has_for_it(
    fake: FakeDocker, engine: DockerEngine, written: str
) -> None:
    fake.images[written] = image("python:3.11", digests=(f"other@{ID}", f"python@{DIGEST}"))
    found = engine.image(written)
    assert found
    assert found.digest == DIGEST
    fake.images[written] = image("python:3.11", digests=(f"other@{DIGEST}",))
    assert engine.image(written) is None, "another repository has it, maybe another project's"


@pytest.mark.parametrize("written", ["5", "5f5f", ID, ID.removeprefix("sha256:"), f"python@{ID}", "nothing"])
def test_what_matched_by_id_is_not_here(fake: FakeDocker, engine: DockerEngine, written: str) -> None:
    fake.images["secret:1"] = image("secret:1")
    assert engine.image(written) is None


def test_containers_are_ours_by_their_name_not_by_a_label_alone(fake: FakeDocker, engine: DockerEngine) -> None:
    fake.containers = [
        {"Id": "penstock-c1", "Names": ["/penstock-c1"], "Labels": {LABEL_ID: "c1"}},
        {"Id": "by-hand", "Names": ["/by-hand"], "Labels": {LABEL_ID: "c2"}},
        {"Id": "penstock-c3", "Names": ["/penstock-c3"], "Labels": {LABEL_ID: "forged"}},
    ]
    assert [each["Name"] for each in engine.inspect_all()] == ["/penstock-c1"]


def test_networks_are_ours_by_their_name_not_by_a_label_alone(fake: FakeDocker, engine: DockerEngine) -> None:
    labels = [("penstock-gang-7", "7"), ("somebodys", "8"), ("penstock-gang-9", "x")]
    fake.networks = [{"Name": name, "Labels": {"io.penstock.gang": label}} for name, label in labels]
    assert list(engine.networks()) == [7]
