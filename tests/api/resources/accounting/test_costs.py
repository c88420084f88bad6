"""Costs in accounting: what was held, by the prices of the site, to the last hundredth."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select, update

from api.control.reconcilers import retention
from api.settings import Settings
from api.tables.accounting import AccountingDay, Span
from tests.api.cluster import Cluster
from tests.api.resources.accounting.test_accounting import Ran, at, report, run
from tests.api.steps import run as start

pytestmark = pytest.mark.anyio

PRICES = {
    "price_currency": "EUR",
    "price_gpu_hour": Decimal("2.50"),
    "price_gpu_hour_of": {"Slow": Decimal("0.10")},
    "price_core_hour": Decimal("0.01"),
    "price_gib_hour": Decimal("0.004"),
}


def priced(cluster: Cluster, **prices: Any) -> None:
    cluster.app.state.settings = cluster.settings.model_copy(update=prices)


async def hold(cluster: Cluster, who: Ran, **held: Any) -> None:
    async with cluster.database.transaction() as db:
        await db.execute(update(Span).where(Span.session_id == who.id).values(**held))


def costs(answer: dict[str, Any]) -> dict[str, str | None]:
    return {row["name"]: row["cost"] for row in [*answer["rows"], answer["total"]]}


async def test_without_prices_nothing_is_said_of_costs(cluster: Cluster) -> None:
    await run(cluster, Ran("alice", "team-a", 1000), (1, 2))
    answer = await report(cluster.admin)
    assert (answer["currency"], costs(answer)) == (None, {"alice": None, "total": None})


async def test_gpus_cores_and_memory_have_prices_by_the_hour(cluster: Cluster) -> None:
    priced(cluster, **PRICES)
    dear, cheap = Ran("alice", "team-a", 1500), Ran("bobby", "team-a", 4000)
    await run(cluster, dear, (1, 3))
    await run(cluster, cheap, (1, 2))
    await hold(cluster, dear, gpu_models={"Fast": 1500}, cpu_milli=8000, memory_mib=32 * 1024)
    await hold(cluster, cheap, gpu_models={"Slow": 3000, "Fast": 1000}, cpu_milli=0, memory_mib=0)
    answer = await report(cluster.admin)
    assert answer["currency"] == "EUR"
    # 2 h x (1.5 x 2.50 + 8 x 0.01 + 32 x 0.004); 1 h x (3 x 0.10 + 2.50)
    assert costs(answer) == {"alice": "7.92", "bobby": "2.80", "total": "10.72"}
    assert costs(await report(cluster.admin, "project")) == {"team-a": "10.72", "total": "10.72"}


async def test_of_what_no_model_is_known_the_usual_price_counts(cluster: Cluster) -> None:
    priced(cluster, **PRICES)
    await run(cluster, Ran("alice", "team-a", 2000), (1, 2))
    async with cluster.database.reading() as db:
        assert await db.scalar(select(Span.gpu_models)) is None
    assert costs(await report(cluster.admin))["alice"] == "5.00"


async def test_sums_are_exact_and_only_then_rounded(cluster: Cluster) -> None:
    priced(cluster, price_currency="EUR", price_gpu_hour=Decimal("0.01"))
    for _ in range(30):
        await run(cluster, Ran("alice", "team-a", 100), (1, 2))
    assert costs(await report(cluster.admin))["alice"] == "0.03"
    for model in ("One", "Other"):
        little = Ran("carol", "team-a", 400)
        await run(cluster, little, (1, 2))
        await hold(cluster, little, gpu_models={model: 400})
    assert costs(await report(cluster.admin))["carol"] == "0.01", "two times 0.004"
    await run(cluster, Ran("bobby", "team-a", 500), (1, 2))
    assert costs(await report(cluster.admin)) == {"alice": "0.03", "bobby": "0.01", "carol": "0.01", "total": "0.04"}


async def test_a_session_notes_of_which_models_its_gpus_are(ready: Cluster) -> None:
    session = await start(ready, "one", gpu_milli=1500)
    async with ready.database.reading() as db:
        span = (await db.scalars(select(Span).where(Span.session_id == UUID(session["id"])))).one()
    assert sum((span.gpu_models or {}).values()) == span.gpu_milli
    assert all(span.gpu_models or {"": 0})
    assert (span.cpu_milli, span.memory_mib) == (session["cpu_milli"], session["memory_mib"])


async def test_what_is_left_as_sums_of_days_costs_the_same(cluster: Cluster) -> None:
    priced(cluster, **PRICES)
    who = Ran("alice", "team-a", 1500)
    await run(cluster, who, (1, 3.1), (3.1, 3.7001))
    await hold(cluster, who, gpu_models={"Slow": 500, "Fast": 1000}, cpu_milli=3300, memory_mib=700)
    before = costs(await report(cluster.admin))
    settings = Settings(**cluster.settings.model_dump() | {"accounting_detail_keep_s": 1})
    await retention.apply(cluster.database, settings, at(48))
    async with cluster.database.reading() as db:
        assert (await db.scalar(select(Span.id)), bool(await db.scalar(select(AccountingDay.id)))) == (None, True)
    assert costs(await report(cluster.admin)) == before
