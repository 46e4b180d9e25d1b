"""HGPO in tinker-cookbook: all tokens of a transition have the transition's own advantage.

    pip install '.[train]' tinker-cookbook
    python examples/tinker_steps.py

Written for tinker-cookbook 0.6.1. It makes training data and needs no service. In a training, one line is enough:

    tinker_cookbook.rl.train.assemble_training_data = assembling(StepAdvantages("hgpo"))
"""

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

from hgpo.integrations.tinker import assembling
from hgpo.integrations.turns import StepAdvantages

HALL, KITCHEN, CELLAR, LEFT, RIGHT = range(5)


def walk(*moves, reward):
    """A trajectory of (room, answer) pairs; every prompt contains all earlier rooms and answers."""
    said, transitions = [], []
    for room, answer in moves:
        said = [*said, room]
        tokens = TokensWithLogprobs([answer], [-0.7])
        transitions.append(Transition(tinker.ModelInput.from_ints(said), tokens, 0.0, False))
        said = [*said, answer]
    transitions[-1].reward = reward
    return Trajectory(transitions, tinker.ModelInput.empty())


def main():
    """The advantages of each walk's tokens, without the first token, which is not a target."""
    walks = [
        walk((HALL, RIGHT), (KITCHEN, RIGHT), reward=1.0),
        walk((HALL, RIGHT), (KITCHEN, LEFT), reward=0.0),
        walk((HALL, LEFT), (CELLAR, LEFT), reward=0.0),
    ]
    group = TrajectoryGroup(walks, final_rewards_G=[0.0] * 3, metrics_G=[{}] * 3)
    data, _ = assembling(StepAdvantages("hgpo", options={"history_length": 1}))([group], compute_advantages([group]))
    return [datum.loss_fn_inputs["advantages"].to_torch().tolist() for datum in data]


if __name__ == "__main__":
    for advantages in main():
        print([round(value, 3) for value in advantages])  # answer, room, answer
