"""Step groups where no state is met twice: a point in the plane, with numbers as observations.

The point is pushed in one of eight directions with noise. It has to pass a wall and reach the goal before its time is
up. All rollouts of a task start in one place. No other observation occurs twice, so groups of equal states compare
first steps only; HGPO compares steps whose positions, given as `embedding`, are near. Runs in seconds:

    python examples/point_mass.py
    python examples/point_mass.py --threshold 1     # equal positions only
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

import hgpo

GOAL, REACHED, MAX_STEPS, PUSH, NOISE = np.array([0.8, 0.9]), 0.15, 25, 0.12, 0.03
NEAR = 0.1
"""Positions up to this distance apart are compared."""
TASKS, ROLLOUTS, GAMMA, CLIP, LEARNING_RATE = 8, 8, 0.95, 0.2, 0.01
ANGLES = np.arange(8) * np.pi / 4
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


def pushed(place: np.ndarray, action: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Where points come to, [R, 2]: the wall (x below 0.6, y above 0.3) and the frame of the square hold them."""
    wanted = np.clip(place + PUSH * DIRECTIONS[action] + NOISE * rng.standard_normal(place.shape), 0.0, 1.0)
    blocked = (wanted[:, 0] < 0.6) & (wanted[:, 1] > 0.3)
    return np.where(blocked[:, None], place + 0.1 * NOISE * rng.standard_normal(place.shape), wanted)


def collect(policy: torch.nn.Module, rng: np.random.Generator) -> tuple[hgpo.StepBatch, np.ndarray, np.ndarray]:
    """The batch of an update, its positions [N, 2] and its actions [N]."""
    place = np.repeat(rng.uniform(0, 0.25, (TASKS, 2)), ROLLOUTS, axis=0)
    playing, parts = np.arange(len(place)), []
    for step in range(MAX_STEPS):
        with torch.no_grad():
            logits = policy(torch.tensor(place[playing], dtype=torch.float32)).numpy()
        action = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)  # a sample of the softmax
        after = pushed(place[playing], action, rng)
        won = np.linalg.norm(after - GOAL, axis=1) < REACHED
        parts.append((playing, np.full(len(playing), step), place[playing], action, won))
        place[playing] = after
        playing = playing[~won]
        if not len(playing):
            break
    rollout, step, place_ND, action_N, won_N = map(np.concatenate, zip(*parts, strict=True))
    batch = hgpo.StepBatch.from_columns(
        group=rollout // ROLLOUTS,
        trajectory=rollout,
        step=step,
        observation=[tuple(place) for place in place_ND.tolist()],
        reward=won_N.astype(float),
        embedding=place_ND / NEAR,  # similarity 1 - d^2 / 2: 0.5, the threshold below, at distance NEAR
    )
    return batch, place_ND, action_N


def main(updates: int = 80, threshold: float = 0.5, seed: int = 0) -> list[float]:
    """Train; the success of the rollouts of each update."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    policy = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, len(ANGLES)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    success = []
    for update in range(updates):
        batch, place_ND, action_N = collect(policy, rng)
        advantages = hgpo.compute_advantages(
            batch,
            "hgpo",
            gamma=GAMMA,
            mode="mean_norm",
            history_length=1,
            match_threshold=threshold,
            match_by="embedding",
            match_kernel="epanechnikov",
            match_own_trajectory=False,  # the next position of a rollout is near, too
        )
        place, chosen = torch.tensor(place_ND, dtype=torch.float32), torch.tensor(action_N)[:, None]
        advantage = torch.tensor(advantages.values, dtype=torch.float32)
        advantage /= advantage.std() + 1e-6
        with torch.no_grad():
            before = policy(place).log_softmax(-1).gather(1, chosen)[:, 0]
        for _ in range(2):
            ratio = (policy(place).log_softmax(-1).gather(1, chosen)[:, 0] - before).exp()
            loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        success.append(float(batch.reward.sum()) / (TASKS * ROLLOUTS))
        if update % 10 == 0 or update == updates - 1:
            compared = advantages.levels[0].used.mean()
            print(
                f"update {update}: success {success[-1]:.2f}, {compared:.0%} of the steps have others to compare with"
            )
    return success


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threshold", type=float, default=0.5, help="least similarity (default: 0.5)")
    main(threshold=parser.parse_args().threshold)
