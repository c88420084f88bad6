"""A deploy that meets what is played."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance.site import deployment, pki, playbook, product
from appliance.site.backup.make import Backups
from reservoir.bundle import bundles
from tests.unit.appliance.site.deployment.world import World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    played = World(tmp_path)
    monkeypatch.setattr(deployment, "require_controller", lambda _: None)
    monkeypatch.setattr(product, "version", lambda _: "1.2.3", raising=False)
    monkeypatch.setattr(bundles, "read_signed", lambda *_: SimpleNamespace(bundle=played.bundle(), content=b"{}"))
    monkeypatch.setattr(deployment, "take", played.take)
    monkeypatch.setattr(deployment, "publish", played.publish)
    monkeypatch.setattr(pki, "issue", played.issue)
    monkeypatch.setattr(deployment, "newest_step", lambda _: played.schema)
    monkeypatch.setattr(Backups, "take", played.back_up)
    monkeypatch.setattr(playbook, "run", played.run)
    return played
