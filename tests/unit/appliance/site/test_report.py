"""The hand-over report."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from appliance.site import report
from appliance.site.site_file import load
from appliance.site.verdict import NodeVerdict, Verdict
from common.checks import Check, CheckState
from common.errors import UnavailableError
from common.yaml_document import parse

SITE = load(parse((Path(__file__).parents[4] / "inventory/example/site.yml").read_text(), "site.yml"))
FACTS = {"os": "Debian 12", "kernel": "6.1.0", "machine": "x86_64", "versions": {"chrony": "4.3-2"}}
DEPLOY: dict[str, Any] = {
    "started": "2026-01-01T00:00:00Z",
    "ok": True,
    "seconds": 65.4,
    "changes": 0,
    "bundle": "penstock-0.1.0-abc",
    "phases": {"Database": 12.34},
}


def verdict(*, ok: bool = True, seen: str = "fine") -> Verdict:
    nodes = {
        node.name: NodeVerdict([Check.of("answers", "answers", ok=ok, evidence=seen, hint="mend it")], FACTS)
        for node in SITE.nodes
    }
    return Verdict("lab", "2026-01-02T03:04:05Z", nodes)


@pytest.mark.parametrize("name", report.NAMES)
def test_it_names_nodes_addresses_versions_times_and_verdict(name: str) -> None:
    text = report.render(SITE, verdict(), [DEPLOY])[name]
    for node in SITE.nodes:
        assert node.name in text
        assert str(node.address) in text
    for words in ("Debian 12", "6.1.0", "chrony", "4.3-2", "2026-01-02T03:04:05Z", "65.4 s", "12.3", SITE.api_url):
        assert words in text
    assert "everything is as it should be" in text


@pytest.mark.parametrize("name", report.NAMES)
def test_it_names_the_workers_that_a_deploy_left_out(name: str) -> None:
    left_out = {"worker2": [{"where": "worker2", "reason": "it does not answer", "hint": "start it"}]}
    text = report.render(SITE, verdict(), [DEPLOY | {"left_out": left_out}])[name]
    assert "2026-01-01T00:00:00Z: deployed without worker2 in 65.4 s" in text
    assert "Left out: worker2, because it does not answer" in text


@pytest.mark.parametrize("name", report.NAMES)
def test_a_bad_check_shows(name: str) -> None:
    text = report.render(SITE, verdict(ok=False, seen="it is gone"), [])[name]
    assert "not as it should be" in text
    assert "everything" not in text
    assert "it is gone" in text
    assert "Hint: mend it" in text
    assert "None is on record" in text


@pytest.mark.parametrize(("state", "word"), [("warn", "warning"), ("unknown", "unknown")])
@pytest.mark.parametrize("name", report.NAMES)
def test_a_check_is_more_than_good_or_bad(name: str, state: str, word: str) -> None:
    found = verdict()
    found.nodes["worker1"].checks = [Check("gpus", "GPUs", CheckState(state), "seen", since="2026-01-01T00:00:00Z")]
    text = report.render(SITE, found, [])[name]
    assert ("everything is as it should be" in text) is (state == "warn")
    assert word in text
    assert "2026-01-01T00:00:00Z" in text


def test_a_silent_node_has_unknown_facts() -> None:
    found = verdict()
    found.nodes["worker1"].facts = {}
    assert "| worker1 | 10.71.8.11 | worker | unknown | unknown |" in report.render(SITE, found, [])["report.md"]


def test_html_loads_nothing_and_is_well_formed() -> None:
    text = report.render(SITE, verdict(), [DEPLOY])["report.html"]
    assert not re.search(r"\b(src|href|srcset|action)\s*=|@import|url\(", text)
    opened: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag != "meta":
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Balance().feed(text)
    assert not opened


def test_what_nodes_say_cannot_break_out_of_the_page() -> None:
    texts = report.render(SITE, verdict(seen="<script>x</script> | y\nz"), [])
    assert "<script>" not in texts["report.html"]
    assert "| <script>x</script> \\| y z" in texts["report.md"]


def test_only_the_latest_deploys_are_shown() -> None:
    deploys = [{**DEPLOY, "started": f"2026-01-{day:02}T00:00:00Z"} for day in range(9, 0, -1)]
    text = report.render(SITE, verdict(), deploys)["report.md"]
    assert text.count("### 2026-") == report.DEPLOYS_SHOWN
    assert "2026-01-09" in text


def test_it_is_written_to_a_folder(tmp_path: Path) -> None:
    paths = report.write(SITE, verdict(), [], tmp_path / "out" / "here")
    assert [path.name for path in paths] == ["report.md", "report.html"]
    assert all(path.read_text().strip() for path in paths)


def test_a_folder_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="choose another folder"):
        report.write(SITE, verdict(), [], tmp_path / "file" / "out")


def test_files_of_others_that_were_kept_are_named() -> None:
    texts = report.render(SITE, verdict(), [DEPLOY | {"kept": {"worker1": ["/etc/docker/daemon.json"]}}])
    for text in texts.values():
        assert "Files of others on worker1, kept below /var/lib/penstock/kept: /etc/docker/daemon.json" in text
