"""Long lists: texts are kept while their versions are the same, and a page that is as it was is not put together."""

from __future__ import annotations

import json
from collections.abc import Collection
from uuid import UUID

import pytest

from api.lists import texts
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


def page(one: str = "a", two: str = "b", end: bytes = b"}", *, more: bool = False) -> Page:
    return Page([Entry(ONE, one, "1", end), Entry(TWO, two, "2", end)], more)


async def test_only_what_has_another_mark_is_rendered_again() -> None:
    table, kept = Table(), Texts()
    assert (await answer(page(), kept, table.render, None)).body == b'[{"n":1},{"n":2}]'
    table.rows[TWO] = b'{"n":3'
    assert (await answer(page(two="c"), kept, table.render, None)).body == b'[{"n":1},{"n":3}]'
    later = page(two="c", end=b',"at":5}')
    assert (await answer(later, kept, table.render, None)).body == b'[{"n":1,"at":5},{"n":3,"at":5}]'
    assert table.asked == [{ONE, TWO}, {TWO}]


async def test_what_is_gone_by_then_is_left_out() -> None:
    table = Table()
    del table.rows[ONE]
    assert (await answer(page(), Texts(), table.render, None)).body == b'[{"n":2}]'


async def test_no_more_is_kept_than_there_is_room_for() -> None:
    table, kept = Table(), Texts(max_bytes=len(b'{"n":1'))
    for _ in range(2):
        await answer(page(), kept, table.render, None)
    assert table.asked == [{ONE, TWO}, {ONE}], "the first was forgotten for the second"


async def test_a_page_that_is_as_it_was_is_not_put_together() -> None:
    table, kept = Table(), Texts()
    first = await answer(page(more=True), kept, table.render, None)
    assert (first.status_code, first.body, first.headers["X-Next"]) == (200, b'[{"n":1},{"n":2}]', "2")
    same = await answer(page(more=True), Texts(), table.render, first.headers["ETag"])
    assert (same.status_code, same.body, same.headers["X-Next"]) == (304, b"", "2")
    assert len(table.asked) == 1


@pytest.mark.parametrize(("room", "shown"), [(1, 1), (7, 1), (13, 1), (14, 2)])
@pytest.mark.parametrize("more", [True, False])
async def test_a_page_ends_before_it_is_too_long(room: int, shown: int, more: bool) -> None:
    """With the cursor of the last thing that it has, and so it does for who has it already."""
    table = Table()
    first = await answer(page(more=more), Texts(), table.render, None, page_bytes=room)
    following = "1" if shown == 1 else "2" if more else None
    assert (len(json.loads(bytes(first.body))), first.headers.get("X-Next")) == (shown, following)
    again = await answer(page(more=more), Texts(), table.render, first.headers["ETag"], page_bytes=room)
    assert (again.status_code, again.headers.get("X-Next")) == (304, following)
    assert len(table.asked) == 1


async def test_what_is_beyond_a_page_is_read_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "AT_ONCE", 1)
    table = Table()
    short = await answer(page(), Texts(), table.render, None, page_bytes=7)
    assert (short.body, table.asked) == (b'[{"n":1}]', [{ONE}, {TWO}])
    assert (await answer(page(), Texts(), table.render, None)).body == b'[{"n":1},{"n":2}]'


@pytest.mark.parametrize("count", ["", "0", "3", "-1", "x", "1" * 40])
async def test_a_tag_that_nobody_was_told_is_not_known(count: str) -> None:
    table = Table()
    assert (await answer(page(), Texts(), table.render, f'"{page().tag}.{count}"')).status_code == 200


async def test_an_empty_page_has_a_tag_too() -> None:
    first = await answer(Page([], more=False), Texts(), Table().render, None)
    again = await answer(Page([], more=False), Texts(), Table().render, first.headers["ETag"])
    assert (first.body, again.status_code) == (b"[]", 304)


@pytest.mark.parametrize("held", ["W/{}", '"other", {}', '"other" , W/{}'])
async def test_a_tag_that_was_made_weak_on_the_way_or_is_one_of_several_is_known(held: str) -> None:
    table = Table()
    first = await answer(page(), Texts(), table.render, '"other"')
    again = await answer(page(), Texts(), table.render, held.format(first.headers["ETag"]))
    assert (first.status_code, again.status_code) == (200, 304)


@pytest.mark.parametrize(
    "other",
    [page(two="c"), page(more=True), Page(page().entries, False, ("another",)), Page([], False)],
)
async def test_another_page_has_another_tag(other: Page) -> None:
    assert page().tag != other.tag


async def test_what_changes_all_the_time_makes_it_no_other_page() -> None:
    assert page().tag == page(end=b"]").tag
