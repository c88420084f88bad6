"""Base of every table, the names of constraints, and moments in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import DateTime, Dialect, Interval, MetaData
from sqlalchemy.orm import DeclarativeBase
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC, whatever the time zone of the server and of what is written."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        """Let a length of time be added to a moment."""
        return Interval() if isinstance(value, timedelta) else self

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a moment without a time zone, which the server would take for one of its own."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        return value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the moment in UTC."""
        return None if value is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of every table; constraints are named by one convention, so that migrations can find them."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {datetime: UtcDateTime}  # noqa: RUF012 -- SQLAlchemy reads it from the class
