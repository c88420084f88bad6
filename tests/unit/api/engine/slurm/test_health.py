"""Judgement of what Slurm needs, by what its commands say."""

from __future__ import annotations

import pytest

from api.engine.slurm import health
from common.checks import CheckState


def states(said: str) -> dict[str, str]:
    return {check.subject: str(check.state) for check in health.controllers(said)}


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Slurmctld(primary) at m1 is UP\n", {"m1": "ok"}),
        ("Slurmctld(primary) at m1 is DOWN\n", {"m1": "fail"}),
        ("Slurmctld(primary) at m1 is DOWN\nSlurmctld(backup) at m2 is UP\n", {"m1": "warn", "m2": "ok"}),
        ("Slurmctld(primary) at m1 is UP\nSlurmctld(backup) at m2 is DOWN\n", {"m1": "ok", "m2": "warn"}),
        ("Slurmctld(primary) at m1 is DOWN\nSlurmctld(backup) at m2 is DOWN\n", {"m1": "fail", "m2": "fail"}),
        ("scontrol: fatal: Could not establish a configuration source", {"": "fail"}),
        ("", {"": "fail"}),
    ],
)
def test_a_controller_that_is_down_warns_where_another_one_works(said: str, expected: dict[str, str]) -> None:
    assert states(said) == expected


@pytest.mark.parametrize(
    ("conf", "socket"),
    [
        ("AuthInfo=cred_expire=5\n", ""),
        ("AuthInfo=socket=/a/munge.sock,cred_expire=5\n", "/a/munge.sock"),
        ("AuthInfo=cred_expire=5,socket=/a/b\nX=socket=/c", "/a/b"),
        ("#AuthInfo=socket=/a\n", ""),
    ],
)
def test_munge_is_asked_at_the_socket_that_slurm_uses(conf: str, socket: str) -> None:
    assert health.munge_socket(conf) == socket


def test_accounting_is_looked_at_where_a_daemon_keeps_it() -> None:
    assert health.has_accounting_daemon("A = b\nAccountingStorageType   = accounting_storage/slurmdbd\n")
    assert not health.has_accounting_daemon("AccountingStorageType   = accounting_storage/none\n")
    assert health.accounting("").state is CheckState.OK
    failed = health.accounting("sacctmgr: error: Connection refused")
    assert (failed.state, failed.id) == (CheckState.FAIL, "slurmdbd")
    assert "systemctl status slurmdbd" in failed.hint


def test_a_node_that_lends_nothing_says_why_and_what_to_do() -> None:
    works, fails = health.nodes({"w1": "", "w2": "Slurm: down*"})
    assert (works.state, works.subject, fails.state, fails.evidence) == ("ok", "w1", "fail", "Slurm: down*")
    assert "scontrol show node w2" in fails.hint
