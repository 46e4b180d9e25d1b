"""The models of `data/comparison` win, ask and read what their files say, if they play again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hgpo.evaluation.result_files import read_evaluation
from played_comparison import FORMS, play

STORED = Path(__file__).parents[1] / "data" / "comparison"

pytestmark = pytest.mark.slow


def test_all_but_the_clock_is_as_it_was_stored(tmp_path: Path) -> None:
    """The stored files are of a version that recorded neither what was sent to the server nor the manifest."""
    play(tmp_path)
    for agent in FORMS:
        stored, again = (read_evaluation(folder / f"{agent}.json") for folder in (STORED, tmp_path))
        assert stored.latency is not None
        assert stored.seconds is not None
        sent = {name: getattr(stored, name) for name in ("context_full", "tokens_estimated", "parameters", "manifest")}
        assert (again.context_full, again.tokens_estimated) == (0, 0)
        assert replace(again, seconds=stored.seconds, latency=stored.latency, **sent) == stored
