"""The page that people read: one file without anything from elsewhere. And the same as text, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tests.gpu.outcomes import Figure, Outcome, State

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #1d2733 }
h1 { font-size: 1.6rem; margin-bottom: .25rem } h2 { font-size: 1.15rem; margin: 2rem 0 .25rem } p { margin: .5rem 0 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; table-layout: fixed }
td, th { text-align: left; padding: .25rem 1rem .25rem 0; vertical-align: top; border-bottom: 1px solid #d8dee6;
  overflow-wrap: break-word }
th:first-child { width: 46% } .facts th { width: 14rem; font-weight: normal; color: #566 }
.number { text-align: right; font-variant-numeric: tabular-nums }
.within { color: #14653a }
.outside { color: #a11; font-weight: 600 } .not-judged { color: #8a5a00 } .told { color: #566 }
.note { display: block; color: #566; font-size: .85em } .verdict { font-size: 1.15rem }
a { color: inherit }
@media (max-width: 40rem) { td, th { padding-right: .5rem } th:first-child { width: 36% } .facts th { width: 8rem } }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #dde3ea } td, th { border-color: #333c46 }
  .within { color: #6fce98 } .outside { color: #ff8a80 } .not-judged { color: #e6b450 }
  .told, .note, .facts th { color: #9aa7b4 }
}
"""

_ABOUT = """
<p>Penstock gives programs shares of a GPU: a limit of its memory, and a part of its time. A library that is loaded into
each program holds them. Here programs of this kit used the GPU as sessions of a site do, each <em>tenant</em> with a
share of its own, while a process beside them measured what they got, by NVML and by its own clock.</p>
<p>Each figure stands beside what was expected, with its tolerance. <b class=within>Within</b>: it lies in that.
<b class=outside>Outside</b>: it does not. <b class=told>Told</b>: nothing was expected of it.
<b class=not-judged>Not judged</b>: this machine does not allow the check, which says why; that is no pass.</p>
"""


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return in a sentence how a run came out."""
    counts = {state: sum(outcome.state is state for outcome in outcomes) for state in State}
    judged = len(outcomes) - counts[State.NOT_JUDGED]
    return (
        f"Checks that were judged: {judged}; outside of their tolerance: {counts[State.OUTSIDE]}; "
        f"that this machine does not allow: {counts[State.NOT_JUDGED]}."
    )


def page(machine: Mapping[str, str], outcomes: Sequence[Outcome]) -> str:
    """Return the page of a run as HTML."""
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in machine.items())
    title = f"GPU shares on {escape(machine['GPU'])}"
    state = _class(State.OUTSIDE if any(outcome.state is State.OUTSIDE for outcome in outcomes) else State.TOLD)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style>'
        f'<h1>{title}</h1><p class="verdict {state}">{escape(verdict(outcomes))}</p>{_ABOUT}'
        f"{_outside(outcomes)}<h2>All checks</h2>{_contents(outcomes)}"
        f"<h2>The machine</h2><table class=facts>{facts}</table>{''.join(map(_section, outcomes))}</html>\n"
    )


def _outside(outcomes: Sequence[Outcome]) -> str:
    """Return what did not come out as it should, before all else."""
    rows = ""
    for outcome in outcomes:
        link = _link(outcome)
        if outcome.error:
            rows += f"<tr><td>{link}</td><td colspan=2 class=outside>{escape(outcome.error)}</td></tr>"
        for figure in outcome.figures:
            if figure.state is State.OUTSIDE:
                rows += (
                    f"<tr><td>{link}<span class=note>{escape(figure.name)}</span></td>"
                    f"<td class='number outside'>{escape(shown(figure))}</td>"
                    f"<td class=number>{escape(figure.expectation)}</td></tr>"
                )
    head = "<tr><th>Check</th><th class=number>Found</th><th class=number>Expected</th></tr>"
    return f"<h2>Outside of the tolerance</h2><table>{head}{rows}</table>" if rows else ""


def _contents(outcomes: Sequence[Outcome]) -> str:
    rows = "".join(
        f'<tr><td>{_link(outcome)}</td><td class="{_class(outcome.state)}">{outcome.state.value}</td>'
        f"<td class=number>{outcome.took_s:.1f} s</td></tr>"
        for outcome in outcomes
    )
    total = f"<tr><td>in all</td><td></td><td class=number>{_seconds(outcomes):.0f} s</td></tr>"
    return f"<table><tr><th>Check</th><th>Outcome</th><th class=number>Took</th></tr>{rows}{total}</table>"


def _section(outcome: Outcome) -> str:
    told = outcome.error or outcome.why
    rows = "".join(map(_row, outcome.figures))
    head = "<tr><th>Figure</th><th class=number>Found</th><th class=number>Expected</th><th>Outcome</th></tr>"
    body = f"<table>{head}{rows}</table>" if rows else ""
    state = _class(outcome.state)
    return (
        f'<h2 id="{_place(outcome)}">{escape(outcome.check)} – <span class="{state}">{outcome.state.value}</span></h2>'
        f"<p>{escape(outcome.subject)}</p>{f'<p class={state}>{escape(told)}</p>' if told else ''}{body}"
    )


def _row(figure: Figure) -> str:
    note = f"<span class=note>{escape(figure.note)}</span>" if figure.note else ""
    return (
        f"<tr><td>{escape(figure.name)}{note}</td><td class=number>{escape(shown(figure))}</td>"
        f"<td class=number>{escape(figure.expectation)}</td>"
        f'<td class="{_class(figure.state)}">{figure.state.value}</td></tr>'
    )


def _link(outcome: Outcome) -> str:
    return f'<a href="#{_place(outcome)}">{escape(outcome.check)}</a>'


def _place(outcome: Outcome) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in outcome.check)


def _class(state: State) -> str:
    return state.value.replace(" ", "-")


def _seconds(outcomes: Iterable[Outcome]) -> float:
    return sum(outcome.took_s for outcome in outcomes)


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


def summary(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """Return how each check came out and how long it took, then all in a sentence, for a terminal."""
    for outcome in outcomes:
        yield f"{outcome.took_s:7.1f} s  {outcome.state.value:<10}  {outcome.check}"
    yield f"{_seconds(outcomes):7.1f} s  in all"
    yield verdict(outcomes)
