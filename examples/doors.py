"""prime-rl's, SkyRL's and rLLM's doors, on data of the shape that they have; no trainer is needed to run this.

    pip install "hgpo[train]"
    python examples/doors.py

Two attempts at one task: both begin in the hall, one finds the key in the kitchen. What stands in a training is in the
first lines of each adapter.
"""

from types import SimpleNamespace

import torch

from hgpo.integrations import prime_rl, rllm, skyrl
from hgpo.integrations.attempts import StepAdvantages

ESTIMATE = StepAdvantages("hgpo", options={"mode": "mean_norm", "history_length": 1})
ROOMS, REWARDS = ["hall", "kitchen"], [1.0, 0.0]


def in_prime_rl():
    """A trace is a chain of messages; the credit of each sampled token is told to prime-rl's `assign_advantages`."""

    def trace(reward):
        nodes = []
        for room in ROOMS:
            for role, content, sampled in (("user", room, False), ("assistant", "go on", True)):
                parent = len(nodes) - 1 if nodes else None
                said = SimpleNamespace(role=role, content=content)
                nodes.append(SimpleNamespace(message=said, mask=[sampled] * 2, parent=parent))
        return SimpleNamespace(nodes=nodes, reward=reward)

    credit = []
    prime_rl.assign_steps([trace(reward) for reward in REWARDS], ESTIMATE, lambda trace, values: credit.append(values))
    return credit


def in_skyrl():
    """A batch has a row a step; the second prompt holds the first step. 1 is hall, 2 kitchen, 7 go on, 0 padding."""
    first, second = [0, 0, 1, 7], [1, 7, 2, 7]
    data = {
        "sequences": torch.tensor([first, second] * 2),
        "attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]] * 2),
        "response_mask": torch.ones(4, 1, dtype=torch.int64),
        "rewards": torch.tensor([[0.0], [1.0], [0.0], [0.0]]),
    }
    batch = type("Batch", (dict,), {})(data)
    batch.metadata = {"uids": ["task"] * 4, "is_last_step": [False, True] * 2}
    return skyrl.step_advantages(batch, ESTIMATE).flatten().tolist()


def in_rllm():
    """Each step gets one number for each token of its response."""

    def step(room):
        return SimpleNamespace(observation=room, action="go on", reward=0.0, response_ids=[7, 7], advantage=None)

    attempts = [SimpleNamespace(uid="", reward=reward, steps=[step(room) for room in ROOMS]) for reward in REWARDS]
    rllm.put_advantages([SimpleNamespace(group_id="task:agent", trajectories=attempts)], ESTIMATE)
    return [step.advantage for attempt in attempts for step in attempt.steps]


if __name__ == "__main__":
    print("prime-rl", in_prime_rl())
    print("SkyRL   ", in_skyrl())
    print("rLLM    ", in_rllm())
