"""Where the edge offers the ports of sessions (N7), and what keeps them apart."""

from __future__ import annotations

import re

import pytest

from api.resources.sessions.addresses import Taken, addresses, base_path
from common.errors import ConflictError


def test_the_path_is_name_and_port() -> None:
    found = addresses("team-a", "test-ingress", [8888, 6006], [], Taken())
    assert [(address.port, address.path) for address in found] == [
        (8888, "test-ingress-8888"),
        (6006, "test-ingress-6006"),
    ]


def test_where_it_is_taken_the_project_stands_before_it() -> None:
    (address,) = addresses("team-b", "lab", [8888], [], Taken(paths={"lab-8888"}))
    assert address.path == "team-b-lab-8888"


@pytest.mark.parametrize("paths", [set(), {"lab-8888"}])
def test_what_a_project_of_a_domain_gets_tells_nothing_of_others(paths: set[str]) -> None:
    (address,) = addresses("team-b", "lab", [8888], [], Taken(paths=paths), apart=True)
    assert address.path == "team-b-lab-8888"


def test_where_that_is_taken_too_it_is_one_that_nobody_could_foresee() -> None:
    taken = Taken(paths={"lab-8888", "team-b-lab-8888"})
    found = {addresses("team-b", "lab", [8888], [], taken)[0].path for _ in range(20)}
    assert len(found) == 20
    assert all(re.fullmatch("lab-[0-9a-f]{12}-8888", path) for path in found)


@pytest.mark.parametrize("wanted", ["web-8888", "team-a-web-8888/lab", "team-a", "team-a/web", "team-a/web/lab"])
def test_nobody_squats_where_another_project_has_its_own(wanted: str) -> None:
    taken = Taken(projects={"team-a", "team-b"})
    args = [f"--NotebookApp.base_url={wanted}"]
    with pytest.raises(ConflictError, match="is taken") as refused:
        addresses("team-b", "team-a", [80], args, taken)
    assert "below team-b/, such as team-b/team-a" in refused.value.problems[0].hint
    if not re.search("-[0-9]+", wanted):
        assert addresses("team-a", "web", [8888], args, taken)[0].base_path == wanted


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--NotebookApp.base_url=test-ingress"], "test-ingress"),
        (["--ServerApp.base_url=/team-a-test-ingress/"], "team-a-test-ingress"),
        (["--ServerApp.base_url=/user/alice"], "user/alice"),
        (["--ip=0.0.0.0", "--NotebookApp.base_url=a", "--NotebookApp.base_url=b"], "b"),
        (["--NotebookApp.base_url=/"], None),
        (["--NotebookApp.base_url=../etc passwd"], None),
        (["--NotebookApp.base_url=" + "a" * 256], None),
        (["base_url=a"], None),
        ([], None),
    ],
)
def test_the_base_path_of_a_notebook(args: list[str], expected: str | None) -> None:
    assert base_path(args) == expected


def test_the_base_path_goes_with_the_first_port() -> None:
    found = addresses("team-a", "lab", [8888, 6006], ["--NotebookApp.base_url=lab"], Taken())
    assert [address.base_path for address in found] == ["lab", None]


def test_a_base_path_that_is_the_path_is_stored_once() -> None:
    (address,) = addresses("team-a", "lab", [8888], ["--NotebookApp.base_url=lab-8888"], Taken())
    assert (address.path, address.base_path) == ("lab-8888", None)


@pytest.mark.parametrize(
    "taken", [Taken(base_paths={"lab"}), Taken(paths={"lab"})], ids=["another base path", "another path"]
)
def test_nobody_takes_the_base_path_of_another(taken: Taken) -> None:
    with pytest.raises(ConflictError, match="base_url lab is taken"):
        addresses("team-a", "mine", [8888], ["--NotebookApp.base_url=lab"], taken)


def test_a_path_hides_no_base_path() -> None:
    (address,) = addresses("team-a", "lab", [8888], [], Taken(base_paths={"lab-8888/deep"}))
    assert address.path == "team-a-lab-8888"


@pytest.mark.parametrize("wanted", ["team-a", "team-a/api", "team-a/api/kernels"])
def test_no_app_lies_in_or_around_another_ones_base_path(wanted: str) -> None:
    with pytest.raises(ConflictError):
        addresses("team-b", "lab", [8888], [f"--NotebookApp.base_url={wanted}"], Taken(base_paths={"team-a/api"}))
