"""A real browser, Debian's, for tests that follow what people see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 60_000
AXE = Path(__file__).parent / "vendor" / "axe" / "axe.min.js"
SHIFTS = """
() => new Promise(resolve => {
    let sum = 0;
    new PerformanceObserver(list => {
        for (const shift of list.getEntries()) if (!shift.hadRecentInput) sum += shift.value;
    }).observe({ type: "layout-shift", buffered: true });
    // what was changed before is on the screen with the frame after the next
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => resolve(sum), 100)));
})
"""
ECHO = """
(url, words) => new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.onerror = () => reject("refused");
    socket.onopen = () => socket.send(words);
    socket.onmessage = message => message.data === words && resolve(message.data);
})
"""


@contextmanager
def new_page(host: str, names: str = "") -> Iterator[Page]:
    """Give a page of a browser that knows no login and finds nothing but one host, which may have names, too."""
    known = f"MAP {names} {host}, " if names else ""
    options = ["--no-sandbox", f"--host-resolver-rules={known}MAP * ~NOTFOUND, EXCLUDE {host}"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        with chromium.new_context(ignore_https_errors=True) as context:
            context.set_default_timeout(PATIENCE_MS)
            expect.set_options(timeout=PATIENCE_MS)
            yield context.new_page()
        chromium.close()


def follow(link: Locator) -> None:
    """Click a link, and wait until the page that it leads to can do what it is for."""
    with link.page.expect_navigation():
        link.click()


def sign_in(page: Page, name: str, password: str) -> None:
    """Fill in the login page and send it."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def findings(page: Page) -> list[str]:
    """Return what axe finds on a page that keeps somebody from using it: serious and critical findings, where each is.

    It is given to the page as the developer tools do, which a page's policy has no say in.
    """
    assert AXE.exists(), "run tools/vendor.sh"
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations'], preload: false})")
    return [
        f"{one['id']}: {node['html']} ({node['failureSummary']})"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def moved(page: Page) -> float:
    """Return how far what a page shows has moved by itself: the sum of its layout shifts, as browsers measure them."""
    return float(page.evaluate(SHIFTS))
