"""Serves a shop to a browser on this machine.

`hgpo play webshop --browser` serves one goal, which is in the terminal as well; `python -m hgpo.envs.webshop.server`
serves a whole shop. Open the address that it prints. Forms are taken from its own pages only, and no script is sent.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import OrderedDict
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs

from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.generator import generate_catalog
from hgpo.envs.webshop.html import document, page
from hgpo.envs.webshop.session import PAGE_SIZE, RESULTS, Session
from hgpo.envs.webshop.source import find_files
from hgpo.local_server import LocalHandler, LocalServer, whole_number

_MOST_SESSIONS = 100
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'",
    "Referrer-Policy": "same-origin",
}


class ShopServer(LocalServer):
    """The sessions of one catalogue. Port 0 takes a free one; `server_port` tells which.

    `results` and `page_size` are those of `Session`. `running` is a session that is there from the start and as long as
    the server, whoever else acts in it; `running_address` is its page.

    Example: `with ShopServer(catalog, port=8000) as server: server.serve_forever()`.
    """

    def __init__(
        self,
        catalog: Catalog,
        port: int = 0,
        *,
        results: int = RESULTS,
        page_size: int = PAGE_SIZE,
        running: Session | None = None,
    ) -> None:
        if not len(catalog.goals):
            raise ValueError("this catalogue has no goals")
        super().__init__(_Handler, port)
        self.catalog = catalog
        self.lock = Lock()
        self._sizes = {"results": results, "page_size": page_size}
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._running = (secrets.token_urlsafe(12), running) if running is not None else None
        self.running_address = f"http://{self.hosts[0]}/"
        if self._running is not None:
            self.running_address += f"session/{self._running[0]}"

    def start_session(self, goal: int) -> str:
        """A new session's name; the oldest that was started so gives way when there are too many."""
        name, session = secrets.token_urlsafe(12), Session(self.catalog, goal, **self._sizes)
        with self.lock:
            self._sessions[name] = session
            if len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return name

    def session(self, name: str) -> Session | None:
        """The session of that name, if it is still there."""
        if self._running is not None and name == self._running[0]:
            return self._running[1]
        with self.lock:
            return self._sessions.get(name)


class _Handler(LocalHandler):
    server: ShopServer

    def do_GET(self) -> None:
        if not self.trusted():
            return
        if self.path == "/":
            last = len(self.server.catalog.goals) - 1
            field = f'<input name="goal" type="number" min="0" max="{last}" value="0" required>'
            form = (
                '<h1>Which goal?</h1>\n<form class="start" method="post" action="/"><label>Goal '
                f"{field}</label> <button>Start</button></form>"
            )
            self._show(document("WebShop", form))
            return
        session = self._session()
        if session is not None:
            with self.server.lock:
                text = page(session, self.path)
            self._show(text)

    def do_POST(self) -> None:
        if not self.trusted():
            return
        content = self.body()
        if content is None:
            return
        text = content.decode("utf-8", errors="replace")
        fields = {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}
        if self.path == "/":
            goal = whole_number(fields.get("goal", ""))
            if goal is None or goal >= len(self.server.catalog.goals):
                self.refuse(HTTPStatus.BAD_REQUEST, f"Goals are 0 to {len(self.server.catalog.goals) - 1}.")
                return
            self.redirect(f"/session/{self.server.start_session(goal)}")
            return
        session = self._session()
        if session is None:
            return
        with self.server.lock:
            if session.purchase is None:
                session.act(fields.get("action") or f"search[{fields.get('words', '')}]")
        self.redirect(self.path)

    def _session(self) -> Session | None:
        """The session of the address; if there is none, the request is refused here."""
        session = self.server.session(self.path.removeprefix("/session/"))
        if session is None:
            self.refuse(HTTPStatus.NOT_FOUND, "No such session. Start one at /.")
        return session

    def _show(self, text: str) -> None:
        self.answer(text.encode(), "text/html", headers=_HEADERS)


def main(arguments: list[str] | None = None) -> int:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m hgpo.envs.webshop.server", description=__doc__)
    parser.add_argument("data_dir", nargs="?", type=Path, help="the official files (default: a generated shop)")
    parser.add_argument("--size", default="medium", help="of the generated shop: small, medium or large")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--port", type=int, default=8000)
    chosen = parser.parse_args(arguments)
    if chosen.data_dir is None:
        catalog = generate_catalog(chosen.size, chosen.seed)
    else:
        catalog = find_files(chosen.data_dir, seed=chosen.seed).open()
    try:
        served = ShopServer(catalog, chosen.port)
    except ValueError as error:
        parser.error(str(error))
    with served as server:
        sys.stdout.write(f"{server.running_address}  (Ctrl-C ends)\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
