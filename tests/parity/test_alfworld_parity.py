"""The native engine answers exactly as the reference engine did: digests recorded by `alfworld_record.py`.

The first text and commands of every real game are compared in tests/integration/test_alfworld_real_games.py.
"""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hgpo.envs.alfworld import Game, parse_game
from parity.alfworld_player import Player, digests, first_mismatch
from parity.alfworld_traces import TRACE_KINDS, digest

DATA = Path(__file__).parent / "data"
GAMES = Path(__file__).parents[3] / "shared" / "alfworld" / "train_valid_seen.tar.xz"

pytestmark = [
    pytest.mark.slow,  # to read the archive alone takes ten seconds
    pytest.mark.skipif(not GAMES.exists(), reason=f"the real games are not here: {GAMES}"),
]


def test_traces_with_legal_illegal_and_stale_commands() -> None:
    recorded = _recorded("traces")
    mismatches = [
        mismatch
        for name, line in recorded.items()
        for kind in TRACE_KINDS
        for mismatch in first_mismatch(name, kind, _games()[name], digests(line[kind]))
    ]
    assert not mismatches, f"{len(mismatches)} of {3 * len(recorded)} traces differ; first: {mismatches[0]}"


def test_scenarios_that_chance_seldom_reaches() -> None:
    for name, line in _recorded("scenarios").items():
        player = Player(_games()[name])
        shown = [digest(player.first), *(digest(player.answer(command)) for command in line["commands"])]
        expected = digests(line["digests"])
        differing = [index for index, pair in enumerate(zip(shown, expected, strict=True)) if pair[0] != pair[1]]
        assert not differing, f"{name}: differs after {line['commands'][: differing[0]]}"


def _recorded(what: str) -> dict[str, dict[str, Any]]:
    lines = (DATA / f"alfworld_{what}.jsonl").read_text(encoding="utf-8").splitlines()
    recorded = {line["game"]: line for line in map(json.loads, lines)}
    assert recorded
    return recorded


@cache
def _games() -> dict[str, Game]:
    """Every recorded game, by its folder. One pass over the archive, since it can only be read from the start."""
    wanted = {*_recorded("traces"), *_recorded("scenarios")}
    games = {}
    with tarfile.open(GAMES, "r|xz") as archive:
        for member in archive:
            name = "/".join(Path(member.name).parts[-4:-1])
            if Path(member.name).name == "game.tw-pddl" and name in wanted:
                content = archive.extractfile(member)
                assert content is not None
                games[name] = parse_game(content.read(), name)
    return games
