"""trackio: a SQLite database beside the runs; a Space or server only where trackio's own variables name one."""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from hgpo.runs.tracking.base import Shown
from hgpo.runs.tracking.known import PROJECT, place


class Trackio:
    """A run of trackio. trackio prints what it does; that is kept from the screen."""

    def __init__(self, shown: Shown) -> None:
        folder = os.environ["TRACKIO_DIR"] = place("TRACKIO_DIR", shown.folder)  # read while it is imported
        with redirect_stdout(io.StringIO()):
            import trackio

            self._run: Any = trackio.init(
                project=PROJECT,
                name=shown.name,
                resume="never" if shown.id is None else "allow",
                config=dict(shown.settings),
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
        self.id = str(self._run.name)
        self.look = f"TRACKIO_DIR={shlex.quote(folder)} trackio show --project {PROJECT}"

    def log(self, update: int, figures: Mapping[str, float]) -> None:
        """One row of the run."""
        self._run.log(dict(figures), step=update)

    def close(self, *, failed: bool) -> None:
        """Wait until everything is written; trackio knows no failure."""
        with redirect_stdout(io.StringIO()):
            self._run.finish()
