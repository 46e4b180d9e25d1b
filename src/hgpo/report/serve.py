"""A report that follows a run: a small server for this machine alone, asked by its own page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from hgpo.local_server import LocalHandler, LocalServer
from hgpo.report.document import packed_report
from hgpo.report.rendering import MAX_BYTES, fitting_page, render_page
from hgpo.report.report import Report
from hgpo.storage.discover import NoRolloutsError, find_step_files


def version_of(path: Path) -> str:
    """Changes whenever a rollout file or the metrics of a run do."""
    files = [path / "metrics.jsonl"]
    with suppress(NoRolloutsError):  # of a run there may be metrics alone
        files += [file.path for file in find_step_files(path)]
    stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.exists()]
    return f"{len(stamps)}-{hash(tuple(stamps)) & 0xFFFFFFFFFFFF:x}"


@dataclass(frozen=True, slots=True)
class _Rendered:
    version: str
    page: bytes
    data: bytes


class LiveReport:
    """Reads and renders the report anew when its input changed, once, however many pages ask.

    Example: `LiveReport(path, lambda: build_report(path)).page()`.
    """

    def __init__(self, path: Path, build: Callable[[], Report]) -> None:
        """Follow `path`; `build` reads it."""
        self._path = path
        self._build = build
        self._lock = threading.Lock()
        self._rendered: _Rendered | None = None

    def version(self) -> bytes:
        """The version of what is on disk now."""
        return version_of(self._path).encode()

    def page(self) -> bytes:
        """The page with the newest data."""
        return self._newest().page

    def data(self) -> bytes:
        """The newest data alone."""
        return self._newest().data

    def _newest(self) -> _Rendered:
        with self._lock:
            version = version_of(self._path)
            if self._rendered is None or version != self._rendered.version:
                _, report = fitting_page(self._build(), MAX_BYTES)
                page, data = render_page(report, live=True), packed_report(report)
                self._rendered = _Rendered(version, page.encode(), data.encode())
            return self._rendered


def make_server(live: LiveReport, port: int) -> LocalServer:
    """A server on 127.0.0.1; port 0 takes a free one. The caller runs and closes it.

    Raises:
        ValueError: there is no such port, or it cannot be had.
    """
    answers = {
        "/": ("text/html", live.page),
        "/version": ("text/plain", live.version),
        "/data": ("text/plain", live.data),
    }

    class Handler(LocalHandler):
        def do_GET(self) -> None:
            if not self.trusted():
                return
            if self.path not in answers:
                self.refuse(HTTPStatus.NOT_FOUND, "There is the report at /, and nothing else.")
                return
            kind, answer = answers[self.path]
            try:
                content = answer()
            except (ValueError, OSError) as error:  # a run may be moved or rewritten under us; the page says so
                self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, "\n".join(str(error).splitlines()[:3]))
                return
            self.answer(content, kind, headers={"Referrer-Policy": "no-referrer"})

    return LocalServer(Handler, port)
