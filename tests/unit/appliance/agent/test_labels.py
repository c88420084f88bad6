"""What an agent finds its containers by after a restart."""

from __future__ import annotations

import hashlib

import pytest

from appliance.agent.labels import check_image, digest_of, id_of, name_of
from common.errors import InputError
from tests.unit.appliance.agent.samples import make


def test_digest_tells_specs_apart_and_ignores_fields_at_their_default() -> None:
    given = '{"id":"c1","session_id":"s1","session_name":"train","project":"team-a","user":"alice","image":"python"}'
    assert digest_of(make(image="python")) == hashlib.sha256(given.encode()).hexdigest()
    assert digest_of(make()) == digest_of(make(shm_mib=64, args=[]))
    assert digest_of(make()) != digest_of(make(shm_mib=65))


def test_an_image_brings_no_labels_of_ours() -> None:
    check_image("python:3.11", ["maintainer", "com.io.penstock.id", "io.penstocks.id"])
    check_image("python:3.11", [])
    with pytest.raises(InputError) as refused:
        check_image("python:3.11", ["io.penstock.network", "a", "io.penstock.anything"])
    [problem] = refused.value.problems
    assert (problem.where, problem.hint) == ("image", "build it without labels that begin with io.penstock.")
    assert problem.reason.endswith("alone may write: io.penstock.anything, io.penstock.network")


def test_names_and_ids_lead_to_each_other() -> None:
    assert id_of(name_of("penstock-penstock-x")) == "penstock-penstock-x"
