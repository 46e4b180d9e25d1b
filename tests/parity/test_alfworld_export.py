"""Both engines play exported games alike, word for word: digests recorded by `alfworld_export.py`."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hgpo.envs.alfworld import Game, load_game
from hgpo.envs.alfworld.game import TASK_TYPES
from parity.alfworld_exported_games import write
from parity.alfworld_player import digests, first_mismatch
from parity.alfworld_traces import TRACE_KINDS

RECORDED = Path(__file__).parent / "data" / "alfworld_exported.jsonl"
RECORD_AGAIN = "the exported games have changed; record them again as alfworld_export.py says"

pytestmark = pytest.mark.slow

Exported = list[tuple[dict[str, Any], str, Game]]
"""What was recorded of a game, the hash of its file, and the game as the native engine reads it."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    files = {file.parent.relative_to(folder).as_posix(): file for file in write(folder)}
    lines = {line["game"]: line for line in map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())}
    assert files.keys() == lines.keys(), RECORD_AGAIN
    return [
        (lines[name], hashlib.sha256(file.read_bytes()).hexdigest(), load_game(file)) for name, file in files.items()
    ]


def test_the_files_are_those_that_the_reference_played(exported: Exported) -> None:
    changed = [line["game"] for line, sha256, _ in exported if line["sha256"] != sha256]
    assert not changed, f"{RECORD_AGAIN}; first: {changed[0]}"


def test_there_are_as_many_of_each_task_type(exported: Exported) -> None:
    assert Counter(game.goal.task_type for _, _, game in exported) == dict.fromkeys(TASK_TYPES, len(exported) // 6)
    assert len(exported) >= 100


@pytest.mark.parametrize("kind", TRACE_KINDS)
def test_both_engines_answer_alike(exported: Exported, kind: str) -> None:
    mismatches = [
        mismatch
        for line, _, game in exported
        for mismatch in first_mismatch(line["game"], kind, game, digests(line[kind]))
    ]
    assert not mismatches, f"{len(mismatches)} of {len(exported)} traces differ; first: {mismatches[0]}"
