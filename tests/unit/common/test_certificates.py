"""Certificates of a service in files, and what is said of those that cannot be used."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from common import certificates
from common.errors import InputError
from tests.integration.agent.conftest import make_authority

HINT = "`penstock site deploy` brings it back"


def load(ca: Path, cert: Path, key: Path) -> ssl.SSLContext:
    return certificates.context(ssl.Purpose.CLIENT_AUTH, ca, cert, key)


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("text", ["", "what is no certificate", None])
def test_the_file_that_cannot_be_used_is_named_and_how_it_comes_back(
    tmp_path: Path, damaged: int, text: str | None
) -> None:
    authority = make_authority(tmp_path)
    files = authority.ca, *authority.issue("worker1")
    load(*files)
    if text is None:
        files[damaged].unlink()
    else:
        files[damaged].write_text(text)
    with pytest.raises(InputError) as refused:
        load(*files)
    [problem] = refused.value.problems
    assert (problem.where, problem.hint) == (str(files[damaged]), HINT)


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    cert, _ = authority.issue("worker1")
    _, key = authority.issue("worker2")
    with pytest.raises(InputError, match=f"the key cannot be used with {cert}"):
        load(authority.ca, cert, key)
