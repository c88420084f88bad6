"""Which cores a container runs on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from appliance.agent.docker import cores
from appliance.agent.docker.cores import NO_CORES, CoreGrant
from common.errors import InputError, UnavailableError

FOUR = (0, 1, 2, 3)


def test_without_a_limit_there_is_no_set() -> None:
    assert cores.choose(0, FOUR, []) == NO_CORES


@pytest.mark.parametrize(("milli", "number"), [(1, 1), (500, 1), (1000, 1), (1001, 2), (2000, 2), (3500, 4)])
def test_a_container_sees_the_cores_that_its_grant_begins(milli: int, number: int) -> None:
    assert len(cores.choose(milli, FOUR, []).cores) == number


def test_whole_cores_are_not_shared_while_others_are_free() -> None:
    held = [CoreGrant((0, 1), 2000)]
    assert cores.choose(2000, FOUR, held).cores == (2, 3)
    assert cores.choose(1000, FOUR, [*held, CoreGrant((3,), 1000)]).cores == (2,)


def test_fractions_share_the_least_used_core() -> None:
    held = [CoreGrant((0,), 900), CoreGrant((1,), 400), CoreGrant((2,), 500), CoreGrant((3,), 500)]
    assert cores.choose(500, FOUR, held).cores == (1,)
    assert cores.choose(500, FOUR, [*held, CoreGrant((1,), 400)]).cores == (2,), "a core that is full comes last"


def test_cores_near_the_gpus_come_first_as_long_as_they_have_room() -> None:
    assert cores.choose(2000, FOUR, [], near={2, 3}).cores == (2, 3)
    assert cores.choose(2000, FOUR, [CoreGrant((3,), 1000)], near={2, 3}).cores == (0, 2)
    assert cores.choose(500, FOUR, [CoreGrant((2,), 300)], near={2}).cores == (2,)


def test_a_full_node_still_gives_cores() -> None:
    held = [CoreGrant(FOUR, 4000), CoreGrant((0,), 500)]
    assert cores.choose(1000, FOUR, held).cores == (1,)


def test_thirds_of_cores_fill_them_exactly() -> None:
    # 2,000 thousandths on three cores each leave exactly a third of each
    held = [CoreGrant((0, 1, 2), 2001)]
    assert cores.choose(333, FOUR[:3], held).cores == (0,)


def test_more_cores_than_the_node_has_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        cores.choose(4001, FOUR, [])
    [problem] = caught.value.problems
    assert (problem.where, problem.reason) == ("cpu_milli", "5 cores are asked for, and this node has 4")
    assert "4000" in problem.hint


def test_a_set_is_written_and_read_back() -> None:
    assert cores.read(cores.write((0, 13))) == (0, 13)
    assert cores.read("") == ()


def test_cpuinfo_keeps_the_blocks_of_some_cores_and_what_is_said_of_none() -> None:
    text = "processor\t: 0\nmodel\t: x\n\nprocessor\t: 1\nmodel\t: x\n\nprocessor\t: 11\n\nHardware\t: board\n\n"
    assert cores.cpuinfo(text, (1,)) == "processor\t: 1\nmodel\t: x\n\nHardware\t: board\n\n"


def test_what_containers_see_is_written_once_for_a_set_of_cores(tmp_path: Path) -> None:
    first = cores.draw(CoreGrant((0,), 500), tmp_path)
    inodes = {target: file.stat().st_ino for target, file in first.items()}
    assert first["/sys/devices/system/cpu/online"].read_text() == "0\n"
    assert first["/proc/cpuinfo"].read_text().count("processor\t") == 1
    assert {target: file.stat().st_ino for target, file in cores.draw(CoreGrant((0,), 900), tmp_path).items()} == inodes
    assert cores.draw(NO_CORES, tmp_path) == {}


def test_a_large_set_has_a_name_and_old_ones_go(tmp_path: Path) -> None:
    before = cores.draw(CoreGrant(tuple(range(512)), 512_000), tmp_path)["/proc/cpuinfo"].parent
    os.utime(before, (0, 0))
    after = cores.draw(CoreGrant((1,), 1000), tmp_path)["/proc/cpuinfo"].parent
    assert list(tmp_path.iterdir()) == [after]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="cannot be written"):
        cores.draw(CoreGrant((0,), 1000), tmp_path / "file")
