"""The report as one page for people: everything in it, nothing loaded from elsewhere, every word escaped."""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template

from reservoir.scan.report import Report
from reservoir.scan.verdict import Verdict


def render(report: Report, verdict: Verdict) -> bytes:
    """Return the page of a report with what the policy says of it."""
    licences = Counter(licence.expression for licence in report.licences if licence.expression)
    page = _template().render(
        report=report,
        verdict=verdict,
        borne={finding.id + finding.advised + finding.version: exemption for finding, exemption in verdict.borne},
        licences=sorted(licences.items(), key=lambda entry: (-entry[1], entry[0])),
        unknown=[licence for licence in report.licences if licence.expression is None],
    )
    return page.encode()


# kept: a publication writes the page again and again, and to compile it takes longer than to fill it in
@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(
        resources.files("reservoir").joinpath("scan", "page.html.j2").read_text(encoding="utf-8")
    )
