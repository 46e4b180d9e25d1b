"""A purchase in a real browser is worth what the same clicks are worth in the text environment.

Needs Chromium (Debian: `apt-get install chromium`) and playwright, which is in the extra `dev`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import pytest

from hgpo.envs.webshop import Catalog, WebShopEnv, generate_catalog
from hgpo.envs.webshop.expert import Expert
from hgpo.envs.webshop.server import ShopServer
from unit.envs.webshop.shop import GOAL, MUG, OTHER_MUG

pytestmark = pytest.mark.slow
MARKUP = (
    "<script>window.acted=1</script>",
    "<img src=x onerror=window.acted=1>",
    "</title></style></p></button><svg onload=window.acted=1>",
    "\"><input name=action value='click[buy now]'><button>x",
    "<a href=javascript:window.acted=1>x</a><iframe src=//example.org></iframe>",
    "<form action=//example.org><button>x</button></form><meta http-equiv=refresh content=0;url=//example.org>",
)
PLANTED = "script, img, svg, iframe, body a[href^=javascript], meta[http-equiv], form[action^='//'], input[name=action]"


@contextmanager
def running(server: ShopServer) -> Iterator[ShopServer]:
    with server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Customer:
    """Acts in a page as a person does: types into the search field, presses buttons, reads what is visible."""

    def __init__(self, browser: Any) -> None:
        self.page = browser.new_page()
        self.requested: list[str] = []
        self.noted: list[str] = []
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.on("pageerror", lambda error: self.noted.append(str(error)))
        self.page.on("dialog", lambda dialog: self.noted.append(dialog.message))

    def start(self, address: str, goal: int) -> None:
        self.page.goto(address)
        self.page.get_by_label("Goal").fill(str(goal))
        with self.page.expect_navigation():
            self.page.get_by_role("button", name="Start").click()

    def act(self, action: str) -> None:
        """What `search[words]` or `click[what]` means to a person, who then waits for the page."""
        verb, _, rest = action.partition("[")
        # A press alone returns once the next page has begun: to reload then fails now and again.
        with self.page.expect_navigation():
            if verb == "search":
                self.page.get_by_label("Search").fill(rest[:-1])
                self.page.get_by_label("Search").press("Enter")
            else:
                wanted = rest[:-1]
                buttons = self.page.get_by_role("button").all()
                next(button for button in buttons if button.inner_text().lower() == wanted).click()

    def reward(self) -> float:
        lines = [line for line in self.page.inner_text("body").split("\n") if line]
        return float(lines[lines.index("Your score (min 0.0, max 1.0)") + 1])


@pytest.mark.parametrize("skipped", [(), ("blue", "red", "small", "large")], ids=["as wanted", "an option missing"])
def test_a_purchase_is_worth_the_same_in_the_browser_and_in_text(browser: Any, skipped: tuple[str, ...]) -> None:
    catalog = generate_catalog("medium", seed=5)
    goal = next(number for number, goal in enumerate(catalog.goals) if len(goal.options) == 2)
    environment, expert = WebShopEnv(catalog), Expert()
    observation, info = environment.reset(goal=goal)
    expert.reset(observation, info)
    with running(ShopServer(catalog)) as server:
        customer = Customer(browser)
        customer.start(f"http://127.0.0.1:{server.server_port}/", goal)
        terminated, reward, clicks = False, 0.0, 0
        while not terminated:
            action = expert.act(observation, info)
            if action[6:-1] in catalog.goals[goal].options.values() and skipped:  # type: ignore[union-attr]
                action = "click[buy now]"
            observation, reward, terminated, _, info = environment.step(action)
            customer.act(action)
            shown = customer.page.inner_text("body")
            assert terminated or info["task"] in shown
            clicks += 1
            assert clicks < 30
        assert customer.reward() == reward
        assert reward < 1 if skipped else reward == 1
        assert not customer.noted


def test_the_terminals_session_is_the_browsers(browser: Any) -> None:
    catalog = generate_catalog("small", seed=5)
    environment = WebShopEnv(catalog, "brief", page_size=3, results=9)
    _, info = environment.reset(goal=0)
    with running(environment.serve()) as server:
        customer = Customer(browser)
        customer.page.goto(server.running_address)
        customer.act(f"search[{info['task'].split(' , ')[0]}]")
        observation, _, _, _, info = environment.step("look")
        assert observation.startswith("page 1 #")
        product = info["admissible_commands"][-1]
        environment.step(product)
        customer.page.reload()
        customer.act("click[buy now]")
        _, reward, terminated, _, info = environment.step("search[something else]")
        assert terminated
        assert reward == customer.reward() > 0
        assert info["reward_parts"]["reward"] == reward


def test_markup_in_a_catalogue_does_nothing(browser: Any) -> None:
    text = " ".join(MARKUP)
    product = replace(
        MUG,
        title=f"Mug {text}",
        description=text,
        bullet_points=(text, text),
        options={f"color {text}": (text.lower(), "it's")},
        attributes=(text,),
        category=text,
        query=text,
    )
    goal = replace(GOAL, instruction=f"a mug {text}", options={"color": text})
    catalog = Catalog((product, OTHER_MUG), np.array([10.0, 10.0]), (goal,))
    with running(ShopServer(catalog)) as server:
        own = f"http://127.0.0.1:{server.server_port}/"
        customer = Customer(browser)
        customer.start(own, 0)
        look_around = ("click[description]", "click[< prev]", "click[features]", "click[< prev]")
        for action in ("search[mug]", "click[mug1]", f"click[{text.lower()}]", *look_around, "click[buy now]"):
            customer.act(action)
            customer.page.wait_for_timeout(50)
            assert customer.page.evaluate("window.acted") is None, action
            assert customer.page.locator(PLANTED).count() == 0, action
        assert customer.reward() > 0
        assert not customer.noted
        assert all(url.startswith(own) for url in customer.requested)
