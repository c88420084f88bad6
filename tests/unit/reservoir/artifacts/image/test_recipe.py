from __future__ import annotations

import platform
from pathlib import Path

import pytest

from common.errors import InputError, UnavailableError
from common.progress import silent
from reservoir.artifacts.image.recipe import Builder
from reservoir.contents.lock import LockedImage
from reservoir.download.cache import WORK, Cache
from reservoir.manifest import reading

TEXT = """\
schema: 1
name: small
version: "1"
targets: [{name: debian12, release: bookworm, python: "3.11", bootstrap: true}]
images: [{name: demo, tag: "1", target: debian12, packages: [python3], python: [numpy]}]
"""


def test_python_packages_need_an_environment() -> None:
    with pytest.raises(InputError, match=r"manifest.yml:5: images\[0\].*add python3-venv to the packages"):
        reading.load(TEXT, "manifest.yml")
    assert reading.load(TEXT.replace("[python3]", "[python3, python3-venv]"), "manifest.yml").images[0].python


def test_a_machine_of_another_kind_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    wanted = reading.load(TEXT.replace("[python3]", "[python3, python3-venv]"), "manifest.yml")
    parts = LockedImage(name="demo", tag="1", base=[], packages=[])
    builder = Builder(wanted.images[0], wanted.targets[0], parts, {}, Cache(tmp_path), silent)
    with pytest.raises(UnavailableError, match=r"demo:1: an image of amd64 cannot be built.*run the build on"):
        builder.make()


def test_what_an_interrupted_build_left_goes_away(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    (tmp_path / f"{WORK}x/root/etc").mkdir(parents=True)
    (tmp_path / f"{WORK}x/root/etc/link").symlink_to("/etc")
    cache.keep(b"finished")
    with cache.alone():
        assert not list(tmp_path.glob(f"{WORK}*"))
    assert Path("/etc").is_dir()
    assert len(list(cache.blobs.iterdir())) == 1
