"""References of images: which mean the same one, which could be ids, and from where they are pulled."""

from __future__ import annotations

import pytest

from common import image_references as references
from common.errors import InputError
from common.image_references import HUB


@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ("registry:5000/torch:1.7", True),
        ("registry:5000/torch", False),
        ("registry:5000/torch@sha256:12ab", False),
    ],
)
def test_which_references_mean_the_same_image(wanted: str, same: bool) -> None:
    assert references.means(wanted, "registry:5000/torch:1.7", "sha256:12ab34cd") is same


@pytest.mark.parametrize("known", ["sha256:12ab", "registry:5000/torch@sha256:12ab"])
@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        ("registry:5000/torch@sha256:12ab", True),
        ("registry:5000/torch:2.0@sha256:12ab", True),
        ("registry:5000/torch@sha256:ffff", False),
        ("registry:5000/other@sha256:12ab", False),
        ("registry:5000/torch:2.0", False),
    ],
)
def test_a_digest_means_the_image_that_a_node_knows_by_it(wanted: str, same: bool, known: str) -> None:
    """Nodes tell it alone, or as Kubernetes does, behind the repository."""
    assert references.means(wanted, "registry:5000/torch:1.7", known) is same


@pytest.mark.parametrize("written", [f"{HUB}/library/rust:latest", "library/rust", f"index.{HUB}/library/rust"])
def test_what_may_be_left_out_of_a_reference_does_not_count(written: str) -> None:
    assert references.full(written) == references.full("rust") == "rust:latest"


DIGEST = f"sha256:{'12ab' * 16}"


@pytest.mark.parametrize("written", ["5", "deed", "12ab" * 16, "sha256:5", DIGEST, "sha512:ab", "sha256:latest"])
def test_what_an_engine_could_read_as_an_id_is_no_reference(written: str) -> None:
    with pytest.raises(InputError) as refused:
        references.check(written, "reference")
    [problem] = refused.value.problems
    assert (problem.where, problem.reason.partition(" could be")[0]) == ("reference", written)


@pytest.mark.parametrize(
    "written",
    ["python", "5:latest", "deed:1", "team/5", "registry:5000/5", f"python@{DIGEST}", f"python:3@{DIGEST}", "x5"],
)
def test_what_has_a_name_is_one(written: str) -> None:
    references.check(written)


REGISTRIES = {
    "python:3.11": "",
    "team/python": "",
    "registry/python:3.11": "",
    "registry:5000/python": "registry:5000",
    "registry.site/team/python@sha256:12ab": "registry.site",
    "localhost/python": "localhost",
    "Host/python": "Host",
    "10.0.0.1:22/a": "10.0.0.1:22",
}


@pytest.mark.parametrize(("written", "registry"), REGISTRIES.items())
def test_the_registry_stands_before_the_first_slash(written: str, registry: str) -> None:
    assert references.registry_of(written) == registry


def test_images_are_pulled_from_registries_of_the_site_alone() -> None:
    references.check_registry("registry:5000/python", ["registry:5000", "other"])
    for written, reason in (
        ("registry:5001/python", "this site pulls no images from registry:5001"),
        ("python", "this site knows no registry for python"),
    ):
        with pytest.raises(InputError) as refused:
            references.check_registry(written, ["registry:5000", "other"])
        [problem] = refused.value.problems
        assert problem.reason == reason
        assert problem.hint == "name one of its registries: registry:5000, other"
    with pytest.raises(InputError, match="it has none"):
        references.check_registry("python", [])


@pytest.mark.parametrize(
    ("written", "meant"),
    [("x", f"{HUB}/library/x"), ("library/x", f"{HUB}/library/x"), (f"index.{HUB}/x", f"{HUB}/library/x"),
     ("vendor/x", f"{HUB}/vendor/x"), (f"{HUB}/localhost/x", f"{HUB}/localhost/x"), ("localhost/x", "localhost/x"),
     ("a.example/x", "a.example/x")],
)  # fmt: skip
def test_a_repository_with_all_that_may_be_left_out(written: str, meant: str) -> None:
    assert references.qualified(written) == meant
