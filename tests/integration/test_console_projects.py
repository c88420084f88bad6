"""An administrator's way in a real browser: a project with all its settings, and a volume of it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser import findings, follow, sign_in
from tests.integration.test_console import PASSWORD, V1, WIDTHS, Site, browser, ok, site

__all__ = ["site"]


@pytest.mark.parametrize("width", WIDTHS)
def test_an_administrator_makes_a_project_and_a_volume_that_goes_by_its_name(site: Site, width: int) -> None:
    project, volume = f"lab-{width}", f"data-{width}"
    with browser(site, width) as window:
        page = window.page
        window.open("/login?next=/projects")
        sign_in(page, "admin", PASSWORD)
        page.wait_for_url(f"{site.url}/projects")
        page.get_by_label("Name", exact=True).fill(project)
        page.get_by_label("Guaranteed GPUs").fill("1")
        page.get_by_label("Ends (UTC)").fill("2999-01-01T12:30")
        page.get_by_label("Sessions that run at its end").select_option("finish")
        page.get_by_text("More settings").click()
        cores = page.get_by_label("At most (CPU cores)")
        cores.fill("0.00001")
        page.get_by_text("More settings").click()
        expect(cores).to_be_hidden()
        page.get_by_role("button", name="Create").click()
        expect(page.locator("#problem-cpu_limit_milli, #problem-cpu_limit")).to_be_visible()
        cores.fill("")
        page.get_by_role("button", name="Create").click()

        expect(page).to_have_url(f"{site.url}/projects/{project}")
        expect(page.get_by_label("Ends (UTC)")).to_have_value("2999-01-01T12:30")
        expect(page.get_by_text("It has no volume yet.")).to_be_visible()
        page.get_by_label("Interactive sessions end after (hours)").fill("8")
        page.get_by_role("button", name="Change").first.click()
        page.wait_for_function("() => document.querySelector('[name=interactive_limit]').defaultValue === '8'")
        assert ok(site.admin.get(f"{V1}/projects/{project}"))["interactive_limit_s"] == 8 * 3600

        follow(page.get_by_role("link", name="Volumes", exact=True))
        page.get_by_label("Name", exact=True).fill(volume)
        page.get_by_label("Project", exact=True).select_option(project)
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("link", name=volume)).to_be_visible()
        window.show("volumes")
        assert findings(page) == []

        site.submit(f"work-{width}", project=project, pvcs=[{"name": volume, "target": "/data"}])
        window.open(f"/projects/{project}")
        expect(page.get_by_role("link", name=f"work-{width}")).to_be_visible()
        expect(page.get_by_role("link", name="python:3.11")).to_be_visible()
        window.show("project-home")
        assert findings(page) == []
        follow(page.get_by_role("link", name=volume))
        expect(page.get_by_role("link", name=f"work-{width}")).to_be_visible()
        window.show("volume")
        page.get_by_label("Write its name").fill("another")
        page.get_by_role("button", name="Delete").click()
        expect(page.locator("#problem-confirmed")).to_contain_text(f"write {volume}")
        ok(site.admin.delete(f"{V1}/sessions/work-{width}", params={"project": project}))
        expect(page.get_by_text("No live session uses it.")).to_be_visible()
        page.get_by_label("Write its name").fill(volume)
        page.get_by_role("button", name="Delete").click()
        expect(page).to_have_url(f"{site.url}/volumes")
        expect(page.get_by_role("row").filter(has_text=volume).filter(has_text="ready")).to_have_count(0)
