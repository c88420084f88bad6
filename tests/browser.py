"""A real browser, Debian's, for tests that follow what people see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
ECHO = """
(url, words) => new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.onerror = () => reject("refused");
    socket.onopen = () => socket.send(words);
    socket.onmessage = message => message.data === words && resolve(message.data);
})
"""


@contextmanager
def new_page(host: str) -> Iterator[Page]:
    """Give a page of a browser that knows no login and finds nothing but one host."""
    options = ["--no-sandbox", f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {host}"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        with chromium.new_context(ignore_https_errors=True) as context:
            context.set_default_timeout(60_000)
            yield context.new_page()
        chromium.close()


def sign_in(page: Page, name: str, password: str) -> None:
    """Fill in the login page and send it."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()
