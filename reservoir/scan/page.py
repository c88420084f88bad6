"""The report as one page for people: everything in it, nothing loaded from elsewhere, every word escaped."""

from __future__ import annotations

from collections import Counter
from importlib import resources

from jinja2 import Environment, StrictUndefined

from reservoir.scan.report import Report
from reservoir.scan.verdict import Verdict


def render(report: Report, verdict: Verdict) -> bytes:
    """Return the page of a report with what the policy says of it."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        resources.files("reservoir").joinpath("scan", "page.html.j2").read_text(encoding="utf-8")
    )
    licences = Counter(licence.expression for licence in report.licences if licence.expression)
    page = template.render(
        report=report,
        verdict=verdict,
        borne={finding.id + finding.advised + finding.version: exemption for finding, exemption in verdict.borne},
        licences=sorted(licences.items(), key=lambda entry: (-entry[1], entry[0])),
        unknown=[licence for licence in report.licences if licence.expression is None],
    )
    return page.encode()
