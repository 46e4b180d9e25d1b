"""Serves a shop to a browser on this machine.

`hgpo play webshop --browser` serves one goal, which is in the terminal as well; `python -m hgpo.envs.webshop.server`
serves a whole shop. Open the address that it prints.

It listens on 127.0.0.1 only, answers only requests that name that address (so no web page elsewhere can reach it under
another name), takes forms only from its own pages, and sends no script.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections import OrderedDict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs

from hgpo.envs.webshop.catalog import Catalog
from hgpo.envs.webshop.generator import generate_catalog
from hgpo.envs.webshop.html import document, page
from hgpo.envs.webshop.session import PAGE_SIZE, RESULTS, Session
from hgpo.envs.webshop.source import find_files

ADDRESS = "127.0.0.1"
_MOST_SESSIONS = 100
_LARGEST_FORM = 1 << 16


class ShopServer(ThreadingHTTPServer):
    """The sessions of one catalogue. Port 0 takes a free one; `server_port` tells which.

    `results` and `page_size` are those of `Session`. `running` is a session that is there from the start,
    whoever else acts in it; `running_address` is its page.

    Example: `with ShopServer(catalog, port=8000) as server: server.serve_forever()`.
    """

    daemon_threads = True

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
        super().__init__((ADDRESS, port), _Handler)
        self.catalog = catalog
        self.lock = Lock()
        self._sizes = {"results": results, "page_size": page_size}
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self.running_address = f"http://{self.hosts[0]}/"
        if running is not None:
            self.running_address += f"session/{self._add(running)}"

    def start_session(self, goal: int) -> str:
        """A new session's name; the oldest gives way when there are too many."""
        return self._add(Session(self.catalog, goal, **self._sizes))

    def _add(self, session: Session) -> str:
        name = secrets.token_urlsafe(12)
        with self.lock:
            self._sessions[name] = session
            if len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return name

    def session(self, name: str) -> Session | None:
        """The session of that name, if it is still there."""
        with self.lock:
            return self._sessions.get(name)

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a request's Host may be."""
        return f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ShopServer
    server_version, sys_version = "hgpo", ""

    def do_GET(self) -> None:
        if not self._trusted():
            return
        if self.path == "/":
            last = len(self.server.catalog.goals) - 1
            form = (
                '<h1>WebShop</h1>\n<form method="post" action="/"><label>Goal <input name="goal" type="number" min="0" '
                f'max="{last}" value="0" required></label> <button>Start</button></form>'
            )
            self._answer(document("WebShop", form))
            return
        session = self.server.session(self.path.removeprefix("/session/"))
        if session is None:
            self._refuse(HTTPStatus.NOT_FOUND, "No such session. Start one at /.")
        else:
            self._answer(page(session, self.path))

    def do_POST(self) -> None:
        if not self._trusted():
            return
        fields = self._form()
        if fields is None:
            return
        if self.path == "/":
            goal = fields.get("goal", "")
            if not (goal.isascii() and goal.isdigit() and int(goal[:12]) < len(self.server.catalog.goals)):
                self._refuse(HTTPStatus.BAD_REQUEST, f"Goals are 0 to {len(self.server.catalog.goals) - 1}.")
                return
            self._redirect(f"/session/{self.server.start_session(int(goal))}")
            return
        session = self.server.session(self.path.removeprefix("/session/"))
        if session is None:
            self._refuse(HTTPStatus.NOT_FOUND, "No such session. Start one at /.")
            return
        with self.server.lock:
            if session.purchase is None:
                session.act(fields.get("action") or f"search[{fields.get('words', '')}]")
        self._redirect(self.path)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal is the user's."""

    def _trusted(self) -> bool:
        origin = self.headers.get("Origin")
        own = [f"http://{host}" for host in self.server.hosts]
        if self.headers.get("Host") in self.server.hosts and (origin is None or origin in own):
            return True
        self._refuse(HTTPStatus.FORBIDDEN, "This address is for this machine's browser only.")
        return False

    def _form(self) -> dict[str, str] | None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > _LARGEST_FORM:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The form is too large.")
            return None
        text = self.rfile.read(int(length)).decode("utf-8", errors="replace")
        return {name: values[0] for name, values in parse_qs(text, keep_blank_values=True).items()}

    def _redirect(self, path: str) -> None:
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self.close_connection = True
        self._answer(document(status.phrase, f"<p>{reason}</p>"), status)

    def _answer(self, text: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)


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
    with ShopServer(catalog, chosen.port) as server:
        sys.stdout.write(f"{server.running_address}  (Ctrl-C ends)\n")
        sys.stdout.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
