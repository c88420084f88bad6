"""`penstock lab`: what it prints, and with which exit code it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from appliance.cli.lab import app as lab_app
from appliance.site import lab
from common.errors import InputError
from tests.unit.appliance.cli.runs import EXAMPLE, run


class TestLab:
    """`penstock lab` hands its work to `appliance.site.lab`, which is played here."""

    @pytest.fixture(autouse=True)
    def _played(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.did: list[str] = []
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setattr(lab, "node_image", lambda _, release, __: f"{release}:hash")
        monkeypatch.setattr(
            lab, "up", lambda _, images, bundle, tell: self.did.append(f"up {' '.join(images.values())} {bundle}")
        )
        self.code = 0
        monkeypatch.setattr(lab, "install", self._install)
        monkeypatch.setattr(lab, "fetch_ca", lambda _, folder: folder / "ca.crt")
        monkeypatch.setattr(lab, "down", lambda name, folder, _: self.did.append(f"down {name} {folder.name}"))

    def _install(self, *_: Any) -> int:
        self.did.append("install")
        return self.code

    def test_up_starts_installs_and_tells_how_to_log_in(self, tmp_path: Path) -> None:
        result = run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b")
        assert self.did == ["up bookworm:hash trixie:hash b", "install"]
        ca = tmp_path / "penstock" / "labs" / "lab" / "ca.crt"
        assert f"penstock login https://10.71.8.10:56789 --user admin --ca {ca}" in result.stdout

    def test_up_ends_as_the_deploy_did(self) -> None:
        self.code = 11
        result = run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b")
        assert result.exit_code == 11
        assert "penstock login" in result.stdout

    def test_up_without_deploy_only_starts(self) -> None:
        run(lab_app, "up", "-f", EXAMPLE, "--bundle", "b", "--no-deploy")
        run(lab_app, "up", "-f", EXAMPLE, "--image", "own:1", "--no-deploy")
        assert self.did == ["up bookworm:hash trixie:hash b", "up own:1 own:1 None"]

    @pytest.mark.parametrize("words", [(), ("--image", "own:1"), ("--no-deploy",)])
    def test_up_needs_a_bundle(self, words: tuple[str, ...]) -> None:
        result = run(lab_app, "up", "-f", EXAMPLE, *words)
        assert isinstance(result.exception, InputError)
        assert "--bundle" in str(result.exception)
        assert not self.did

    def test_down_by_site_file_or_name(self) -> None:
        run(lab_app, "down", "-f", EXAMPLE)
        run(lab_app, "down", "--name", "old")
        assert self.did == ["down lab lab", "down old old"]

    @pytest.mark.parametrize("words", [(), ("-f", EXAMPLE, "--name", "lab")])
    def test_down_must_know_which_lab(self, words: tuple[str, ...]) -> None:
        result = run(lab_app, "down", *words)
        assert isinstance(result.exception, InputError)
        assert not self.did

    def test_down_takes_no_path_as_a_name(self) -> None:
        result = run(lab_app, "down", "--name", "../labs")
        assert isinstance(result.exception, InputError)
        assert not self.did
