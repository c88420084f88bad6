from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from common.errors import ConflictError, IntegrityError
from reservoir.artifacts.rpm import modules
from reservoir.artifacts.rpm import repository as tree
from reservoir.contents.artifact import A, RpmArtifact, RpmPart
from reservoir.signing import openpgp
from tests.unit.reservoir import rpms

CREATED = datetime(2026, 1, 2, tzinfo=UTC)


def artifact(kind: type[A], name: str, filename: str, sha256: str, **metadata: str) -> A:
    return kind.model_validate(
        {
            "name": name,
            "version": "1",
            "filename": filename,
            "sha256": sha256,
            "size": 1,
            "origin": "made for a test",
            "targets": ["el9"],
            "metadata": metadata,
        }
    )


def module(name: str, stream: str) -> RpmPart:
    text = yaml.safe_dump({"document": "modulemd", "data": {"name": name, "stream": stream}})
    return artifact(RpmPart, f"modules/{name}", f"{name}.yaml", "0" * 64, part="module", stream=stream, text=text)


def test_a_chosen_stream_is_the_default_of_its_module() -> None:
    documents = list(yaml.safe_load_all(modules.served([module("perl", "5.10"), module("base", "x")])))
    defaults = {d["data"]["module"]: d["data"]["stream"] for d in documents if d["document"] == "modulemd-defaults"}
    assert defaults == {"perl": "5.10", "base": "x"}
    assert len(documents) == 4


def test_two_streams_of_one_module_are_not_published_together() -> None:
    with pytest.raises(ConflictError, match=r"modules/perl: two streams of one module are wanted: 5.10 and 6"):
        modules.served([module("perl", "5.10"), module("perl", "6")])


def test_two_packages_of_one_name_are_not_published_together(tmp_path: Path) -> None:
    both = [artifact(RpmArtifact, "tool", "tool-1-1.noarch.rpm", digit * 64) for digit in "ab"]
    with pytest.raises(ConflictError, match=r"tool-1-1.noarch.rpm: two different files"):
        tree.write(tmp_path, both, "", created=CREATED, secret=b"", place=lambda _, __: None)
    assert not list(tmp_path.iterdir())


def test_what_is_no_package_is_named(tmp_path: Path) -> None:
    def place(_: str, path: Path) -> None:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no package")

    rpm = artifact(RpmArtifact, "tool", "tool-1-1.noarch.rpm", "a" * 64)
    with pytest.raises(IntegrityError, match=r"tool-1-1.noarch.rpm: it is no RPM package"):
        tree.write(tmp_path, [rpm], "", created=CREATED, secret=b"", place=place)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        (b"a \x05 b", "a \ufffd b"),
        (b"a \xef\xbf\xbf b", "a \ufffd b"),
        (b"a \xed\xa0\x80 b", "a \ufffd\ufffd\ufffd b"),
        ("a <caf\u00e9> &#5; \U0001f600 b".encode(), "a <caf\u00e9> &#5; \U0001f600 b"),
    ],
    ids=["a control character", "what is no character", "a surrogate", "what XML can hold"],
)
def test_what_a_package_says_of_itself_leaves_the_others_readable(tmp_path: Path, said: bytes, read: str) -> None:
    rpm = artifact(RpmArtifact, "tool", "tool-1-1.noarch.rpm", "a" * 64)
    secret = openpgp.new_key()
    words = dict.fromkeys((rpms.DESCRIPTION, rpms.VENDOR, rpms.URL), said)

    def place(_: str, path: Path) -> None:
        rpms.write(path, words)

    tree.write(tmp_path, [rpm], "", created=CREATED, secret=secret, place=place)
    (primary,) = (tmp_path / "repodata").glob("*-primary.xml.gz")
    (entry,) = ET.fromstring(gzip.decompress(primary.read_bytes()))
    texts = {one.tag.rpartition("}")[2]: one.text for one in entry.iter()}
    assert [texts[tag] for tag in ("description", "vendor", "url")] == [read] * 3
    for path in (tmp_path / "repodata").glob("*.xml.gz"):
        ET.fromstring(gzip.decompress(path.read_bytes()))


def test_the_index_is_signed_and_the_same_every_time(tmp_path: Path) -> None:
    secret = openpgp.new_key()
    for name in ("one", "two"):
        tree.write(tmp_path / name, [], "---\na: b\n", created=CREATED, secret=secret, place=lambda _, __: None)
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "repodata").iterdir()} for name in ("one", "two")
    )
    keys = openpgp.certificates(openpgp.public_key(secret), "key")
    assert openpgp.signed_beside(keys, one["repomd.xml"], one.pop("repomd.xml.asc"))
    assert one | {"repomd.xml.asc": two["repomd.xml.asc"]} == two
    (modules,) = [content for name, content in one.items() if name.endswith("-modules.yaml.gz")]
    assert gzip.decompress(modules) == b"---\na: b\n"
