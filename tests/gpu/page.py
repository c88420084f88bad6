"""The page that people read: one file without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tests.gpu.outcomes import Figure, Outcome, State

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #1d2733 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem }
td, th { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top; border-bottom: 1px solid #d8dee6 }
.number { text-align: right; white-space: nowrap }
.within { color: #14653a }
.outside { color: #a11; font-weight: 600 } .not-judged { color: #8a5a00 } .told { color: #566 }
.note { color: #566 }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #dde3ea } td, th { border-color: #333c46 }
  .within { color: #6fce98 } .outside { color: #ff8a80 } .not-judged { color: #e6b450 } .told, .note { color: #9aa7b4 }
}
"""


def page(machine: Mapping[str, str], outcomes: Sequence[Outcome]) -> str:
    """Return the page of a run as HTML."""
    counts = {state: sum(outcome.state is state for outcome in outcomes) for state in State}
    said = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in machine.items())
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>GPU shares on {escape(machine["GPU"])}</title>'
        f"<style>{_STYLE}</style><h1>GPU shares on {escape(machine['GPU'])}</h1>"
        f"<p>Checks: {escape(said)}. A figure counts only with its tolerance beside it; what could not be judged says"
        f" why, and is no pass.</p><table>{facts}</table>{''.join(map(_section, outcomes))}</html>\n"
    )


def _section(outcome: Outcome) -> str:
    told = outcome.error or outcome.why
    rows = "".join(map(_row, outcome.figures))
    head = "<tr><th>Figure<th class=number>Found<th class=number>Expected<th>Outcome</tr>"
    body = f"<table>{head}{rows}</table>" if rows else ""
    state = _class(outcome.state)
    return (
        f'<h2>{escape(outcome.check)} – <span class="{state}">{outcome.state.value}</span></h2>'
        f"<p>{escape(outcome.subject)}</p>{f'<p class={state}>{escape(told)}</p>' if told else ''}{body}"
    )


def _row(figure: Figure) -> str:
    note = f' <span class="note">({escape(figure.note)})</span>' if figure.note else ""
    return (
        f"<tr><td>{escape(figure.name)}{note}</td><td class=number>{escape(shown(figure))}</td>"
        f"<td class=number>{escape(figure.expectation)}</td>"
        f'<td class="{_class(figure.state)}">{figure.state.value}</td></tr>'
    )


def _class(state: State) -> str:
    return state.value.replace(" ", "-")


def shown(figure: Figure) -> str:
    """Return what was found, with its unit."""
    number = f"{figure.got:g}" if isinstance(figure.got, float) else str(figure.got)
    return f"{number} {figure.unit}".strip()


def lines(outcomes: Iterable[Outcome]) -> Iterable[str]:
    """Return a line for each figure, for a terminal."""
    for outcome in outcomes:
        told = outcome.error or outcome.why
        yield f"{outcome.state.value.upper():<11} {outcome.check}{told and ': '}{told}"
        for figure in outcome.figures:
            yield f"  {figure.state.value:<10} {figure.name}: {shown(figure)} (expected {figure.expectation})"
