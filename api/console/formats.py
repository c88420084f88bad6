"""Amounts, moments and states as the console writes them."""

from __future__ import annotations

import json
from datetime import datetime

from api.auth.policy import KeyScope, UserRole
from api.clock import now
from api.console.texts import gettext, said, spoken
from api.resources.accounting.schemas import By
from api.resources.audit.schemas import AuditChangeView
from api.tables.images import Status
from api.tables.nodes import NodeMode, NodeState
from api.tables.sessions import Kind, State
from common.backup_protocol import BackupAction, BackupOrderState
from common.checks import CheckState
from common.gpu.share import format_gpus
from common.protocol import ContainerStatus
from common.repairs import RunState


def gpus(milli: int) -> str:
    """Return milli-GPU as a number of GPUs."""
    return format_gpus(milli)


def cores(milli: int) -> str:
    """Return thousandths of a core as a number of cores."""
    return f"{milli / 1000:g}"


def memory(mib: int | None) -> str:
    """Return MiB as people write it; nothing for none."""
    if not mib:
        return ""
    return f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{mib} MiB"


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
    minutes = max(0, int(((until or now()) - at).total_seconds()) // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return gettext("%(days)d d %(hours)d h") % {"days": days, "hours": hours}
    if hours:
        return gettext("%(hours)d h %(minutes)d min") % {"hours": hours, "minutes": minutes % 60}
    return gettext("%(minutes)d min") % {"minutes": minutes}


def number(value: float) -> str:
    """Return a number as the reader's language writes it."""
    return spoken().number(value)


def percent(part: int, whole: int) -> int:
    """Return how much a part is of the whole, for a bar; 0 of nothing."""
    return min(100, round(100 * part / whole)) if whole else 0


def state_name(state: State) -> str:
    """Return the name of a state of sessions."""
    names = {
        State.PENDING: gettext("waiting"),
        State.SCHEDULED: gettext("scheduled"),
        State.PREPARING: gettext("starting"),
        State.RUNNING: gettext("running"),
        State.TERMINATING: gettext("ending"),
        State.TERMINATED: gettext("ended"),
        State.FAILED: gettext("failed"),
    }
    return names[state]


def kind_name(kind: Kind) -> str:
    """Return the name of a kind of sessions."""
    names = {
        Kind.INTERACTIVE: gettext("interactive"),
        Kind.TRAINING: gettext("training"),
        Kind.SERVICE: gettext("service"),
    }
    return names[kind]


def key_scope_name(scope: KeyScope) -> str:
    """Return what keys of a scope are good for."""
    names = {KeyScope.READ: gettext("read"), KeyScope.SUBMIT: gettext("sessions"), KeyScope.ALL: gettext("all")}
    return names[scope]


def role_name(role: UserRole) -> str:
    """Return the name of a user role."""
    names = {
        UserRole.ADMIN: gettext("administrator"),
        UserRole.AUDITOR: gettext("auditor"),
        UserRole.MEMBER: gettext("member"),
    }
    return names[role]


def by_name(by: By) -> str:
    """Return what accounting adds up by."""
    names = {By.USER: gettext("Users"), By.PROJECT: gettext("Projects"), By.DOMAIN: gettext("Domains")}
    return names[by]


def node_state_name(state: NodeState) -> str:
    """Return the name of a state of nodes."""
    names = {
        NodeState.READY: gettext("ready"),
        NodeState.UNREADY: gettext("unready"),
        NodeState.LOST: gettext("lost"),
    }
    return names[state]


def container_status_name(status: ContainerStatus) -> str:
    """Return the name of a status of containers."""
    names = {
        ContainerStatus.CREATING: gettext("starting"),
        ContainerStatus.PULLING: gettext("pulling"),
        ContainerStatus.RUNNING: gettext("running"),
        ContainerStatus.EXITED: gettext("exited"),
        ContainerStatus.FAILED: gettext("failed"),
    }
    return names[status]


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


def mode_name(mode: NodeMode) -> str:
    """Return the name of a mode of nodes."""
    names = {
        NodeMode.ACTIVE: gettext("in service"),
        NodeMode.MAINTENANCE: gettext("maintenance"),
        NodeMode.DRAINING: gettext("draining"),
    }
    return names[mode]


def check_state_name(state: CheckState) -> str:
    """Return the name of a state of checks."""
    names = {
        CheckState.OK: gettext("well"),
        CheckState.WARN: gettext("warning"),
        CheckState.FAIL: gettext("failing"),
        CheckState.UNKNOWN: gettext("unknown"),
    }
    return names[state]


def run_state_name(state: RunState) -> str:
    """Return the name of what became of a run of a repair."""
    names = {
        RunState.ORDERED: gettext("ordered"),
        RunState.RUNNING: gettext("running"),
        RunState.HEALTHY: gettext("nothing was wrong"),
        RunState.REPAIRED: gettext("repaired"),
        RunState.REHEARSED: gettext("found, nothing done"),
        RunState.STOPPED: gettext("did not help"),
        RunState.REFUSED: gettext("refused"),
        RunState.INTERRUPTED: gettext("interrupted"),
        RunState.CANCELLED: gettext("cancelled"),
    }
    return names[state]


def backup_action_name(action: BackupAction) -> str:
    """Return the name of what is ordered about backups."""
    names = {
        BackupAction.NOW: gettext("Back up now"),
        BackupAction.VERIFY: gettext("Verify"),
        BackupAction.DRILL: gettext("Rehearse"),
    }
    return names[action]


def backup_order_state_name(state: BackupOrderState) -> str:
    """Return the name of what became of an order about backups."""
    names = {
        BackupOrderState.ORDERED: gettext("ordered"),
        BackupOrderState.RUNNING: gettext("running"),
        BackupOrderState.DONE: gettext("done"),
        BackupOrderState.FAILED: gettext("failed"),
        BackupOrderState.CANCELLED: gettext("cancelled"),
    }
    return names[state]


def image_status_name(status: Status) -> str:
    """Return the name of what is known of an image."""
    names = {
        Status.UNCHECKED: gettext("not tried yet"),
        Status.PULLING: gettext("pulling"),
        Status.READY: gettext("ready"),
        Status.FAILED: gettext("failed"),
    }
    return names[status]


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


FILTERS = {
    each.__name__: each
    for each in (
        gpus,
        cores,
        memory,
        moment,
        instant,
        ago,
        number,
        percent,
        said,
        state_name,
        kind_name,
        key_scope_name,
        by_name,
        role_name,
        node_state_name,
        mode_name,
        container_status_name,
        refusal_name,
        check_state_name,
        run_state_name,
        backup_action_name,
        backup_order_state_name,
        image_status_name,
        result_name,
        audit_change,
    )
}
"""What templates call them."""
