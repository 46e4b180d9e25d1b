"""Advantages of answers in TRL's trainer: the example runs on the real library, the parts on tensors."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from hgpo.integrations.trl import over_answers, runs, turns_of
from hgpo.integrations.turns import Turn

EXAMPLES = Path(__file__).parents[3] / "examples"
TALK = [("assistant", "a"), ("tool", "kitchen"), ("assistant", "b")]
COMPLETION = [{"role": role, "content": content} for role, content in TALK]
PROMPT = [{"role": "user", "content": "hall"}]


def test_each_run_of_model_tokens_has_its_advantage():
    mask = torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 1]])
    assert runs(mask == 1).tolist() == [[0, 0, 0, 1, 1], [-1] * 5, [-1, 0, 0, 0, 1]]
    laid = over_answers([np.array([1.0, 2.0]), np.array([3.0]), np.zeros(0)], mask)
    assert laid.tolist() == [[1, 1, 0, 2, 0], [0] * 5, [0] * 5]
    with pytest.raises(ValueError, match="completion 0 has 2 runs of model tokens, but 1 answer:"):
        over_answers([np.array([1.0])] * 3, mask)


def test_answers_follow_what_tools_said_or_what_a_rollout_function_says():
    assert turns_of({}, PROMPT, COMPLETION) == [Turn("hall", "a"), Turn("kitchen", "b")]
    assert turns_of({"step_rewards": [1, 2]}, PROMPT, COMPLETION)[1] == Turn("kitchen", "b", 2.0)
    assert turns_of({}, "text", "answer") == [Turn("text", "answer")]
    assert turns_of({"observations": ["x", "y"]}, "text", "answer") == [Turn("x"), Turn("y")]
    earlier = [*PROMPT, {"role": "assistant", "content": "example"}, {"role": "user", "content": "and here"}]
    assert turns_of({}, earlier, COMPLETION)[0] == Turn("and here", "a")
    greeted = [{"role": "assistant", "content": "Hello"}, *PROMPT]
    assert turns_of({}, greeted, COMPLETION)[0] == Turn("hall", "a")
    with pytest.raises(ValueError, match="2 observations, but 1 step_rewards"):
        turns_of({"observations": ["x", "y"], "step_rewards": [1]}, "text", "answer")
    with pytest.raises(ValueError, match="2 answers, but 1 step_rewards"):
        turns_of({"step_rewards": [1]}, PROMPT, COMPLETION)


def test_pictures_in_a_prompt_are_compared_by_content():
    image = pytest.importorskip("PIL.Image")

    def observed(colour):
        parts = [{"type": "image", "image": image.new("RGB", (4, 4), colour)}, {"type": "text", "text": "what is it?"}]
        return turns_of({}, [{"role": "user", "content": parts}], COMPLETION)[0].observation

    assert observed("red") == observed("red") != observed("blue")


@pytest.mark.slow
def test_trls_trainer_trains_on_the_advantages_of_answers(monkeypatch):
    trl = pytest.importorskip("trl", reason="TRL is not installed: pip install trl")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import trl_steps

    seen = []
    compute = trl.GRPOTrainer._compute_loss

    def look(self, model, inputs):
        seen.append({name: inputs[name].clone() for name in ("advantages", "tool_mask", "completion_mask")})
        return compute(self, model, inputs)

    monkeypatch.setattr(trl.GRPOTrainer, "_compute_loss", look)
    torch.manual_seed(0)
    trainer = trl_steps.main(updates=2)
    assert sum("reward" in entry for entry in trainer.state.log_history) == 2
    advantage = torch.cat([batch["advantages"].flatten() for batch in seen])
    trained = torch.cat([(batch["tool_mask"] * batch["completion_mask"]).flatten() for batch in seen])
    assert (advantage[trained == 0] == 0).all()
    rows = [row for batch in seen for row in batch["advantages"].tolist()]
    assert any(len({value for value in row if value}) > 1 for row in rows)  # one conversation, several advantages
    assert "trl_steps" in sys.modules
