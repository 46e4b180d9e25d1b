"""A report that follows a run: a small server for this machine alone, asked by its own page.

It listens on 127.0.0.1 and answers only requests addressed to it by that name, so that no page of another site can read
the rollouts through a visitor's browser (DNS rebinding). It only ever answers with the report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from hgpo.report.document import packed_report
from hgpo.report.rendering import MAX_BYTES, fitting_page, render_page
from hgpo.report.report import Report
from hgpo.storage.discover import NoRolloutsError, find_step_files

HOST = "127.0.0.1"


def version_of(path: Path) -> str:
    """Changes whenever a rollout file or the metrics of a run do."""
    files = [path / "metrics.jsonl"]
    with suppress(NoRolloutsError):  # of a run there may be metrics alone
        files += [file.path for file in find_step_files(path)]
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return f"{len(stamps)}-{hash(tuple(stamps)) & 0xFFFFFFFFFFFF:x}"


class LiveReport:
    """Builds the report anew when its input changed, once, however many pages ask.

    Example: `LiveReport(path, lambda: build_report(path)).page()`.
    """

    def __init__(self, path: Path, build: Callable[[], Report]) -> None:
        """Follow `path`; `build` reads it."""
        self._path = path
        self._build = build
        self._lock = threading.Lock()
        self._version = ""
        self._report: Report | None = None
        self._data: str | None = None

    def version(self) -> str:
        """The version of what is on disk now."""
        return version_of(self._path)

    def page(self) -> str:
        """The page with the newest data."""
        return render_page(self._newest(), live=True)

    def data(self) -> str:
        """The newest data alone."""
        with self._lock:
            report = self._refresh()
            if self._data is None:
                self._data = packed_report(report)
            return self._data

    def _newest(self) -> Report:
        with self._lock:
            return self._refresh()

    def _refresh(self) -> Report:
        version = self.version()
        if self._report is None or version != self._version:
            _, self._report = fitting_page(self._build(), MAX_BYTES)
            self._version, self._data = version, None
        return self._report


def make_server(live: LiveReport, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1; port 0 takes a free one. The caller runs and closes it.

    Raises:
        ValueError: there is no such port, or it cannot be had.
    """

    allowed: tuple[str, ...] = ()

    class Handler(BaseHTTPRequestHandler):
        server_version = "hgpo"
        sys_version = ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in allowed:
                self.send_error(403, "this report is for this machine alone")
                return
            answers = {
                "/": ("text/html", live.page),
                "/version": ("text/plain", live.version),
                "/data": ("text/plain", live.data),
            }
            if self.path not in answers:
                self.send_error(404)
                return
            kind, answer = answers[self.path]
            try:
                body = answer().encode("utf-8")
            except (ValueError, OSError) as error:  # a run may be moved or rewritten under us; the page says so
                self.send_error(503, explain="\n".join(str(error).splitlines()[:3]))
                return
            self.send_response(200)
            for name, value in (
                *(("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))),
                *(("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY")),
                *(("Cross-Origin-Resource-Policy", "same-origin"), ("Referrer-Policy", "no-referrer")),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Requests are not logged: the terminal shows the run."""

    if not 0 <= port < 1 << 16:
        raise ValueError(f"--port {port}: ports are 1 to 65535, or 0 for any free one")
    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ValueError(f"--port {port}: {error.strerror}; choose another, or --port 0 for any free one") from error
    allowed = tuple(f"{name}:{server.server_port}" for name in (HOST, "localhost"))
    return server
