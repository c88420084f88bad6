"""Long lists: texts are kept while their versions are the same, and a page that is as it was is not put together."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

import pytest

from api.lists.texts import Entry, Page, Texts, answer

pytestmark = pytest.mark.anyio

ONE, TWO = UUID(int=1), UUID(int=2)


class Table:
    """What is rendered, and the ids that were asked for."""

    def __init__(self) -> None:
        self.rows = {ONE: b'{"n":1', TWO: b'{"n":2'}
        self.asked: list[set[UUID]] = []

    async def render(self, ids: Collection[UUID]) -> dict[UUID, bytes]:
        self.asked.append({*ids})
        return {id_: self.rows[id_] for id_ in ids if id_ in self.rows}


def page(one: str = "a", two: str = "b", end: bytes = b"}", following: str | None = None) -> Page:
    return Page([Entry(ONE, one, end), Entry(TWO, two, end)], following)


async def test_only_what_has_another_mark_is_rendered_again() -> None:
    table, texts = Table(), Texts()
    assert await texts.of(page().entries, table.render) == [b'{"n":1}', b'{"n":2}']
    table.rows[TWO] = b'{"n":3'
    assert await texts.of(page(two="c").entries, table.render) == [b'{"n":1}', b'{"n":3}']
    later = page(two="c", end=b',"at":5}')
    assert await texts.of(later.entries, table.render) == [b'{"n":1,"at":5}', b'{"n":3,"at":5}']
    assert table.asked == [{ONE, TWO}, {TWO}]


async def test_what_is_gone_by_then_is_left_out() -> None:
    table = Table()
    del table.rows[ONE]
    assert await Texts().of(page().entries, table.render) == [b'{"n":2}']


async def test_no_more_is_kept_than_there_is_room_for() -> None:
    table, texts = Table(), Texts(max_bytes=len(b'{"n":1'))
    for _ in range(2):
        await texts.of(page().entries, table.render)
    assert table.asked == [{ONE, TWO}, {ONE}], "the first was forgotten for the second"


async def test_a_page_that_is_as_it_was_is_not_put_together() -> None:
    table, texts = Table(), Texts()
    first = await answer(page(following="5"), texts, table.render, None)
    assert (first.status_code, first.body) == (200, b'[{"n":1},{"n":2}]')
    same = await answer(page(following="5"), Texts(), table.render, first.headers["ETag"])
    assert (same.status_code, same.body, same.headers["X-Next"]) == (304, b"", "5")
    assert len(table.asked) == 1


@pytest.mark.parametrize("held", ["W/{}", '"other", {}', '"other" , W/{}'])
async def test_a_tag_that_was_made_weak_on_the_way_or_is_one_of_several_is_known(held: str) -> None:
    table = Table()
    first = await answer(page(), Texts(), table.render, '"other"')
    again = await answer(page(), Texts(), table.render, held.format(first.headers["ETag"]))
    assert (first.status_code, again.status_code) == (200, 304)


@pytest.mark.parametrize(
    "other",
    [page(two="c"), page(end=b"]"), page(following="5"), Page(page().entries, None, ("another",)), Page([], None)],
)
async def test_another_page_has_another_tag(other: Page) -> None:
    assert page().tag != other.tag
