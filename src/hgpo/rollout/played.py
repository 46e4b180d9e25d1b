"""A game that was played, in figures: what an evaluation is made of, and what is kept of it on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hgpo.rollout.records import StepRecord


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """One task played with one seed, all trials of it.

    Attributes:
        task, kind, seed: which game.
        trials: whether each was won; the first that was ended them.
        score: the environment's grade at the end, 0-1.
        steps: of all trials; so are the figures below.
        valid: steps whose response had the right form.
        listed: steps at which the environment listed what can be done.
        admissible: those of them whose action was on the list.
        spent: what the answers took; None where nobody counted.
        seconds: wall time, waiting for others included.
        failure: why it could not be played to its end; empty: it was.
    """

    task: str
    kind: str
    seed: int
    trials: tuple[bool, ...]
    score: float
    steps: int
    valid: int
    listed: int
    admissible: int
    spent: SpentInAll | None = None
    seconds: float = 0.0
    failure: str = ""

    @property
    def won(self) -> bool:
        """Whether a trial was won."""
        return any(self.trials)


@dataclass(frozen=True, slots=True)
class SpentInAll:
    """What all answers of a game took, reflections and repeated requests included.

    Attributes:
        prompt_tokens, response_tokens: as counted by whoever answered.
        requests: that were sent.
        latencies: seconds that each answer took; empty where the policy does not say.
        cost: of the tokens.
    """

    prompt_tokens: int
    response_tokens: int
    requests: int
    latencies: tuple[float, ...]
    cost: float


def played_game(
    steps: Sequence[StepRecord],
    *,
    task: str,
    kind: str,
    seed: int,
    trials: Sequence[bool],
    spent: SpentInAll | None = None,
    seconds: float = 0.0,
    failure: str = "",
) -> PlayedGame:
    """A game's figures from its steps, which are in order."""
    listed = [step.admissible for step in steps if step.admissible is not None]
    return PlayedGame(
        task=task,
        kind=kind,
        seed=seed,
        trials=tuple(trials),
        score=steps[-1].score if steps else 0.0,
        steps=len(steps),
        valid=sum(step.valid for step in steps),
        listed=len(listed),
        admissible=sum(listed),
        spent=spent,
        seconds=seconds,
        failure=failure,
    )


def played_episodes(steps: Sequence[StepRecord], seed: int) -> list[PlayedGame]:
    """Each trajectory of `steps` as a game of one trial, in order of first appearance."""
    by_trajectory: dict[str, list[StepRecord]] = {}
    for step in steps:
        by_trajectory.setdefault(step.trajectory, []).append(step)
    games = []
    for trajectory in by_trajectory.values():
        trajectory.sort(key=lambda step: step.step)
        end = trajectory[-1]
        games.append(played_game(trajectory, task=end.task_id, kind=end.task_type, seed=seed, trials=[end.won]))
    return games
