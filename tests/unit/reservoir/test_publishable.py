"""What is whole can be published: build, verify and import refuse what a publication would."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from common.errors import IntegrityError
from common.progress import silent
from reservoir.artifacts.image import oci
from reservoir.artifacts.rpm.header import MAGIC
from reservoir.bundle import bundles
from reservoir.bundle.rehearsal import rehearse
from reservoir.bundle.verification import verify
from reservoir.contents.artifact import (
    Artifact,
    DebianArtifact,
    FileArtifact,
    ImageArtifact,
    PythonArtifact,
    RpmArtifact,
)
from reservoir.contents.bundle import Bundle
from reservoir.contents.target import TargetRecord
from reservoir.download.cache import Cache
from tests.unit.reservoir import rpms
from tests.unit.reservoir.parts import (
    STANZA,
    TARGET,
    artifact,
    image_blobs,
    image_parts,
    make_bundle,
    parts,
    take,
    wheel,
)

pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")
Made = list[tuple[Artifact, Path]]
ROCKY = TargetRecord(name="rocky9", os="rpm", release="9", arch="amd64")
IMAGE = {"tag": "1", "digest": "", "session": True, "media_type": oci.MANIFEST, "architectures": ["amd64"]}


def two_files(folder: Path) -> Made:
    found: Made = []
    for name in ("one", "other"):
        (folder / name).mkdir()
        path = folder / name / "notes.txt"
        path.write_text(name)
        found.append((artifact(path, FileArtifact, "notes.txt"), path))
    return found


def two_wheels(folder: Path) -> Made:
    found: Made = []
    for name in ("one", "other"):
        (folder / name).mkdir()
        path = wheel(folder / name, body=name)
        found.append((artifact(path, PythonArtifact, "demo"), path))
    return found


def two_spellings(*names: tuple[str, str]) -> Callable[[Path], Made]:
    """Wheels of one project and version to pip, each spelled in another way."""

    def made(folder: Path) -> Made:
        found: Made = []
        for name, version in names:
            path = wheel(folder, name, version)
            found.append((artifact(path, PythonArtifact, name, version), path))
        return found

    return made


def two_debs(folder: Path) -> Made:
    found: Made = []
    for filename in ("hello_1.0_amd64.deb", "hello_1.0_amd64-vendor.deb"):
        path = folder / filename
        path.write_text(filename)
        found.append((artifact(path, DebianArtifact, "hello", stanza=HELLO), path))
    return found


def two_rpms(folder: Path) -> Made:
    found: Made = []
    for filename, version in (("tool-1-1.noarch.rpm", "1-1"), ("tool-1-1.vendor.noarch.rpm", "0:1-1")):
        path = rpms.write(folder / filename, payload=filename.encode())
        found.append((artifact(path, RpmArtifact, "tool", version).model_copy(update={"targets": ["rocky9"]}), path))
    return found


def no_zip(folder: Path) -> Made:
    path = folder / "demo-1.0-py3-none-any.whl"
    path.write_bytes(b"no archive")
    return [(artifact(path, PythonArtifact, "demo"), path)]


def no_metadata(folder: Path) -> Made:
    path = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo.py", "")
    return [(artifact(path, PythonArtifact, "demo"), path)]


def no_name_of_a_wheel(folder: Path) -> Made:
    path = wheel(folder).rename(folder / "demo.whl")
    return [(artifact(path, PythonArtifact, "demo"), path)]


def another_wheel(name: str = "demo", version: str = "1.0", more: str = "") -> Callable[[Path], Made]:
    """A wheel with the file name of demo 1.0 that is inside another one, or has one more member."""

    def made(folder: Path) -> Made:
        path = wheel(folder, name, version).rename(folder / "demo-1.0-py3-none-any.whl")
        if more:
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr(more, "")
        return [(artifact(path, PythonArtifact, "demo"), path)]

    return made


def wheel_that_says(**changed: bytes) -> Callable[[Path], Made]:
    """A wheel with other contents of its `METADATA` and the like, which may be more of them."""

    def made(folder: Path) -> Made:
        path = folder / "demo-1.0-py3-none-any.whl"
        files = {"METADATA": DEMO, "WHEEL": b"Wheel-Version: 1.0\n", "RECORD": b""} | changed
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(f"demo-1.0.dist-info/{name.replace('_txt', '.txt')}", content)
        return [(artifact(path, PythonArtifact, "demo"), path)]

    return made


def called(name: str) -> Callable[[Path], Made]:
    """A wheel of demo that the list calls otherwise."""

    def made(folder: Path) -> Made:
        path = wheel(folder)
        return [(artifact(path, PythonArtifact, name), path)]

    return made


def no_record(folder: Path) -> Made:
    """A wheel as a tool makes it that only packs files."""
    ((_, path),) = wheel_that_says()(folder)
    path.write_bytes(path.read_bytes().replace(b"RECORD", b"RECORT"))
    return [(artifact(path, PythonArtifact, "demo"), path)]


def another_folder(folder: Path) -> Made:
    path = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    return [(artifact(path, PythonArtifact, "demo"), path)]


def entry(text: str) -> Callable[[Path], Made]:
    def made(folder: Path) -> Made:
        path = folder / "hello_1.0_amd64.deb"
        path.write_bytes(b"deb")
        return [(artifact(path, DebianArtifact, "hello", stanza=text), path)]

    return made


def no_rpm(folder: Path) -> Made:
    path = folder / "tool-1-1.noarch.rpm"
    path.write_bytes(b"no package" * 100)
    return [(artifact(path, RpmArtifact, "tool", "1-1").model_copy(update={"targets": ["rocky9"]}), path)]


def half_an_rpm(folder: Path) -> Made:
    """A package whose headers say what ours reads, and nothing that rpm takes for a package."""
    words = {1000: b"tool", 1001: b"1", 1002: b"1", 1022: b"noarch", 1014: b"MIT"}
    index, data = b"", b""
    for tag, word in words.items():
        # the licence is of a kind that there is not
        index += struct.pack(">IIII", tag, 117 if tag == 1014 else 6, len(data), 1)
        data += word + b"\0"
    header = MAGIC + bytes(4) + struct.pack(">II", len(words), len(data)) + index + data
    path = folder / "tool-1-1.noarch.rpm"
    path.write_bytes(b"\xed\xab\xee\xdb\x03".ljust(96, b"\0") + MAGIC + bytes(12) + header + b"payload")
    return [(artifact(path, RpmArtifact, "tool", "1-1").model_copy(update={"targets": ["rocky9"]}), path)]


def half_an_image(folder: Path) -> Made:
    part = {"mediaType": oci.CONFIG, "digest": f"sha256:{'0' * 64}", "size": 1}
    path = folder / "manifest.json"
    path.write_text(json.dumps({"schemaVersion": 2, "config": part, "layers": []}))
    digest = oci.digest(path.read_bytes())
    return [(artifact(path, ImageArtifact, "half", "1", **IMAGE | {"digest": digest}), path)]


def image_called(name: str = "demo", tag: str = "1", digest: str = "") -> Callable[[Path], Made]:
    """An image whose list says this of it."""

    def made(folder: Path) -> Made:
        (image, path), *others = image_parts(folder, image_blobs(folder), name, tag)
        assert isinstance(image, ImageArtifact)
        said = image.metadata.model_copy(update={"digest": digest or image.metadata.digest})
        return [(image.model_copy(update={"metadata": said, "filename": "image.json"}), path), *others]

    return made


DEMO = b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n"
HELLO = STANZA.format(name="hello", version="1.0")
FAULTS: dict[str, tuple[Callable[[Path], Made], str]] = {
    "two files of one name": (two_files, "notes.txt: two different files have one name"),
    "two wheels of one name": (two_wheels, "whl: two different files have one name"),
    "two spellings of a name": (two_spellings(("foo_bar", "1.0"), ("foo.bar", "1.0")), "two different files have one"),
    "two spellings of a version": (two_spellings(("demo", "1.0"), ("demo", "1.0.0")), "two different files have one"),
    "two Debian packages of one version": (two_debs, "vendor.deb: two different files call themselves hello 1.0"),
    "two RPM packages of one version": (two_rpms, "vendor.noarch.rpm: two different files call themselves tool 0:1-1"),
    "a wheel that is no zip": (no_zip, "whl: not a wheel: the wheel is damaged"),
    "a wheel without metadata": (no_metadata, "whl: not a wheel: the wheel has no metadata"),
    "a wheel that is named for nothing": (no_name_of_a_wheel, "demo.whl: not the name of a wheel"),
    "a wheel of another package": (another_wheel("other"), "whl: not a wheel: its metadata is of other 1.0"),
    "a wheel of another version": (another_wheel(version="2.0"), "whl: not a wheel: its metadata is of demo 2.0"),
    "a wheel with a folder of another": (another_folder, "whl: not a wheel: its metadata lies in other-1.0.dist-info"),
    "a wheel that says it twice": (another_wheel(more="demo-1.0.dist-info/METADATA"), "it has several metadata"),
    "a wheel that is two": (another_wheel(more="x-1.dist-info/RECORD"), "whl: not a wheel: it has several metadata"),
    "a wheel with a member at a place of the machine": (another_wheel(more="/tmp/x"), "leaves its folder: /tmp/x"),
    "a wheel with a member above its folder": (another_wheel(more="demo/../../x"), "leaves its folder: demo/../../x"),
    "a wheel with a member for no place": (another_wheel(more="demo-1.0.data/evil/x"), "for no place of an"),
    "a wheel with a member for none": (another_wheel(more="demo-1.0.data/x"), "installation: demo-1.0.data/x"),
    "a wheel whose name has no room for that of its metadata": (
        two_spellings(("w" * 230, "1.0")), "a publication has files of 255 bytes at most, and one of 260"),
    "a wheel that the list calls otherwise": (called("index.html"), "the list calls it index.html, as which no pip"),
    "a wheel with a place of another": (another_wheel(more="x-1.0.data/data/x"), "of another wheel: x-1.0"),
    "a wheel with a file and a folder of one name": (another_wheel(more="demo.py/x.py"), "where a folder is: demo.py"),
    "a wheel without a record": (no_record, "whl: not a wheel: it has no RECORD"),
    "a wheel with a script without a target": (
        wheel_that_says(entry_points_txt=b"[console_scripts]\ndemo = demo\n"), "a script without a target, such as"),
    "a wheel of Latin letters": (wheel_that_says(METADATA=DEMO + b"Summary: \xe9\n"), "its METADATA is not in UTF-8"),
    "a wheel that needs nobody knows what": (
        wheel_that_says(METADATA=DEMO + b"Requires-Dist: a b c\n"), "METADATA has a Requires-Dist .*: 'a b c'"),
    "a wheel of no version": (wheel_that_says(WHEEL=b""), "its WHEEL has the Wheel-Version '', 1.0 is known"),
    "a wheel of a later version": (wheel_that_says(WHEEL=b"Wheel-Version: 2.0\n"), "WHEEL has the Wheel-Version '2.0'"),
    "an entry with half a relation": (entry(f"{HELLO}Breaks: jq|\n"), "entry has a breaks that apt cannot read: 'jq"),
    "an entry with a sum that is none": (entry(f"{HELLO}Description-md5: zz\n"), "description-md5 that is no MD5"),
    "an entry that is too long": (entry(f"{HELLO}X: {'x' * (2 << 20)}\n"), "most of them in x, and 983040 are"),
    "an entry of too many bytes": (entry(f"{HELLO}X: {'é' * 600_000}\n"), "its entry has 1200[0-9]* bytes, most"),
    "an entry without room for its place": (entry(f"{HELLO}X: {'x' * ((1 << 20) - 500)}\n"), "its entry has 104"),
    "an entry with a blank line": (entry(f"{HELLO}\nPackage: other\n"), "deb: its entry has a blank line"),
    "an entry without an end": (entry(HELLO.rstrip()), "deb: its entry ends in the middle of a line"),
    "an entry with a line that is none": (entry(f"{HELLO}nothing\n"), "deb: its entry has a line that is no field"),
    "an entry that places the file": (entry(f"{HELLO}Filename: /etc\n"), "deb: its entry says filename, which the"),
    "an entry with two versions": (entry(f"{HELLO}Version: 2\n"), "deb: its entry says version twice"),
    "an entry of another package": (entry(STANZA.format(name="jq", version="1")), "deb: its entry is of jq 1"),
    "an entry with a broken relation": (entry(f"{HELLO}Breaks: jq (>= 1\n"), "entry has a breaks that apt cannot read"),
    "an entry of no source": (entry(f"{HELLO}Source: ../x\n"), "deb: ../x is not the name of a source package"),
    "an entry of a source that is no name of a folder": (
        entry(f"{HELLO}Source: {'s' * 300}\n"), "deb: a publication has files of 255 bytes at most, and one of 300"),
    "an RPM package that is none": (no_rpm, "rpm: it is no RPM package"),
    "an RPM package that rpm does not take": (half_an_rpm, "rpm: it is no RPM package"),
    "an image under another digest": (image_called(digest=f"sha256:{'0' * 64}"), "demo:1: its digest is said to be"),
    "an image of a name that is none": (image_called("Demo/X"), "Demo/X:1: no registry takes the name Demo/X"),
    "an image of a tag that is none": (image_called(tag="a/b"), "demo:a/b: no registry takes the tag 'a/b'"),
    "an image without its parts": (half_an_image, "half:1: sha256:0{64} is in no bundle"),
}  # fmt: skip


@pytest.fixture(params=list(FAULTS))
def fault(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Made, str]:
    (tmp_path / "made").mkdir()
    make, said = FAULTS[request.param]
    return make(tmp_path / "made"), said


@pytest.fixture
def faulty(tmp_path: Path, key: Ed25519PrivateKey, fault: tuple[Made, str]) -> Path:
    return make_bundle(tmp_path, key, made=fault[0], targets=(TARGET, ROCKY))


def listed(folder: Path) -> Bundle:
    return bundles.decode((folder / bundles.LIST).read_bytes(), "")


def test_a_build_ends_before_it_signs(tmp_path: Path, faulty: Path, fault: tuple[Made, str]) -> None:
    cache = Cache(tmp_path / "cache")
    for path in (faulty / bundles.BLOBS).iterdir():
        path.rename(cache.path(path.name))
    with pytest.raises(IntegrityError, match=fault[1]):
        rehearse(listed(faulty), cache, silent)
    assert not list(cache.root.glob("work-*"))


def test_a_verification_names_it(faulty: Path, fault: tuple[Made, str]) -> None:
    with pytest.raises(IntegrityError, match=fault[1]):
        verify(faulty)


def test_an_import_refuses_it_and_leaves_nothing(tmp_path: Path, faulty: Path, fault: tuple[Made, str]) -> None:
    with pytest.raises(IntegrityError, match=fault[1]):
        take(faulty, tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("version", [b"0.1", b"1.9"])
def test_a_wheel_of_another_small_version_is_no_fault(tmp_path: Path, key: Ed25519PrivateKey, version: bytes) -> None:
    """`pip` refuses a greater first number alone."""
    verify(make_bundle(tmp_path, key, made=wheel_that_says(WHEEL=b"Wheel-Version: " + version)(tmp_path)))


def test_what_is_good_is_rehearsed_and_leaves_nothing(tmp_path: Path, key: Ed25519PrivateKey) -> None:
    made = make_bundle(tmp_path, key, made=parts(tmp_path / "parts"))
    cache, steps = Cache(tmp_path / "cache"), list[str]()
    for path in (made / bundles.BLOBS).iterdir():
        path.rename(cache.path(path.name))

    def note(step: str, done: int = 0, total: int = 0) -> None:
        steps.append(step)

    rehearse(listed(made), cache, note)
    assert {"publish Python packages", "publish Debian packages", "publish images", "publish files"} <= set(steps)
    assert not list(cache.root.glob("work-*"))
