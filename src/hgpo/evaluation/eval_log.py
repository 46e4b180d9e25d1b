"""Games that were played, on disk as soon as each has ended, so that an evaluation goes on where it was.

    NAME.games.jsonl       first line: what is evaluated; then one line a game (`hgpo.rollout.records.PlayedGame`)
    NAME.rollouts.jsonl    every step of every game, which `hgpo inspect` reads

A game's steps are written before its line: steps without one are of a game that was cut off, and are dropped when the
evaluation goes on. A game that failed is played again then; its line stays, since what it took was paid.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hgpo.rollout.games import Played, game_id
from hgpo.rollout.records import PlayedGame, append_rollouts
from hgpo.utils.files import naming, whole_file, write_text

_GAME = TypeAdapter(PlayedGame)


class JournalError(ValueError):
    """The files are damaged, or of another evaluation; the message says what to do."""


class GameJournal:
    """The games of one evaluation.

    Attributes:
        games: Those that were played to their end, or failed, by id; of a game that was played twice the later line.
        cost: Of everything that was ever asked for.
    """

    def __init__(self, lines: Path, rollouts: Path, games: Mapping[str, PlayedGame], cost: float) -> None:
        self.lines, self.rollouts = lines, rollouts
        self.games = dict(games)
        self.cost = cost

    @classmethod
    def open(cls, output: Path, what: Mapping[str, Any]) -> GameJournal:
        """The journal beside `output`, begun or gone on with.

        Args:
            output: the evaluation's file.
            what: everything that decides what is played, in plain values.

        Raises:
            JournalError: the files are of another evaluation, or damaged.
        """
        lines, rollouts = _beside(output, "games"), rollouts_beside(output)
        if not lines.exists():
            write_text(lines, json.dumps({"evaluation": dict(what)}) + "\n", durable=True)
            rollouts.unlink(missing_ok=True)
            return cls(lines, rollouts, {}, 0.0)
        played = _read(lines, what)
        games = {game_id(game.seed, game.task): game for game in played}
        journal = cls(lines, rollouts, games, sum(game.spent.cost for game in played if game.spent))
        journal._drop_other_steps()
        return journal

    def finished(self, game: str) -> bool:
        """Whether the game with this id was played to its end."""
        return game in self.games and not self.games[game].failure

    def add(self, played: Played) -> None:
        """Note a game that has ended; on disk before this returns."""
        game = played.game
        if played.steps and not game.failure:
            append_rollouts(self.rollouts, played.steps)
        with naming(self.lines), self.lines.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(game)) + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        self.games[game_id(game.seed, game.task)] = game
        self.cost += game.spent.cost if game.spent else 0.0

    def _drop_other_steps(self) -> None:
        """Keep the steps of finished games alone."""
        if not self.rollouts.exists():
            return
        with whole_file(self.rollouts, durable=True) as kept, kept.open("w", encoding="utf-8", newline="") as file:
            file.writelines(f"{line}\n" for line in _whole_lines(self.rollouts) if self._is_of_finished(line))

    def _is_of_finished(self, line: str) -> bool:
        try:
            return self.finished(json.loads(line)["group"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise JournalError(f"{self.rollouts} is damaged ({error}); delete it and {self.lines}") from error


def rollouts_beside(output: Path) -> Path:
    """Where the steps of the evaluation with this file are."""
    return _beside(output, "rollouts")


def _beside(output: Path, kind: str) -> Path:
    return output.with_name(f"{output.stem}.{kind}.jsonl")


def _read(path: Path, what: Mapping[str, Any]) -> list[PlayedGame]:
    """The games of a journal; a last line that was cut off is taken out of the file."""
    lines = list(_whole_lines(path))
    try:
        documents = [json.loads(line) for line in lines]
        begun = dict(documents[0]["evaluation"])
        games = [_GAME.validate_json(json.dumps(document)) for document in documents[1:]]  # of JSON a list is a tuple
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, ValidationError) as error:
        raise JournalError(
            f"{path} is damaged ({' '.join(str(error).split())[:200]}); delete it to begin anew"
        ) from error
    wanted = json.loads(json.dumps(dict(what)))
    if begun != wanted:
        names = sorted(key for key in {*begun, *wanted} if begun.get(key) != wanted.get(key))
        raise JournalError(
            f"{path} is of an evaluation with other settings ({', '.join(names)}): choose another output, or delete it "
            "to begin anew"
        )
    write_text(path, "".join(f"{line}\n" for line in lines), durable=True)
    return games


def _whole_lines(path: Path) -> Iterator[str]:
    """Lines that end as lines do: what is killed while it writes leaves half of one."""
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            if line.endswith("\n") and line != "\n":
                yield line[:-1]
