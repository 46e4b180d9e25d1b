"""Which goals are for training and which are held out: ranges of the one official order, so that no goal is in two.

A few goals of the official catalogue are word for word the same (a product lists an option twice). One that is also
held out is left out of training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hgpo.envs.webshop.goals import Goal

SCHEMES: Mapping[str, Mapping[str, tuple[int, int | None]]] = {
    "official": {"train": (1500, None), "validation": (500, 1500), "test": (0, 500)},
    "verl-agent": {"train": (500, None), "validation": (0, 500)},
}


def split_names(scheme: str) -> tuple[str, ...]:
    """The splits of a scheme, the training split first; `ValueError` for an unknown scheme."""
    if scheme not in SCHEMES:
        raise ValueError(f"split_scheme={scheme!r}; choose one of {', '.join(SCHEMES)}")
    return tuple(SCHEMES[scheme])


def split_goals(goals: Sequence[Goal], scheme: str, split: str) -> tuple[int, ...]:
    """Numbers of the goals of one split. `ValueError` if the catalogue has too few goals for any."""
    ranges = {name: _numbers(goals, *SCHEMES[scheme][name]) for name in split_names(scheme)}
    chosen = ranges[split]
    if not chosen:
        first = SCHEMES[scheme][split][0]
        raise ValueError(f"split {split!r} begins at goal {first}, but this catalogue has {len(goals)} goals")
    if split != "train":
        return tuple(chosen)
    held_out = {_content(goals[number]) for name in ranges if name != "train" for number in ranges[name]}
    return tuple(number for number in chosen if _content(goals[number]) not in held_out)


def _numbers(goals: Sequence[Goal], first: int, end: int | None) -> range:
    return range(len(goals))[first:end]


def _content(goal: Goal) -> tuple[str, str]:
    return goal.asin, goal.instruction
