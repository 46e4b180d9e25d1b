"""A shop in a browser's terms, over a real socket on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from threading import Thread
from urllib.parse import urlencode

import numpy as np
import pytest

from hgpo.envs.webshop import Catalog, WebShopEnv
from hgpo.envs.webshop.html import page
from hgpo.envs.webshop.server import ShopServer
from hgpo.envs.webshop.session import Session
from unit.envs.webshop.shop import GOAL, MUG, small_catalog

EVIL = '"><script>alert(1)</script>'


@pytest.fixture
def server() -> Iterator[ShopServer]:
    with ShopServer(small_catalog()) as running:
        thread = Thread(target=running.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: ShopServer, path: str, form: dict[str, str] | None = None, **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    body = None if form is None else urlencode(form)
    connection.request("GET" if form is None else "POST", path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response, text


def follow(server: ShopServer, path: str, **form: str) -> tuple[str, str]:
    """Post a form and read the page that it leads to."""
    response, _ = ask(server, path, form)
    assert response.status == 303
    location = str(response.headers["Location"])
    return location, ask(server, location)[1]


def test_from_search_to_purchase(server: ShopServer) -> None:
    assert "Goal" in ask(server, "/")[1]
    path, text = follow(server, "/", goal="0")
    assert "find a blue mug" in text
    _, text = follow(server, path, words="blue mug")
    assert 'value="click[mug1]">MUG1</button>' in text
    for action in ("click[mug1]", "click[blue]", "click[small]"):
        _, text = follow(server, path, action=action)
    assert 'class="option chosen" name="action" value="click[blue]"' in text
    _, text = follow(server, path, action="click[buy now]")
    assert "1.0" in text
    assert "Shop again" in text
    assert follow(server, path, action="click[back to search]")[1] == text  # nothing comes after the end


def test_two_sessions_do_not_meet(server: ShopServer) -> None:
    one, _ = follow(server, "/", goal="0")
    other, _ = follow(server, "/", goal="1")
    follow(server, one, words="lamp")
    assert one != other
    assert "i want a mug" in ask(server, other)[1]


def test_only_this_machines_own_pages_are_answered(server: ShopServer) -> None:
    assert ask(server, "/", Host="shop.example")[0].status == 403
    assert ask(server, "/", {"goal": "0"}, Origin="http://shop.example")[0].status == 403
    own = f"http://127.0.0.1:{server.server_port}"
    assert ask(server, "/", {"goal": "0"}, Origin=own)[0].status == 303
    assert server.server_address[0] == "127.0.0.1"


def test_wrong_requests(server: ShopServer) -> None:
    for goal in ("2", "-1", "x", "", "9" * 50, "²", "0" * 12 + "9" * 30):
        assert ask(server, "/", {"goal": goal})[0].status == 400
    for path in ("/session/none", "/../etc/passwd", "/favicon.ico"):
        assert ask(server, path)[0].status == 404
    assert ask(server, "/session/none", {"words": "x"})[0].status == 404
    assert ask(server, "/", {"goal": "0" * 70_000})[0].status == 413


def test_no_script_can_run(server: ShopServer) -> None:
    response, _ = ask(server, "/")
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]


def test_every_text_is_escaped() -> None:
    product = replace(
        MUG,
        title=EVIL,
        asin=EVIL[:10],
        description=EVIL,
        bullet_points=(EVIL,),
        options={EVIL: (EVIL, "it's"), "size": ("small",)},
        attributes=(EVIL,),
    )
    session = Session(Catalog((product,), np.array([1.0]), (replace(GOAL, instruction=f"mug {EVIL}"),)), 0)
    pages = [page(session, f"/{EVIL}")]
    for action in ("search[script]", f"click[{EVIL[:10]}]", f"click[{EVIL}]", "click[description]", "click[< prev]"):
        session.act(action)
        pages.append(page(session, f"/{EVIL}"))
    for action in ("click[features]", "click[< prev]", "click[buy now]"):
        session.act(action)
        pages.append(page(session, f"/{EVIL}"))
    assert session.purchase is not None
    for text in pages:
        tags = set(re.findall(r"<(/?\w+)", text))
        assert not {tag for tag in tags if tag.strip("/") in ("script", "iframe", "img", "object")}
        assert EVIL not in text
    assert "&lt;script&gt;" in pages[0]


def test_a_page_with_nothing_on_it_says_so() -> None:
    session = Session(small_catalog(), 0)
    for action in ("search[mug]", "click[mug2]", "click[description]"):
        session.act(action)
    assert '<p class="nothing">Nothing is said here.</p>' in page(session, "/")
    for action in ("click[< prev]", "click[< prev]", "click[mug1]", "click[description]"):
        session.act(action)
    assert "Keeps tea warm." in page(session, "/")
    assert "Nothing is said" not in page(session, "/")


def test_a_running_episode_can_be_served() -> None:
    environment = WebShopEnv(small_catalog(), "brief", max_steps=3)
    with pytest.raises(RuntimeError, match="no episode is running"):
        environment.serve()
    environment.reset(goal=0)
    with environment.serve() as running:
        Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        path = "/session/" + running.running_address.rpartition("/")[2]
        follow(running, path, words="blue mug")
        observation, _, _, _, info = environment.step("look")
        assert observation.startswith("page 1 #MUG1")
        assert "click[mug1]" in info["admissible_commands"]
        environment.step("click[mug1]")
        _, text = follow(running, path, action="click[buy now]")
        observation, reward, terminated, truncated, info = environment.step("search[lamp]")  # too late
        running.shutdown()
    assert (terminated, truncated) == (True, False)
    assert reward == info["score"] > 0
    assert f"<p>{reward}</p>" in text
    assert observation.startswith("bought #MUG1")


def test_other_peoples_sessions_never_take_the_place_of_the_running_one() -> None:
    environment = WebShopEnv(small_catalog(), "brief", max_steps=3)
    environment.reset(goal=0)
    with environment.serve() as running:
        names = [running.start_session(0) for _ in range(101)]
        assert running.session(names[0]) is None  # the oldest of those that were started
        assert running.session(names[1]) is not None
        assert running.session(running.running_address.rpartition("/")[2]) is not None


def test_a_page_of_results_is_as_long_as_asked() -> None:
    with ShopServer(small_catalog(), page_size=1) as running:
        session = running.session(running.start_session(0))
        assert session is not None
        session.act("search[mug]")
        assert len(session.view.products) == 1


def test_a_shop_without_goals_is_refused() -> None:
    with pytest.raises(ValueError, match="no goals"):
        ShopServer(Catalog((MUG,), np.array([1.0]), ()))
