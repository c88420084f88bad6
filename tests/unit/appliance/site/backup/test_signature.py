"""Backups in a place where others write: what they make or alter there is used by nobody."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from appliance.site.backup import database, restore, sealing, signature
from appliance.site.backup.catalogue import Catalogue, Record, described
from appliance.site.backup.make import Backups
from appliance.site.backup.secrets import Places, members
from appliance.site.model import Site
from common.errors import InputError, IntegrityError

NAME = "penstock-20261123-020000"
NODES = [{"name": "m1", "address": "10.0.0.1", "roles": ["reservoir", "master"]}]


def places(folder: Path) -> Places:
    return Places(folder / "site", folder / "reservoir", folder / "index", folder / "etc")


@dataclass
class Scene:
    """A site with a backup in its first and its second place, the integrator's key, and what was loaded."""

    backups: Backups
    second: Path
    key: Path
    loaded: list[str]

    @property
    def by(self) -> str:
        return signature.signer(self.backups.places)

    def forge(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Alter the record in the second place, as whoever may write there can."""
        path = self.second / f"{NAME}.json"
        told = json.loads(path.read_text())
        change(told)
        path.write_text(json.dumps(told))

    def drill(self, *, unsigned: bool = False) -> None:
        restore.drill(self.backups, None, self.second, unsigned=unsigned)

    def unseal(self, by: str, to: Path) -> None:
        restore.unseal(None, self.second, self.key, by, places(to))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    own, key, folders = places(tmp_path), tmp_path / "key.txt", [tmp_path / "backup", tmp_path / "second"]
    (own.state / "pki").mkdir(parents=True)
    (own.state / "pki/ca.key").write_text("authority")
    site = Site.model_validate({"name": "s", "nodes": NODES})
    found = Scene(Backups(site, lambda _: None, folders[0], own), folders[1], key, [])
    signature.own_key(own)
    recipient = sealing.new_identity(key)
    record = Record(NAME, "2026-11-23T02:00:00Z", "s", tables={"users": 1}, sealed=True, number=1)
    for folder in folders:
        folder.mkdir()
        (folder / record.dump).write_bytes(b"dump")
        sealing.seal(members(own, tmp_path), recipient, folder / record.seal)
        record.files = {name: described(folder / name) for name in record.needed}
        signature.sign(record, signature.own_key(own))
        record.verified = "2026-11-23T02:01:00Z"
        Catalogue(folder).write(record)

    def check(_: Site, __: Path, record: Record, **___: object) -> None:
        found.loaded.append(record.name)

    monkeypatch.setattr(database, "check", check)
    return found


def test_a_copy_of_the_sites_own_is_used(scene: Scene, tmp_path: Path) -> None:
    scene.drill()
    scene.unseal(scene.by, tmp_path / "bare")
    assert scene.loaded == [NAME]
    assert (tmp_path / "bare/site/pki/ca.key").read_text() == "authority"
    assert signature.signer(places(tmp_path / "bare")) == scene.by, "the same site signs from now on"


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(signature=""),
        lambda told: told.update(signature="AAAA"),
        lambda told: told.update(signature="é"),
        lambda told: told.update(time="2026-11-24T02:00:00Z"),
        lambda told: told.update(tables={"users": 2}),
        lambda told: told.update(number=99),
        lambda told: told.update(site="t"),
        lambda told: told["files"][f"{NAME}.sql.gz"].__setitem__(1, "0" * 64),
        lambda told: told["files"][f"{NAME}.tar.age"].__setitem__(0, 7),
        lambda told: told["files"].pop(f"{NAME}.sql.gz"),
        lambda told: told.update(sealed=False),
    ],
)
def test_a_record_that_was_altered_is_refused_before_anything_of_it_is_read(
    scene: Scene, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    scene.forge(change)
    with pytest.raises(IntegrityError, match="sign") as refused:
        scene.drill()
    assert "--unsigned" in refused.value.problems[0].hint
    with pytest.raises(IntegrityError, match="sign"):
        scene.unseal(scene.by, tmp_path / "bare")
    assert scene.loaded == []
    assert not (tmp_path / "bare").exists()


def test_one_that_another_site_signed_is_refused(scene: Scene, tmp_path: Path) -> None:
    (record,) = Catalogue(scene.second).records()
    signature.sign(record, signature.own_key(places(tmp_path / "another")))
    Catalogue(scene.second).write(record)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        scene.drill()


def test_what_is_said_later_is_not_signed(scene: Scene) -> None:
    scene.forge(lambda told: told.update(verified=f"{datetime.now(UTC):%FT%TZ}", copied="/mnt"))
    scene.drill()
    assert scene.loaded == [NAME]


def test_whoever_says_so_takes_one_that_nobody_signed(scene: Scene, tmp_path: Path) -> None:
    scene.forge(lambda told: told.update(signature=""))
    scene.drill(unsigned=True)
    scene.unseal("", tmp_path / "bare")
    assert scene.loaded == [NAME]


def test_the_first_place_takes_those_of_earlier_releases_and_no_altered_one(scene: Scene) -> None:
    first = scene.backups.catalogue
    (record,) = first.records()
    record.tables = {"users": 2}
    first.write(record)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        restore.drill(scene.backups, None, first.folder)
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        scene.backups.verify(NAME, None)
    record.signature = ""
    first.write(record)
    restore.drill(scene.backups, None, first.folder)
    assert scene.loaded == [NAME]


def test_a_folder_that_gives_another_content_the_second_time_is_noticed(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server behind the second place answers as it likes: what was looked at is not what is opened."""
    forger = places(tmp_path / "forger")
    (forger.state / "pki").mkdir(parents=True)
    (forger.state / "pki/ca.key").write_text("forged")
    whole = Catalogue.require_whole

    def then_changed(catalogue: Catalogue, record: Record, *names: str) -> None:
        whole(catalogue, record, *names)
        recipient = next(line for line in scene.key.read_text().splitlines() if line.startswith("# public key: "))
        sealing.seal(members(forger, tmp_path), recipient.split()[-1], scene.second / record.seal)

    monkeypatch.setattr(Catalogue, "require_whole", then_changed)
    with pytest.raises(IntegrityError, match="altered"):
        scene.unseal(scene.by, tmp_path / "bare")
    assert not (tmp_path / "bare/site/pki").exists()


def test_what_was_sealed_is_never_in_plain_where_others_read(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[object] = []

    def temporary(**where: object) -> NoReturn:
        used.append(where["dir"])
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(sealing, "TemporaryFile", temporary)
    with pytest.raises(OSError, match="No space left"):
        scene.unseal(scene.by, tmp_path / "bare")
    assert used == [tmp_path / "bare/site"]


def test_the_signer_is_given_or_stands_in_the_file_of_the_key(scene: Scene) -> None:
    assert signature.named(scene.by, scene.key) == scene.by
    with pytest.raises(InputError, match="nobody knows who may have made the backup"):
        signature.named(None, scene.key)
    scene.key.write_text(f"{scene.key.read_text()}{signature.LINE}{scene.by}\n")
    assert signature.named(None, scene.key) == scene.by
    scene.unseal(signature.named(None, scene.key), scene.key.parent / "bare")


@pytest.mark.parametrize("by", ["x", "ab", "é" * 64, "0" * 63, "0" * 66])
def test_what_is_no_signer_is_refused(scene: Scene, by: str) -> None:
    with pytest.raises(InputError, match="is no signer") as refused:
        signature.named(by, scene.key)
    assert "penstock backup signer" in refused.value.problems[0].hint


def test_a_site_whose_key_is_lost_comes_back_from_its_backups_when_somebody_says_so(scene: Scene) -> None:
    (scene.backups.places.root / "keys/site.key").unlink()
    with pytest.raises(IntegrityError, match="does not belong to the key") as refused:
        scene.backups.verify(NAME, None)
    assert "--unsigned" in refused.value.problems[0].hint
    restore.drill(scene.backups, None, scene.backups.folder, unsigned=True)
    assert scene.loaded == [NAME]
