"""Where things lie on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from appliance.site import settings

HOME = {"HOME": "/home/ann"}


def test_folders_of_the_user_follow_the_standard() -> None:
    assert settings.config_folder(HOME) == Path("/home/ann/.config/penstock")
    assert settings.state_folder(HOME) == Path("/home/ann/.local/state/penstock")
    assert settings.config_folder(HOME | {"XDG_CONFIG_HOME": "/c"}) == Path("/c/penstock")
    assert settings.state_folder(HOME | {"XDG_STATE_HOME": "/s"}) == Path("/s/penstock")
    assert settings.state_folder({}) == Path("/root/.local/state/penstock")


def test_programs_of_this_python_come_first() -> None:
    first, *rest = settings.search_path({"PATH": "/usr/bin:/bin"}).split(os.pathsep)
    assert (first, rest) == (str(Path(sys.executable).parent), ["/usr/bin", "/bin"])
    assert settings.search_path({}).endswith(os.defpath)


def test_playbooks_are_found_in_a_checkout_and_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (settings.ansible_root() / "playbooks" / "site.yml").is_file()
    (tmp_path / "ansible").mkdir()
    monkeypatch.setattr(settings, "PACKAGE", tmp_path)
    assert settings.ansible_root() == tmp_path / "ansible"
