"""HGPO in one file: environment, memory, nested groups, advantages, clipped policy update.

The library is imported for one check only, at the end of each update: its vectorised
`compute_advantages` must equal the loops below. Runs in seconds: `python examples/hgpo_loop.py`.

The task: a key is in one of four boxes. An agent that remembers the last K = 2 steps can
learn not to open the same box twice. All rollouts of a group search for a key in the same box.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import torch

import hgpo

BOXES, MAX_STEPS = 4, 8
ACTIONS = [f"open {box}" for box in range(BOXES)] + ["take"]
TASKS, ROLLOUTS, K, GAMMA = 8, 8, 2, 0.95  # tasks per update, rollouts per task (N), remembered steps, discount
CLIP, LEARNING_RATE, UPDATES = 0.2, 0.05, 60


@dataclass
class Step:
    """One step: the observation, the policy's input (context), the action, and what follows from it."""

    group: int
    trajectory: int
    step: int
    observation: str
    context: tuple
    action: int
    log_prob: float
    reward: float = 0.0
    advantage: float = 0.0


class TablePolicy:
    """A softmax over actions for each context, the smallest policy that acts on its memory."""

    def __init__(self) -> None:
        self.rows: dict[tuple, int] = {}
        self.logits = torch.zeros(20_000, len(ACTIONS), requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], lr=LEARNING_RATE)

    def log_probs(self, contexts: list[tuple]) -> torch.Tensor:
        """Log-probabilities of all actions in each context."""
        rows = [self.rows.setdefault(context, len(self.rows)) for context in contexts]
        return self.logits[rows].log_softmax(-1)


def play(group: int, trajectory: int, key: int, policy: TablePolicy, rng: np.random.Generator) -> list[Step]:
    """One rollout. The policy sees the observation and the last K (observation, action) pairs."""
    steps: list[Step] = []
    observation = "four closed boxes"
    while len(steps) < MAX_STEPS:
        memory = tuple((past.observation, past.action) for past in steps[-K:])
        context = (memory, observation)
        log_prob = policy.log_probs([context])[0].detach().numpy()
        action = int(rng.choice(len(ACTIONS), p=np.exp(log_prob) / np.exp(log_prob).sum()))
        steps.append(Step(group, trajectory, len(steps), observation, context, action, float(log_prob[action])))
        if ACTIONS[action] == "take" and observation.endswith("holds the key"):
            steps[-1].reward = 10.0
            break
        if ACTIONS[action] != "take":
            observation = f"box {action} holds the key" if action == key else f"box {action} is empty"
    return steps


def returns(trajectory: list[Step]) -> list[float]:
    """R_t = r_t + gamma * R_{t+1}."""
    total, backwards = 0.0, []
    for step in reversed(trajectory):
        total = step.reward + GAMMA * total
        backwards.append(total)
    return backwards[::-1]


def hgpo_advantages(trajectories: list[list[Step]]) -> None:
    """A = sum_k w_k A_k with w_k = (k+1) / sum_l (l+1): groups with a longer shared history have more weight."""
    groups: dict[tuple, list[float]] = defaultdict(list)
    keys: dict[tuple[int, int], list[tuple]] = {}
    step_returns = {trajectory[0].trajectory: returns(trajectory) for trajectory in trajectories}
    for trajectory in trajectories:
        for step in trajectory:
            seen = [past.observation for past in trajectory[: step.step + 1]]
            # Level k: same task and same last k + 1 observations (all observations, if there are fewer).
            keys[step.trajectory, step.step] = [(step.group, k, *seen[-(k + 1) :]) for k in range(K + 1)]
            for key in keys[step.trajectory, step.step]:
                groups[key].append(step_returns[step.trajectory][step.step])
    weights = [(k + 1) / sum(range(1, K + 2)) for k in range(K + 1)]
    for trajectory in trajectories:
        for step in trajectory:
            for weight, key in zip(weights, keys[step.trajectory, step.step], strict=True):
                members = groups[key]
                if max(members) - min(members) > 1e-9:  # else A_k is 0: returns are equal, or the step is alone
                    own = step_returns[step.trajectory][step.step]
                    step.advantage += weight * (own - np.mean(members)) / (np.std(members) + 1e-6)


def update(policy: TablePolicy, steps: list[Step]) -> None:
    """PPO's clipped objective, two passes over the batch."""
    old = torch.tensor([step.log_prob for step in steps])
    advantage = torch.tensor([step.advantage for step in steps], dtype=torch.float32)
    actions = torch.tensor([step.action for step in steps])
    for _ in range(2):
        new = policy.log_probs([step.context for step in steps]).gather(1, actions[:, None])[:, 0]
        ratio = (new - old).exp()
        objective = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        policy.optimizer.zero_grad()
        (-objective.mean()).backward()
        policy.optimizer.step()


def check_against_the_library(steps: list[Step]) -> None:
    """Assert that the library, which has no such loops, computes the same advantages."""
    columns = {name: [getattr(step, name) for step in steps] for name in ("group", "trajectory", "step", "reward")}
    batch = hgpo.StepBatch.from_columns(observation=[step.observation for step in steps], **columns)
    values = hgpo.compute_advantages(batch, estimator="hgpo", gamma=GAMMA, history_length=K).values
    np.testing.assert_allclose(values, [step.advantage for step in steps], atol=1e-9)


def main(updates: int = UPDATES, seed: int = 0) -> list[float]:
    """Train from scratch; return the success rate of each update's rollouts."""
    rng = np.random.default_rng(seed)
    policy, success = TablePolicy(), []
    for number in range(1, updates + 1):
        keys = rng.integers(BOXES, size=TASKS)
        trajectories = [
            play(group, group * ROLLOUTS + member, int(key), policy, rng)
            for group, key in enumerate(keys)
            for member in range(ROLLOUTS)
        ]
        hgpo_advantages(trajectories)
        steps = [step for trajectory in trajectories for step in trajectory]
        check_against_the_library(steps)
        update(policy, steps)
        success.append(float(np.mean([trajectory[-1].reward > 0 for trajectory in trajectories])))
        if number == 1 or number % 10 == 0:
            length = np.mean([len(trajectory) for trajectory in trajectories])
            print(f"update {number:3d}  success {success[-1]:.2f}  steps {length:.1f}  contexts {len(policy.rows)}")
    return success


if __name__ == "__main__":
    main()
