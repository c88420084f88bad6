"""Kinds of accelerators: the built-in ones, and plugins by their entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.gpu import accelerators, driver_files
from appliance.gpu.accelerators import Nvidia, Simulated
from appliance.gpu.devices import Gpus, Needs
from common.errors import InputError
from common.gpu.kinds import Enforcement
from tests.fakes import accelerator
from tests.unit.appliance.gpu.samples import GPU


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of programs that the node has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_nvidias_devices_are_handed_out_by_its_toolkit_where_the_node_has_it(programs: Path) -> None:
    (programs / "nvidia-container-runtime-hook").touch(mode=0o755)
    [nvidia] = accelerators.load(["nvidia"])
    assert isinstance(nvidia, Nvidia)
    assert nvidia.needs([GPU]) == Needs(nvidia=("GPU-1",), environment={"NVIDIA_VISIBLE_DEVICES": "GPU-1"})


def test_without_the_toolkit_they_are_handed_out_by_the_files_of_the_driver(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Needs(devices=("/dev/nvidia0",))
    monkeypatch.setattr(driver_files, "needs", lambda devices: mine if devices == [GPU] else None)
    assert Nvidia().needs([GPU]) == mine


def test_simulated_gpus_need_nothing_and_nobody_can_hold_them() -> None:
    simulated = Simulated("worker1", 2, "Lab GPU", 8192, 1)
    assert simulated.kinds == {Enforcement.NONE}
    assert simulated.needs(simulated.discover().devices) == Needs()


def test_another_kind_comes_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator.install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("FAKE_ACCELERATOR_DEVICES", "2")
    loaded = accelerators.load(["fake"])
    found = accelerators.discover(loaded)
    assert [(device.uuid, device.accelerator, device.memory_mib) for device in found.devices] == [
        ("FAKE-0", "fake", 8192),
        ("FAKE-1", "fake", 8192),
    ]
    assert loaded[0].needs(found.devices[:1]).environment["FAKE_VISIBLE_DEVICES"] == "0"


def test_devices_of_different_kinds_share_no_island(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator.install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    kinds = [Simulated("worker1", 4, "Lab GPU", 8192, 2), *accelerators.load(["fake"])]
    assert [device.island for device in accelerators.discover(kinds).devices] == [0, 0, 1, 1, 2]


def test_what_nothing_offers_is_named_with_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator.install(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match=r"no accelerator 'quantum'.*\(fake, nvidia are known\)"):
        accelerators.load(["quantum"])


def test_a_plugin_of_another_make_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator.install(tmp_path, entry="wrong = builtins:object")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="is no accelerator of the name wrong"):
        accelerators.load(["wrong"])


def test_devices_of_several_kinds_come_together() -> None:
    both = Gpus([GPU], nvlink=True) + Gpus([], driver_version="615.1")
    assert (both.devices, both.nvlink, both.driver_version) == ([GPU], True, "615.1")
