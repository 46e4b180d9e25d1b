"""The page about one's own loop, and the examples for other trainers on objects with the same fields."""

import doctest
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hgpo.integrations import trl
from hgpo.integrations import turns as attempts
from hgpo.integrations.turns import StepAdvantages, Turn

ROOT = Path(__file__).parents[3]
ESTIMATE = StepAdvantages("hgpo", options={"mode": "mean_norm", "history_length": 1})
SAID = ("assistant", "go")


@pytest.fixture
def _examples(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))


def test_the_page_and_the_docstrings_are_true():
    page = doctest.testfile(str(ROOT / "docs/own-data.md"), module_relative=False)
    for result in (page, doctest.testmod(attempts), doctest.testmod(trl, extraglobs={"np": __import__("numpy")})):
        assert result.attempted > 0
        assert result.failed == 0


@pytest.mark.slow
@pytest.mark.usefixtures("_examples")
def test_the_point_learns_from_near_positions_and_not_from_equal_ones():
    import point_mass

    assert np.mean(point_mass.main(updates=30)[-5:]) > 0.7
    assert np.mean(point_mass.main(updates=30, threshold=1.0)[-5:]) < 0.4


class Batch(dict):
    """Tensors by name, and `metadata`, as in SkyRL's TrainingInputBatch."""

    def __init__(self, metadata, **tensors):
        super().__init__(tensors)
        self.metadata = metadata


@pytest.mark.usefixtures("_examples")
def test_prime_rls_sampled_tokens_have_the_advantage_of_their_message():
    import prime_rl_steps

    def trace(reward):
        nodes = []
        for role, content in [("system", "s"), ("user", "hall"), SAID, ("tool", "kitchen"), SAID]:
            message, parent = SimpleNamespace(role=role, content=content), len(nodes) - 1 if nodes else None
            nodes.append(SimpleNamespace(message=message, mask=[role == "assistant"] * 2, parent=parent))
        return SimpleNamespace(nodes=nodes, reward=reward)

    assert prime_rl_steps.turns_of(trace(1.0)) == [Turn("hall", "go"), Turn("kitchen", "go", 1.0)]
    rows = prime_rl_steps.token_advantages([trace(1.0), trace(0.0)], ESTIMATE)
    assert [value for row in rows for value in row] == pytest.approx(
        [0.475, 0.475, 0.5, 0.5, -0.475, -0.475, -0.5, -0.5]
    )
    call = SimpleNamespace(id="call_7f3a", name="go", arguments='{"to": "hall"}')
    assert prime_rl_steps.text(SimpleNamespace(content=None, tool_calls=[call])) == '\ngo({"to": "hall"})'


@pytest.mark.usefixtures("_examples")
def test_skyrls_rows_have_the_advantage_of_their_step():
    import skyrl_steps

    first, second = (
        [0, 0, 1, 7],
        [1, 7, 2, 7],
    )  # 1 hall, 2 kitchen, 7 response, 0 padding
    batch = Batch(
        {"uids": ["task"] * 4 + ["padding"], "is_last_step": [False, True] * 2 + [True], "pad_size": 1},
        sequences=torch.tensor([first, second, first, second, first]),
        attention_mask=torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]] * 2 + [[0, 0, 1, 1]]),
        response_mask=torch.ones(5, 1, dtype=torch.int64),
        rewards=torch.tensor([[0.0], [1.0], [0.0], [0.0], [0.0]]),
    )
    advantages = skyrl_steps.step_advantages(batch, ESTIMATE)
    assert advantages.flatten().tolist() == pytest.approx([0.475, 0.5, -0.475, -0.5, 0.0])
    batch.metadata["is_last_step"][3] = False
    with pytest.raises(ValueError, match="a trajectory is incomplete"):
        skyrl_steps.step_advantages(batch, ESTIMATE)


@pytest.mark.usefixtures("_examples")
@pytest.mark.parametrize(("step_wise", "merged"), [(False, False), (True, True)])
def test_skyrls_rows_have_to_be_single_steps(step_wise, merged, monkeypatch):
    import skyrl_steps

    for name in ("skyrl", "skyrl.train", "skyrl.train.trainer"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(RayPPOTrainer=object))
    trainer = skyrl_steps.step_trainer(ESTIMATE)()
    generator = SimpleNamespace(step_wise_trajectories=step_wise, merge_stepwise_output=merged)
    trainer.cfg = SimpleNamespace(generator=generator)
    with pytest.raises(ValueError, match="each row has to be one step"):
        trainer.compute_advantages_and_returns(None)


@pytest.mark.usefixtures("_examples")
def test_rllms_response_tokens_have_the_advantage_of_their_step():
    import rllm_steps

    def step(observation, messages=()):
        return SimpleNamespace(
            observation=observation,
            action=None,
            model_response="go",
            reward=0.0,
            response_ids=[7, 7],
            chat_completions=[{"role": role, "content": content} for role, content in messages],
        )

    talk = [("user", "hall"), SAID, ("tool", "kitchen"), SAID]
    won, lost = [step("hall"), step("kitchen")], [step(None, talk[:2]), step(None, talk)]
    attempts = [SimpleNamespace(reward=1.0, steps=won), SimpleNamespace(reward=0.0, steps=lost)]
    rllm_steps.write_advantages([SimpleNamespace(group_id="task", trajectories=attempts)], ESTIMATE)
    assert [one.advantage[0] for one in won + lost] == pytest.approx([0.475, 0.5, -0.475, -0.5])
    assert all(len(one.advantage) == 2 for one in won + lost)
    with pytest.raises(ValueError, match="neither `observation` nor an answer"):
        rllm_steps.observation(step(None))


@pytest.mark.usefixtures("_examples")
def test_the_example_of_tinker_tells_good_answers_from_bad_ones():
    pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed: pip install tinker-cookbook")
    import tinker_steps

    won, lost, cellar = tinker_steps.main()
    assert won[0] > 0 > cellar[0]
    assert won[2] > 0 > lost[2]
    assert won[1] == lost[1] == cellar[1] == 0.0  # rooms are the environment's tokens
