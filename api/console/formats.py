"""Amounts, moments and states as the console writes them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from api.auth.policy import KeyScope, UserRole
from api.clock import now
from api.console.texts import gettext, said, spoken
from api.resources.accounting.schemas import By
from api.resources.audit.schemas import AuditChangeView
from api.tables.images import Status
from api.tables.nodes import NodeMode, NodeState
from api.tables.notices import NoticeLevel
from api.tables.projects import Access, Expiry
from api.tables.sessions import Kind, State
from api.tables.volumes import VolumeState
from common.backup_protocol import BackupAction, BackupOrderState
from common.checks import CheckState
from common.gpu.share import format_gpus
from common.protocol import ContainerStatus
from common.repairs import RunState
from common.sandbox import SandboxRule
from common.sandbox_rules import format_rule
from common.sentence import Sentence

NAMES: Mapping[type[StrEnum], Mapping[StrEnum, Sentence]] = {
    State: {
        State.PENDING: Sentence("waiting"),
        State.SCHEDULED: Sentence("scheduled"),
        State.PREPARING: Sentence("starting"),
        State.RUNNING: Sentence("running"),
        State.TERMINATING: Sentence("ending"),
        State.TERMINATED: Sentence("ended"),
        State.FAILED: Sentence("failed"),
    },
    Kind: {
        Kind.INTERACTIVE: Sentence("interactive"),
        Kind.TRAINING: Sentence("training"),
        Kind.SERVICE: Sentence("service"),
    },
    KeyScope: {
        KeyScope.READ: Sentence("read"),
        KeyScope.SUBMIT: Sentence("sessions"),
        KeyScope.ALL: Sentence("all"),
    },
    UserRole: {
        UserRole.ADMIN: Sentence("administrator"),
        UserRole.AUDITOR: Sentence("auditor"),
        UserRole.MEMBER: Sentence("member"),
    },
    By: {
        By.USER: Sentence("Users"),
        By.PROJECT: Sentence("Projects"),
        By.DOMAIN: Sentence("Domains"),
    },
    NodeState: {
        NodeState.READY: Sentence("ready"),
        NodeState.UNREADY: Sentence("unready"),
        NodeState.LOST: Sentence("lost"),
    },
    ContainerStatus: {
        ContainerStatus.CREATING: Sentence("starting"),
        ContainerStatus.PULLING: Sentence("pulling"),
        ContainerStatus.RUNNING: Sentence("running"),
        ContainerStatus.EXITED: Sentence("exited"),
        ContainerStatus.FAILED: Sentence("failed"),
    },
    NodeMode: {
        NodeMode.ACTIVE: Sentence("in service"),
        NodeMode.MAINTENANCE: Sentence("maintenance"),
        NodeMode.DRAINING: Sentence("draining"),
    },
    CheckState: {
        CheckState.OK: Sentence("well"),
        CheckState.WARN: Sentence("warning"),
        CheckState.FAIL: Sentence("failing"),
        CheckState.UNKNOWN: Sentence("unknown"),
    },
    NoticeLevel: {
        NoticeLevel.INFO: Sentence("information"),
        NoticeLevel.WARNING: Sentence("warning"),
        NoticeLevel.OUTAGE: Sentence("outage"),
    },
    RunState: {
        RunState.ORDERED: Sentence("ordered"),
        RunState.RUNNING: Sentence("running"),
        RunState.HEALTHY: Sentence("nothing was wrong"),
        RunState.REPAIRED: Sentence("repaired"),
        RunState.REHEARSED: Sentence("found, nothing done"),
        RunState.STOPPED: Sentence("did not help"),
        RunState.REFUSED: Sentence("refused"),
        RunState.INTERRUPTED: Sentence("interrupted"),
        RunState.CANCELLED: Sentence("cancelled"),
    },
    BackupAction: {
        BackupAction.NOW: Sentence("Back up now"),
        BackupAction.VERIFY: Sentence("Verify"),
        BackupAction.DRILL: Sentence("Rehearse"),
    },
    BackupOrderState: {
        BackupOrderState.ORDERED: Sentence("ordered"),
        BackupOrderState.RUNNING: Sentence("running"),
        BackupOrderState.DONE: Sentence("done"),
        BackupOrderState.FAILED: Sentence("failed"),
        BackupOrderState.CANCELLED: Sentence("cancelled"),
    },
    VolumeState: {
        VolumeState.READY: Sentence("ready"),
        VolumeState.RETAINED: Sentence("kept without a project"),
        VolumeState.DELETING: Sentence("being deleted"),
    },
    Expiry: {
        Expiry.STOP: Sentence("are stopped"),
        Expiry.FINISH: Sentence("may finish"),
    },
    Access: {
        Access.PROJECT: Sentence("all who are in it"),
        Access.PRIVATE: Sentence("their owners and its managers"),
    },
    Status: {
        Status.UNCHECKED: Sentence("not tried yet"),
        Status.PULLING: Sentence("pulling"),
        Status.READY: Sentence("ready"),
        Status.FAILED: Sentence("failed"),
    },
}
"""What people call states, kinds and roles."""


def gpus(milli: int) -> str:
    """Return milli-GPU as a number of GPUs."""
    return format_gpus(milli) if milli < 1_000_000 else number(milli / 1000)


def cores(milli: int) -> str:
    """Return thousandths of a core as a number of cores."""
    return f"{milli / 1000:.15g}" if milli < 1_000_000 else number(milli / 1000)


def memory(mib: int | None) -> str:
    """Return MiB as people write it; nothing for none."""
    if not mib:
        return ""
    if mib < 1024:
        return f"{mib} MiB"
    gib = mib / 1024
    # three digits, and all of those before the point
    return f"{number(round(gib))} GiB" if gib >= 100 else f"{gib:.3g} GiB"


def moment(at: datetime | None) -> str:
    """Return a moment to the minute, in UTC, as the reader's language writes it; nothing for none."""
    return spoken().moment(at.replace(second=0)) if at else ""


def instant(at: datetime) -> str:
    """Return a moment to the second, in UTC."""
    return spoken().instant(at)


def ago(at: datetime | None, until: datetime | None = None) -> str:
    """Return how long ago a moment was, or how long before another one, to the minute."""
    if at is None:
        return ""
    return _minutes(max(0, int(((until or now()) - at).total_seconds()) // 60))


def duration(seconds: float | None) -> str:
    """Return how long something lasts, in seconds below a minute; a dash for what nobody knows."""
    if seconds is None:
        return "–"
    return gettext("%(seconds)d s") % {"seconds": seconds} if seconds < 60 else _minutes(int(seconds) // 60)


def _minutes(minutes: int) -> str:
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return gettext("%(days)d d %(hours)d h") % {"days": days, "hours": hours}
    if hours:
        return gettext("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes % 60}
    return gettext("%(minutes)d min") % {"minutes": minutes}


def number(value: float) -> str:
    """Return a number as the reader's language writes it."""
    return spoken().number(value)


def money(value: Decimal) -> str:
    """Return an amount of money as the reader's language writes it."""
    return spoken().money(value)


def percent(part: float, whole: float) -> int:
    """Return how much a part is of the whole, for a bar; 0 of nothing."""
    return min(100, round(100 * part / whole)) if whole else 0


def name(value: StrEnum) -> str:
    """Return the name of a state, a kind or a role."""
    return said(NAMES[type(value)][value])


def refusal_name(status: int) -> str:
    """Return the name of a kind of refusal, by its status."""
    names = {
        403: gettext("Forbidden"),
        404: gettext("Not found"),
        409: gettext("Not possible now"),
        422: gettext("Not understood"),
        429: gettext("Too often"),
        503: gettext("Not available"),
    }
    return names.get(status, gettext("Something went wrong"))


def result_name(result: str) -> str:
    """Return the name of a result of the audit log."""
    names = {"done": gettext("done"), "refused": gettext("refused"), "failed": gettext("failed")}
    return names.get(result, result)


def audit_change(change: AuditChangeView) -> str:
    """Return what changed in a row: each value that is another one, before and after."""
    before, after = change.before or {}, change.after or {}
    words = []
    for name in {**before, **after}:
        was, has = (json.dumps(values.get(name), ensure_ascii=False) for values in (before, after))
        if was != has:
            words.append(f"{name}: {was} → {has}")
    return "; ".join(words)


def command(words: Sequence[str]) -> str:
    """Return a command as a shell, and the form that launches sessions, take it."""
    return shlex.join(words)


def rule(value: SandboxRule) -> str:
    """Return a rule of a sandbox as people write it."""
    return format_rule(value.model_dump())


FILTERS = {
    each.__name__: each
    for each in (
        gpus,
        cores,
        memory,
        moment,
        instant,
        ago,
        duration,
        number,
        money,
        percent,
        name,
        said,
        refusal_name,
        result_name,
        audit_change,
        command,
        rule,
    )
}
"""What templates call them."""
