"""Which key was meant by one that no model knows."""

from __future__ import annotations

import pytest

from appliance.site.model import Site
from common.errors import InputError
from common.known_keys import nearest
from common.yaml_document import check, parse
from reservoir.manifest.model import Manifest


@pytest.mark.parametrize(
    ("location", "meant"),
    [
        (("storages",), "storage"),
        (("Nodes",), "nodes"),
        (("nodes", 0, "adress"), "address"),
        (("nodes", 1, "simulated_gpus", "modell"), "model"),
        (("nodes", 1, "kubernetes", "namespce"), "namespace"),
        (("storage", 0, "nfs", "mountpath"), "mount_path"),
        (("storage", 0, "external", "mountpath"), "path"),
        (("control_api", "login_lifetime"), "login_lifetime_s"),
        (("colour",), None),
    ],
)
def test_the_key_that_was_meant(location: tuple[int | str, ...], meant: str | None) -> None:
    assert nearest(Site, location) == meant


def test_a_misspelt_key_of_the_manifest_is_told_with_the_one_that_was_meant() -> None:
    document = parse("schema: 1\nname: one\nversion: '1'\ntargets: []\nimges: []\n", "manifest.yml")
    with pytest.raises(InputError) as caught:
        check(Manifest, document)
    said = {problem.where: problem.hint for problem in caught.value.problems}
    assert said["manifest.yml:5: imges"] == "did you mean `images`? Otherwise remove the key"
