"""The hand-over report of a site, as Markdown and as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from appliance.site.model import Site
from appliance.site.verdict import Verdict
from common.checks import CheckState
from common.errors import UnavailableError

DEPLOYS_SHOWN = 5
NAMES = ("report.md", "report.html")
WORDS = {
    CheckState.OK: "good",
    CheckState.WARN: "warning",
    CheckState.FAIL: "not good",
    CheckState.UNKNOWN: "unknown",
}


def write(site: Site, verdict: Verdict, deploys: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Write the report into `folder`, which is made where it is missing, and return its files.

    `deploys` are the records of the site's deploys, the latest first.
    """
    texts = render(site, verdict, deploys)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"the report cannot be written: {error.strerror}", where=str(folder), hint="choose another folder"
        ) from error
    return [folder / name for name in texts]


def render(site: Site, verdict: Verdict, deploys: list[dict[str, Any]]) -> dict[str, str]:
    """Return the text of the report by the name of its file."""
    environment = Environment(
        loader=PackageLoader("appliance.site"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _cell
    return {
        name: environment.get_template(f"{name}.j2").render(
            site=site, verdict=verdict, deploys=deploys[:DEPLOYS_SHOWN], versions=_versions(verdict), words=WORDS
        )
        for name in NAMES
    }


def _versions(verdict: Verdict) -> list[tuple[str, str, list[str]]]:
    """Return each piece of software with its version and the nodes that have it, by name."""
    holders: dict[tuple[str, str], list[str]] = {}
    for name, node in verdict.nodes.items():
        for software, version in node.facts.get("versions", {}).items():
            holders.setdefault((software, version), []).append(name)
    return [(software, version, nodes) for (software, version), nodes in sorted(holders.items())]


def _cell(value: object) -> str:
    """Return a value as it may stand in a cell of a Markdown table."""
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
