from __future__ import annotations

import errno
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from common.errors import ConflictError, InputError, IntegrityError, UnavailableError
from reservoir.bundle import bundles, verification
from reservoir.bundle.verification import missing_media
from reservoir.contents.artifact import FileArtifact, PythonArtifact
from reservoir.intake import arrival
from reservoir.intake.store import Store
from reservoir.media import split
from reservoir.signing import ed25519
from tests.counting import calls
from tests.unit.reservoir.parts import artifact, contents, flip_bit, make_bundle, parts, take, wheel

INSTALLER = Path(split.__file__).parents[1] / "installer"
SIZE = 1_475_424 + sum(split.cost((INSTALLER / name).stat().st_size) for name in ("install.sh", "bootstrap.py"))
"""Every medium carries the installer, which grows."""
COUNT = 6


@pytest.fixture
def bundle(tmp_path: Path, key: Ed25519PrivateKey) -> Path:
    """A bundle with two blobs bigger than a medium, one of which repeats itself."""
    path = tmp_path / "big.bin"
    path.write_bytes(random.Random(1).randbytes(1_000_000))
    made = [*parts(tmp_path / "parts"), (artifact(path, FileArtifact, "big.bin"), path)]
    return make_bundle(tmp_path, key, made=made)


@pytest.fixture
def media(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> list[Path]:
    made = split.split(bundle, SIZE, key, tmp_path / "media")
    # copies, so that a test may damage one and nothing else
    for path in [each for folder in made for each in folder.rglob("*") if each.is_file()]:
        content, mode = path.read_bytes(), path.stat().st_mode
        path.unlink()
        path.write_bytes(content)
        path.chmod(mode)
    return made


@pytest.mark.parametrize(
    ("text", "size"),
    [("dvd", 4_700_000_000), ("4.7GB", 4_700_000_000), ("cd", 700_000_000), ("650 MB", 650_000_000),
     ("8GiB", 8 << 30), ("bd", 25_000_000_000), ("1000", 1000)],
)  # fmt: skip
def test_sizes_are_said_as_people_say_them(text: str, size: int) -> None:
    assert split.capacity(text) == size


@pytest.mark.parametrize("text", ["", "big", "4.7 gallons", "-1GB", "GB", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        split.capacity(text)


def test_every_medium_fits_its_disc_and_is_whole(media: list[Path], key: Ed25519PrivateKey) -> None:
    assert [path.name for path in media] == [f"{number}-of-{COUNT}" for number in range(1, COUNT + 1)]
    for path in media:
        taken = sum(split.cost(each.stat().st_size) for each in path.rglob("*") if each.is_file())
        assert taken + split.FILE_SYSTEM <= SIZE
        assert (path / "install.sh").exists()
        verification.verify(path, key.public_key())
    parts = [verification.verify(path) for path in media]
    assert missing_media(parts[1:3]) == [1, 4, 5, 6]
    assert missing_media(parts) == []


def test_the_same_bundle_is_split_the_same_way(
    tmp_path: Path, bundle: Path, media: list[Path], key: Ed25519PrivateKey
) -> None:
    again = split.split(bundle, SIZE, key, tmp_path / "again")
    assert [(path / "volume.json").read_bytes() for path in again] == [
        (path / "volume.json").read_bytes() for path in media
    ]


def test_whole_blobs_take_no_space_of_their_own(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> None:
    (medium,) = split.split(bundle, 100_000_000, key, tmp_path / "one")
    for path in (medium / bundles.BLOBS).iterdir():
        assert path.samefile(bundle / bundles.BLOBS / path.name)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (3, 5, 1, 0, 2, 4)])
def test_media_are_imported_in_any_order(
    tmp_path: Path, bundle: Path, media: list[Path], order: tuple[int, ...]
) -> None:
    site, other = tmp_path / "site", tmp_path / "other"
    left = set(range(1, COUNT + 1))
    for index in order[:-1]:
        left.remove(index + 1)
        done = take(media[index], site)
        assert (done.complete, done.missing, done.damaged, done.media) == (False, sorted(left), [], COUNT)
        assert Store(site).imported() == {}
    assert take(media[order[-1]], site).complete
    take(bundle, other)
    assert contents(site) == contents(other)
    assert not take(media[0], site).changed


def test_a_medium_twice_is_no_harm(tmp_path: Path, media: list[Path]) -> None:
    site = tmp_path / "site"
    for path in (media[0], media[0], media[1]):
        done = take(path, site)
    assert done.missing == [3, 4, 5, 6]


@pytest.mark.parametrize("damage", ["flipped", "missing", "short", "beside"])
def test_a_damaged_medium_is_named_and_what_is_good_of_it_counts(
    tmp_path: Path, bundle: Path, media: list[Path], key: Ed25519PrivateKey, damage: str
) -> None:
    site = tmp_path / "site"
    *others, mixed = sorted(media, key=lambda path: len(list((path / bundles.BLOBS).iterdir())))
    number = mixed.name[0]
    victim, *good = sorted((mixed / bundles.BLOBS).iterdir())
    content = victim.read_bytes()
    if damage == "flipped":
        flip_bit(victim)
    elif damage == "missing":
        victim.unlink()
    elif damage == "short":
        victim.write_bytes(content[:-1])
    else:
        flip_bit(mixed / "bootstrap.py")
    with pytest.raises(IntegrityError, match=f"medium {number} of {COUNT}: .*get medium {number} of {COUNT} again"):
        verification.verify(mixed)
    with pytest.raises(
        IntegrityError, match=f"medium {number} of {COUNT}: .*what is good of it and of the others is kept"
    ):
        take(mixed, site)
    (arriving,) = Store(site).incoming.iterdir()
    assert {path.name for path in good} <= {path.name for path in arriving.iterdir()}
    for path in others:
        done = take(path, site)
    if damage == "beside":
        assert done.complete
        return
    assert (done.missing, done.damaged) == ([], [int(number)])
    for path in good:
        path.unlink()
    victim.write_bytes(content)
    assert take(mixed, site).complete, "nothing good had to be carried again"


def test_a_medium_with_something_extra_is_refused_whole(tmp_path: Path, media: list[Path]) -> None:
    (media[0] / "autorun.inf").write_text("more")
    with pytest.raises(IntegrityError, match=r"autorun.inf: is not in the bundle's list"):
        take(media[0], tmp_path / "site")
    assert not Store(tmp_path / "site").incoming.exists()


@pytest.mark.parametrize("what", ["whole", "piece"])
def test_a_blob_that_was_damaged_while_it_waited_is_told_and_comes_again(
    tmp_path: Path, media: list[Path], what: str
) -> None:
    site = tmp_path / "site"
    medium = verification.read(media[0]).medium
    assert medium
    big = max(medium.cut.values(), key=lambda pieces: len({piece.sha256 for piece in pieces}))
    last = next(path for path in media if (path / bundles.BLOBS / big[-1].sha256).exists())
    for path in media:
        if path != last:
            take(path, site)
    (arriving,) = Store(site).incoming.iterdir()
    pieces = {piece.sha256 for piece in big}
    held = next(path for path in arriving.iterdir() if path.is_file() and (path.name in pieces) == (what == "piece"))
    flip_bit(held)
    if what == "piece":
        assert take(last, site).damaged
    else:
        with pytest.raises(IntegrityError, match=r"was damaged at the site.*import medium [0-9, ]+ again"):
            take(last, site)
    assert Store(site).imported() == {}
    for path in media:
        done = take(path, site)
    assert done.identity in Store(site).imported()


def test_media_wait_while_other_bundles_come(tmp_path: Path, media: list[Path], key: Ed25519PrivateKey) -> None:
    site = tmp_path / "site"
    take(media[0], site)
    take(make_bundle(tmp_path, key, name="other"), site)
    assert {3, 4, 6} <= set(take(media[1], site).missing) <= {3, 4, 5, 6}
    take(make_bundle(tmp_path, key, version="2.0"), site)
    assert not Store(site).incoming.exists(), "what a newer bundle makes useless is forgotten"


def test_a_disk_that_fills_up_keeps_what_is_good_and_nothing_half(
    tmp_path: Path, media: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    take(media[0], site)
    (arriving,) = Store(site).incoming.iterdir()
    good = {path.name for path in arriving.iterdir()}

    def half(*_: object) -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("reservoir.intake.copies.carried_pieces", half)
        with pytest.raises(UnavailableError, match="no space left on the disk"):
            take(media[1], site)
    assert {path.name for path in arriving.iterdir()} == good
    assert take(media[1], site).missing == [3, 4, 5, 6]


def test_a_disk_that_fills_up_while_pieces_are_joined_keeps_the_pieces_alone(
    tmp_path: Path, media: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, whole = tmp_path / "site", verification.carried_pieces
    for folder in media[:-1]:
        take(folder, site)

    def full(path: Path, size: int) -> Iterator[bytes]:
        if path.is_relative_to(site):
            yield b"half"
            raise OSError(errno.ENOSPC, "No space left on device")
        yield from whole(path, size)

    with monkeypatch.context() as patch:
        patch.setattr(arrival, "carried_pieces", full)
        with pytest.raises(UnavailableError, match="no space left on the disk"):
            take(media[-1], site)
    assert not list(site.rglob("*.partial"))
    assert take(media[-1], site).complete


def test_a_disk_that_fills_up_keeps_no_unfinished_media(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("reservoir.media.carry.flush_all", full)
    with pytest.raises(UnavailableError, match="no space left on the disk"):
        split.split(bundle, 20_000_000, key, tmp_path / "discs")
    assert not list((tmp_path / "discs").iterdir())


def test_media_of_one_set_have_one_maker(tmp_path: Path, bundle: Path, media: list[Path]) -> None:
    site, stranger = tmp_path / "site", Ed25519PrivateKey.generate()
    take(media[0], site)
    forged = media[1]
    (forged / bundles.PUBLIC_KEY).write_bytes(ed25519.public_pem(stranger))
    for name in (bundles.LIST, "volume.json"):
        (forged / f"{name}.sig").write_bytes(ed25519.sign(stranger, (forged / name).read_bytes()))
    with pytest.raises(IntegrityError, match="does not belong to the key"):
        take(forged, site)
    assert take(media[2], site).missing == [2, 4, 5, 6]


def test_media_are_not_split_again(tmp_path: Path, media: list[Path], key: Ed25519PrivateKey) -> None:
    with pytest.raises(InputError, match="one of several media already"):
        split.split(media[0], SIZE, key, tmp_path)


def test_a_medium_must_hold_what_every_medium_needs(tmp_path: Path, bundle: Path, key: Ed25519PrivateKey) -> None:
    for size, said in ((500_000, "0.5"), (0, "0.0")):
        with pytest.raises(InputError, match=rf"a medium of {said} MB is too small"):
            split.split(bundle, size, key, tmp_path)


def test_media_are_signed_with_the_key_of_the_bundle(tmp_path: Path, bundle: Path) -> None:
    with pytest.raises((ConflictError, IntegrityError), match="key"):
        split.split(bundle, SIZE, Ed25519PrivateKey.generate(), tmp_path)


def test_the_installer_finds_its_wheels_on_the_first_medium(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    needs = {"penstock": ["a", "b; extra == 'site'", "never; extra == 'api'", "old; python_version < '3'"], "a": ["C"]}
    filling = "".join(hashlib.sha256(b"%d" % number).hexdigest() for number in range(4_000))
    made = []
    for name in ("penstock", "pip", "a", "b", "c", "never", "old", "other"):
        path = wheel(folder, name=name, body=f"TEXT = '{filling}'", requires=needs.get(name, []))
        made.append((artifact(path, PythonArtifact, name), path))
    bundle = make_bundle(tmp_path, key, made=made)
    first, *others = split.split(bundle, 2_800_000, key, tmp_path / "media")
    assert others
    names = {artifact.sha256: artifact.name for artifact in verification.read(bundle).bundle.artifacts}
    assert {"penstock", "pip", "a", "b", "c"} <= {names[path.name] for path in (first / bundles.BLOBS).iterdir()}
    with pytest.raises(InputError, match="what every medium and the installer need"):
        split.split(bundle, 1_800_000, key, tmp_path / "media")


@given(sizes=st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 10**6), max_size=30))
def test_everything_is_put_somewhere_and_nothing_overflows(sizes: dict[str, int]) -> None:
    plan = split.Plan(space=split.cost(10**6))
    for name, size in sizes.items():
        plan.put(name, size)
    assert {name: size for files in plan.media for name, size in files.items()} == sizes
    assert all(split.taken(files) <= plan.space for files in plan.media)


def test_twice_the_files_are_at_most_twice_the_work() -> None:
    def work(count: int) -> int:
        plan = split.Plan(space=split.cost(10**6))

        def put() -> None:
            for number in range(count):
                plan.put(str(number), 1)

        return calls(put)

    assert work(400) <= 2.3 * work(200)


def test_a_cut_blob_that_the_site_holds_damaged_comes_again(
    tmp_path: Path, bundle: Path, key: Ed25519PrivateKey
) -> None:
    site, again = tmp_path / "site", tmp_path / "again"
    again.mkdir()
    take(bundle, site)
    held = verification.read(bundle).bundle
    big = next(artifact.sha256 for artifact in held.artifacts if artifact.name == "big.bin")
    made = [(artifact, bundle / bundles.BLOBS / artifact.sha256) for artifact in held.artifacts]
    media = split.split(make_bundle(again, key, version="2.0", made=made), SIZE, key, again)
    medium = verification.read(media[0]).medium
    assert medium
    assert big in medium.cut
    flip_bit(Store(site).blobs / big)
    with pytest.raises(IntegrityError, match=r"big.bin was damaged at the site.*import medium [0-9, ]+ again"):
        take(media[0], site)
    for path in media:
        done = take(path, site)
    assert done.complete
    assert hashlib.sha256((Store(site).blobs / big).read_bytes()).hexdigest() == big
