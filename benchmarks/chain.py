"""Problems with known gradients: a chain of four states, whose last observation does not depend on the history.

    start -> u in {A, B} -> h in {L, R} -> s -> reward 0 or 1

u is uniform, h has P(L | A) = .7 and P(L | B) = .3. At s, which is always the same observation, the agent takes action
0 or 1. The context is c = (u, h), one of AL, AR, BL, BR. Level 0 groups all steps at s, level 1 the steps at s with
equal h, level 2 those with equal c. The policy has one logit for each context.

Shapes: B batches, M tasks, N trajectories, 4 contexts, 2 actions. A trajectory is its context, action and reward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from hgpo import StepBatch

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CONTEXT_SHARE = np.array([0.35, 0.15, 0.15, 0.35])
STEPS = 4
START, FIRST_U, FIRST_H, LAST = 0, 1, 3, 5
WAIT = 4


@dataclass(frozen=True, slots=True)
class Problem:
    """The policy and the probability of a reward in each context.

    Attributes:
        name: of the problem.
        policy: P(action 1 | context), 4 numbers. base, gain: P(reward 1) = base[c] + gain[c] * action.

    Example: in context BR of "A strong", P(reward 1) is .8 for action 0, and action 1 adds .2.
    """

    name: str
    policy: tuple[float, ...]
    base: tuple[float, ...]
    gain: tuple[float, ...]

    @property
    def reward_share(self) -> Floats:
        """P(reward 1 | context, action), float64[4, 2]."""
        base = np.array(self.base)
        return np.stack([base, base + np.array(self.gain)], axis=1)

    @property
    def action_share(self) -> Floats:
        """P(action | context), float64[4, 2]."""
        policy = np.array(self.policy)
        return np.stack([1.0 - policy, policy], axis=1)

    @property
    def gradient(self) -> Floats:
        """Gradient of the expected reward by the logits of action 1, float64[4]."""
        policy = np.array(self.policy)
        return CONTEXT_SHARE * policy * (1.0 - policy) * np.array(self.gain)


_EVEN, _STRONG = (0.5,) * 4, (0.0, 0.3, 0.5, 0.8)
PROBLEMS = (
    # The history changes the policy only.
    Problem("P", (0.9, 0.5, 0.5, 0.1), (0.1,) * 4, (0.8,) * 4),
    # The history changes the policy a little.
    Problem("P mild", (0.7, 0.5, 0.5, 0.3), (0.1,) * 4, (0.8,) * 4),
    # The history changes nothing.
    Problem("none", _EVEN, (0.1,) * 4, (0.8,) * 4),
    # The probability of the reward depends on the history, which the observation does not show.
    Problem("A strong", _EVEN, _STRONG, (0.2,) * 4),
    # The history decides most of the reward.
    Problem("A extreme", _EVEN, (0.0, 0.0, 0.9, 0.9), (0.1,) * 4),
    # As "A strong", with a policy that prefers action 1.
    Problem("A skewed", (0.8,) * 4, _STRONG, (0.2,) * 4),
)
STRESS = (
    # The better action depends on u.
    Problem("I opposed", _EVEN, (0.3, 0.3, 0.7, 0.7), (0.4, 0.4, -0.4, -0.4)),
    # The action matters in two contexts only.
    Problem("I partial", _EVEN, (0.0, 0.3, 0.5, 0.4), (0.5, 0.0, 0.0, 0.5)),
    # The better action depends on u, and the policy prefers it in two contexts.
    Problem("I policy", (0.8, 0.5, 0.5, 0.2), (0.0, 0.3, 0.7, 0.9), (0.5, 0.4, -0.4, -0.5)),
)
"""Problems in which history and action interact, as in none of `PROBLEMS`; they reveal the assumptions of a method."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Contexts, actions and rewards of B batches of M tasks with N trajectories each.

    Attributes:
        context, action, reward: int64[B, M, N].
        weight: float64[B], the probability of each batch; equal for samples.

    Example: `Outcomes([[[0, 3]]], [[[1, 1]]], [[[1, 0]]], [1.0])`: one task, AL took action 1 and won, BR lost with it.
    """

    context: Ints
    action: Ints
    reward: Ints
    weight: Floats

    def __len__(self) -> int:
        return len(self.weight)


def sample(problem: Problem, batches: int, tasks: int, trajectories: int, number: np.random.Generator) -> Outcomes:
    """Draw batches of whole tasks."""
    shape = (batches, tasks, trajectories)
    context = number.choice(4, size=shape, p=CONTEXT_SHARE)
    action = (number.random(shape) < np.array(problem.policy)[context]).astype(np.int64)
    reward = (number.random(shape) < problem.reward_share[context, action]).astype(np.int64)
    return Outcomes(context, action, reward, np.full(batches, 1.0 / batches))


def enumerate_task(problem: Problem, trajectories: int) -> Outcomes:
    """Every outcome of one task, each multiset of trajectories once with its probability.

    A trajectory has 16 outcomes, so N = 4 has 3,876 multisets. Estimators do not see the order of trajectories, so
    nothing is lost.
    """
    share = CONTEXT_SHARE[:, None, None] * problem.action_share[:, :, None]
    win = problem.reward_share[:, :, None]
    share = (share * np.concatenate([1.0 - win, win], axis=2)).reshape(-1)
    multisets = np.array(list(combinations_with_replacement(range(16), trajectories)))
    times = (multisets[:, None, :] == np.arange(16)[None, :, None]).sum(axis=2)
    factorial = np.array([math.factorial(n) for n in range(trajectories + 1)], dtype=np.float64)
    weight = factorial[trajectories] / factorial[times].prod(axis=1) * share[multisets].prod(axis=1)
    possible = weight > 0
    codes = multisets[possible][:, None, :]
    return Outcomes(codes // 4, codes // 2 % 2, codes % 2, weight[possible])


def step_batch(outcomes: Outcomes) -> StepBatch:
    """All steps of all batches in one StepBatch, tasks of different batches being different groups.

    Rows are trajectories in order, four steps each, so `values.reshape(B, M, N, 4)[..., 3]` are the steps at s.
    """
    context, action, reward = (a.reshape(-1) for a in (outcomes.context, outcomes.action, outcomes.reward))
    count = len(context)
    u, h = context // 2, context % 2
    same = np.zeros(count, dtype=np.int64)
    per_task = STEPS * outcomes.context.shape[-1]
    return StepBatch.from_columns(
        group=np.repeat(np.arange(count * STEPS // per_task), per_task),
        trajectory=np.repeat(np.arange(count), STEPS),
        step=np.tile(np.arange(STEPS), count),
        observation=np.stack([same + START, FIRST_U + u, FIRST_H + h, same + LAST], axis=1).reshape(-1),
        action=np.stack([2 + u, same + WAIT, same + WAIT, action], axis=1).reshape(-1),
        reward=np.stack([same, same, same, reward], axis=1).reshape(-1),
        success=np.repeat(reward == 1, STEPS),
        value=np.zeros(count * STEPS),
    )


def parts(outcomes: Outcomes, size: int) -> Iterator[Outcomes]:
    """Cut into runs of `size` batches."""
    for start in range(0, len(outcomes), size):
        at = slice(start, start + size)
        yield Outcomes(outcomes.context[at], outcomes.action[at], outcomes.reward[at], outcomes.weight[at])
