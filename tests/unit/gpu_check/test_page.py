"""The page of the kit for a real card: what is wrong stands first, and everybody understands it."""

from __future__ import annotations

from tests.gpu import page
from tests.gpu.outcomes import Figure, Outcome

MACHINE = {"GPU": "NVIDIA H200", "driver": "580"}
WITHIN = Outcome("memory: full", "It ends.", [Figure("held", 3.0, "MiB", 2.0, bound="least")], took_s=2.1)
OUTSIDE = Outcome("row: <long>", "It holds.", [Figure("part", 18.92, "%", 30, 3.0)], took_s=53.1)
UNJUDGED = Outcome("kind mig", "A slice ends.", why="MIG is off")
BROKEN = Outcome("kind mps", "A client ends.", error="it leaves processes behind: nvidia-cuda-mps")


def test_what_is_outside_stands_before_all_else() -> None:
    text = page.page(MACHINE, [WITHIN, OUTSIDE, UNJUDGED, BROKEN])
    assert text.index("judged: 3; outside of their tolerance: 2; that this machine does not allow: 1.") < text.index(
        "<h2>"
    )
    first = text[text.index("<h2>") : text.index("<h2>All checks")]
    assert "18.92 %" in first
    assert "30 ± 3 %" in first
    assert "it leaves processes behind" in first
    assert "memory: full" not in first
    assert "<long>" not in text


def test_each_check_is_found_from_the_list_of_all_and_says_how_long_it_took() -> None:
    text = page.page(MACHINE, [WITHIN, OUTSIDE])
    for place in ("memory--full", "row---long-"):
        assert f'<a href="#{place}">' in text
        assert f'<h2 id="{place}">' in text
    assert "53.1 s" in text
    assert ">55 s<" in text


def test_nothing_is_said_to_be_outside_where_nothing_is() -> None:
    text = page.page(MACHINE, [WITHIN, UNJUDGED])
    assert "Outside of the tolerance" not in text
    assert page.verdict([UNJUDGED]).startswith("Checks that were judged: 0; ")


def test_the_terminal_shows_at_the_end_how_long_each_check_took() -> None:
    assert list(page.summary([WITHIN, OUTSIDE])) == [
        "    2.1 s  within      memory: full",
        "   53.1 s  outside     row: <long>",
        "   55.2 s  in all",
        "Checks that were judged: 2; outside of their tolerance: 1; that this machine does not allow: 0.",
    ]
