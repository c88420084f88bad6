"""Marks of rows: whether any of a table was written since somebody looked, told without reading them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Table, Text, cast, func, literal_column

from api.tables.base import Base


def written(table: type[Base] | Table) -> tuple[Any, Any]:
    """Return how many rows of a table there are in a group, and a sum that no change of them leaves as it is.

    PostgreSQL keeps with each row the number of the transaction that wrote it last. A transaction that began early may
    write last, so numbers go down too: what is added up are their hashes, for one may fall by what another rises.
    """
    number = written_by(table)
    return (func.count(number), func.sum(func.hashint8extended(number, 0)))


def written_by(table: type[Base] | Table) -> Any:
    """Return the number of the transaction that wrote a row last."""
    name = table.name if isinstance(table, Table) else table.__tablename__
    return cast(cast(literal_column(f"{name}.xmin"), Text), BigInteger)
