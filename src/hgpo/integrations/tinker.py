"""tinker-cookbook: one advantage for each transition. Written for and run on tinker-cookbook 0.6.1.

The trainer calls `assemble_training_data(trajectory_groups, advantages)`, with one advantage for each trajectory. The
function made here replaces it and ignores those advantages:

    from tinker_cookbook.rl import train
    from hgpo.integrations.tinker import assembling

    train.assemble_training_data = assembling(StepAdvantages("hgpo"))

The observation of a transition is the tokens that its prompt adds to those before it; `observe` can replace that.

Shapes: P groups, G trajectories of a group, T tokens of a datum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.integrations.turns import StepAdvantages, Turn, new_part, with_final_reward
from hgpo.keys import comparison_key

Observe = Callable[[Any, int], Hashable]
"""A trajectory and the index of a transition in it -> the observation that estimators compare."""


def new_tokens(trajectory: Any, place: int) -> Hashable:
    """The tokens of a transition's prompt that the agent has neither read nor written before."""
    prompt = _tokens(trajectory.transitions[place].ob)
    if not place:
        return tuple(prompt)
    before = trajectory.transitions[place - 1]
    return new_part(_tokens(before.ob), before.ac.tokens, prompt)


def assembling(estimate: StepAdvantages, observe: Observe = new_tokens) -> Callable[..., Any]:
    """A function for `tinker_cookbook.rl.train.assemble_training_data`.

    Args:
        estimate: The estimator.
        observe: Returns the observation of a transition.

    Returns:
        A function of (trajectory_groups_P, advantages_P, include_provenance) -> (data, metadata), as the cookbook's;
        it ignores `advantages_P`.
    """
    from tinker_cookbook.rl.data_processing import trajectory_to_data

    def assemble(
        trajectory_groups_P: Sequence[Any], advantages_P: Sequence[Any], include_provenance: bool = True
    ) -> tuple[list[Any], list[dict[str, int]]]:
        data: list[Any] = []
        metadata: list[dict[str, int]] = []
        for group_idx, advantages_G in enumerate(step_advantages(trajectory_groups_P, estimate, observe)):
            trajectories = trajectory_groups_P[group_idx].trajectories_G
            for traj_idx, (trajectory, advantages) in enumerate(zip(trajectories, advantages_G, strict=True)):
                made = trajectory_to_data(trajectory, 0.0, include_provenance=include_provenance)
                marks = trajectory_to_data(_marked(trajectory), 0.0, include_provenance=False)
                for datum, mark in zip(made, marks, strict=True):
                    _put(datum, mark, advantages)
                data += made
                metadata += [{"group_idx": group_idx, "traj_idx": traj_idx}] * len(made)
        return data, metadata

    return assemble


def step_advantages(
    trajectory_groups_P: Sequence[Any], estimate: StepAdvantages, observe: Observe = new_tokens
) -> list[list[NDArray[np.floating[Any]]]]:
    """For each group and trajectory an array with one advantage for each transition."""
    attempts = [
        _turns(trajectory, final, observe)
        for group in trajectory_groups_P
        for trajectory, final in zip(group.trajectories_G, group.final_rewards_G, strict=True)
    ]
    sizes = [len(group.trajectories_G) for group in trajectory_groups_P]
    advantages = iter(estimate(attempts, [place for place, size in enumerate(sizes) for _ in range(size)]))
    return [[next(advantages) for _ in range(size)] for size in sizes]


def _turns(trajectory: Any, final_reward: float, observe: Observe) -> list[Turn]:
    turns = [
        Turn(observe(trajectory, place), tuple(transition.ac.tokens), transition.reward)
        for place, transition in enumerate(trajectory.transitions)
    ]
    return with_final_reward(turns, final_reward)


def _marked(trajectory: Any) -> Any:
    """A copy in which the log-probs of transition t are t + 1, to find the transition of each token of a datum."""
    transitions = [
        dataclasses.replace(
            transition,
            ac=dataclasses.replace(transition.ac, maybe_logprobs=[place + 1.0] * len(transition.ac.tokens)),
        )
        for place, transition in enumerate(trajectory.transitions)
    ]
    return dataclasses.replace(trajectory, transitions=transitions)


def _put(datum: Any, mark: Any, advantages: NDArray[np.floating[Any]]) -> None:
    """Give each action token the advantage of its transition; masked tokens and observations keep 0."""
    inputs = datum.loss_fn_inputs
    turn_T = mark.loss_fn_inputs["logprobs"].to_torch().round().to(torch.int64)
    by_turn = torch.cat([torch.zeros(1), torch.from_numpy(advantages).to(torch.float32)])
    advantage_T = by_turn[turn_T] * inputs["mask"].to_torch()
    inputs["advantages"] = type(inputs["advantages"]).from_torch(advantage_T)


def _tokens(prompt: Any) -> list[Hashable]:
    """A prompt's tokens; a chunk without tokens, such as an image, counts as one."""
    flat: list[Hashable] = []
    for chunk in prompt.chunks:
        flat += chunk.tokens if hasattr(chunk, "tokens") else [comparison_key(chunk)]
    return flat
