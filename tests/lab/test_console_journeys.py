"""A user and an administrator in the closed network who have a browser and nothing else.

Their name server knows the names of console and apps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import follow, new_page, sign_in
from tests.lab.journey import Journey, slowness

NAMES, CONSOLE, APP = (
    "*.gpu.test",
    "https://console.gpu.test",
    re.compile(r"https://8888-[0-9a-f-]+\.apps\.gpu\.test:9443/"),
)
FIRST, CHOSEN = "Given1horse!", "Chosen1horse!"
GROUP, USER = "console", "erin"
MADE = (("project", "of-dan"), ("user", "dan"))
"""What the administrator makes, and deletes again."""

RUN_IN_A_KERNEL = """
async ([kernels, code]) => {
    const cookie = document.cookie.match(/_xsrf=([^;]+)/);
    const headers = cookie ? {"X-XSRFToken": cookie[1]} : {};
    const kernel = await (await fetch(kernels, {method: "POST", headers})).json();
    const socket = new WebSocket(`${kernels.replace("https", "wss")}/${kernel.id}/channels`);
    const header = {msg_id: "1", msg_type: "execute_request", username: "", session: "1", date: "", version: "5.3"};
    const content = {code, silent: false, store_history: false, user_expressions: {}, allow_stdin: false};
    const request = {header, content, parent_header: {}, metadata: {}, buffers: [], channel: "shell"};
    return new Promise((resolve, reject) => {
        socket.onerror = () => reject("refused");
        socket.onopen = () => socket.send(JSON.stringify(request));
        socket.onmessage = ({data}) => {
            const message = JSON.parse(data);
            if (message.msg_type === "stream") resolve(message.content.text);
        };
    });
}
"""


@pytest.fixture
def page(journey: Journey) -> Iterator[Page]:
    """A page of a browser that knows no login."""
    with new_page("10.71.9.10", NAMES) as page:
        page.set_default_timeout(60_000 * slowness())
        expect.set_options(timeout=60_000 * slowness())
        page.on("dialog", lambda dialog: dialog.accept())
        yield page


@pytest.fixture
def user(journey: Journey) -> Iterator[str]:
    """Somebody new, in a project that may hold one GPU; neither is left."""
    journey.penstock("user", "create", USER, "--must-change-password", "--password-stdin", stdin=FIRST + "\n")
    journey.penstock("project", "create", GROUP, "--gpus", "1", "--no-over-quota", "--member", USER)
    yield USER
    left = [session["id"] for session in journey.json("list", "--project", GROUP)]
    if left:
        journey.penstock("delete", "--project", GROUP, *left)
    journey.until(lambda: not journey.json("list", "--project", GROUP), "the project is empty")
    journey.penstock("project", "delete", GROUP)
    journey.penstock("user", "delete", USER)


@pytest.fixture
def nothing_made(journey: Journey) -> Iterator[None]:
    """Leave nothing of the administrator's, wherever the way ended."""
    yield
    for kind, name in MADE:
        journey.try_penstock(kind, "delete", name)


def launch(page: Page, name: str, *, steps: int, template: str = "", fits: str) -> None:
    """Fill in what is launched, read what the page says of it beforehand, and launch it."""
    follow(page.get_by_role("link", name="Home", exact=True))
    follow(page.get_by_role("link", name="Launch a session").first)
    if template:
        follow(page.get_by_role("link", name=template))
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("Project", exact=True).select_option(GROUP)
    page.get_by_label("Kind", exact=True).select_option("interactive")
    share = page.get_by_label("GPUs of each container", exact=True)
    share.focus()
    for _ in range(steps):
        share.press("ArrowRight")
    expect(page.locator("#check")).to_contain_text(fits)
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def test_a_user_comes_from_the_first_password_to_a_notebook_and_ends_it(
    journey: Journey, user: str, page: Page
) -> None:
    page.goto(CONSOLE)
    sign_in(page, user, FIRST)
    page.get_by_label("New password", exact=True).fill(CHOSEN)
    page.get_by_label("New password, again").fill(CHOSEN)
    page.get_by_role("button", name="Change password").click()
    expect(page).to_have_url(f"{CONSOLE}/")

    launch(page, "notes", steps=15, template="Jupyter", fits="Fits now")
    expect(page.locator("dl .state")).to_have_text("running")
    notes = page.url
    launch(page, "later", steps=10, fits="It would wait")
    expect(page.locator("dl .state")).to_have_text("waiting")
    expect(page.get_by_text(f"{GROUP} holds")).to_be_visible()
    later = page.url

    page.goto(notes)
    follow(page.get_by_role("link", name="Terminal"))
    expect(page.get_by_role("textbox", name="Terminal")).to_be_focused()
    page.keyboard.type("echo $((6 * 7))e\n")
    expect(page.locator(".xterm-rows")).to_contain_text("42e")
    follow(page.get_by_role("link", name="Back to the session"))

    address = page.get_by_role("link", name="Open port 8888").get_attribute("href") or ""
    assert APP.fullmatch(address)
    page.goto(address)
    page.wait_for_url(f"{address}lab**")
    page.locator(".jp-LauncherCard").first.wait_for()
    assert page.evaluate(RUN_IN_A_KERNEL, [f"{address}api/kernels", "print(6 * 7)"]) == "42\n"

    page.goto(notes)
    page.get_by_label("GPU share").select_option("0.5")
    page.get_by_role("button", name="Resize").click()
    expect(page.get_by_text("0.5 × Simulated GPU")).to_be_visible()
    page.goto(later)
    expect(page.locator("dl .state")).to_have_text("running")
    for session in (notes, later):
        page.goto(session)
        page.get_by_role("button", name="End", exact=True).click()
        expect(page.locator("dl .state")).to_have_text("ended")


def test_who_is_not_signed_in_comes_to_a_notebook_by_the_login(journey: Journey, page: Page) -> None:
    journey.project()
    journey.clear()
    words = ("-i", "jupyter", "-g", "0.5", "--interactive", "--service-type", "ingress", "--port", "8888")
    journey.penstock("submit", "notes", *words)
    journey.until(lambda: journey.states() == {"notes": "RUNNING"}, "the notebook runs")
    # from the site's index, by its name and with its authority
    journey.penstock("exec", "notes", "--", "pip", "install", "--user", "--no-deps", "--ignore-installed", "packaging")
    notes = journey.json("get", "notes")["urls"][0]
    assert APP.fullmatch(notes)
    journey.until(lambda: (page.goto(notes), "/login?next=" in page.url)[1], "the login is shown")
    sign_in(page, "admin", journey.own_password.read_text().strip())
    page.wait_for_url(f"{notes}lab**")
    page.locator(".jp-LauncherCard").first.wait_for()
    journey.clear()


@pytest.mark.usefixtures("nothing_made")
def test_an_administrator_makes_a_user_and_a_project_and_empties_a_node(journey: Journey, page: Page) -> None:
    page.goto(CONSOLE)
    sign_in(page, "admin", journey.own_password.read_text().strip())
    expect(page).to_have_url(f"{CONSOLE}/")
    follow(page.get_by_role("link", name="Users", exact=True))
    page.get_by_label("Name", exact=True).fill("dan")
    page.get_by_label("First password").fill(FIRST)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("row").filter(has_text="dan")).to_be_visible()

    follow(page.get_by_role("link", name="Projects", exact=True))
    page.get_by_label("Name", exact=True).fill("of-dan")
    page.get_by_label("Guaranteed GPUs").fill("2")
    page.get_by_label("Members").fill("dan")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="of-dan")).to_be_visible()

    follow(page.get_by_role("link", name="Nodes", exact=True))
    row = page.get_by_role("row").filter(has_text="worker2")
    row.get_by_role("button", name="Drain").click()
    expect(row).to_contain_text("maintenance")
    expect(row.get_by_role("button", name="Back into service")).to_be_visible()
    row.get_by_role("button", name="Back into service").click()
    expect(row.get_by_role("button", name="Drain")).to_be_visible()

    follow(page.get_by_role("link", name="Accounting", exact=True))
    expect(page.locator(".plot canvas").first).to_be_visible()
    follow(page.get_by_role("link", name="Projects", exact=True).first)
    follow(page.get_by_role("link", name="of-dan"))
    page.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{CONSOLE}/projects")
    expect(page.get_by_role("link", name="of-dan")).to_have_count(0)
    follow(page.get_by_role("link", name="Users", exact=True).first)
    page.get_by_role("row").filter(has_text="dan").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("row").filter(has_text="dan")).to_have_count(0)
