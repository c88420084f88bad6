"""Tables of repairs."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base
from api.tables.controller_orders import ControllerOrder
from common.repairs import RunState


class RepairRun(ControllerOrder, Base):
    """A run of a repair, ordered here or on the controller, as the controller told it last.

    `node` is the only one that it may go to, None means all; with `agreed` it may end sessions. `record` has its steps.
    """

    __tablename__ = "repair_runs"
    NOUN = "run"
    NOT_BEGUN = RunState.INTERRUPTED

    name: Mapped[str] = mapped_column(String(16))
    node: Mapped[str | None] = mapped_column(String(255))
    dry_run: Mapped[bool] = mapped_column(default=False)
    agreed: Mapped[bool] = mapped_column(default=False)
