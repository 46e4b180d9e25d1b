"""The head on response tokens alone, on two ranks of FSDP2, beside verl's own computation on all tokens."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from tiny_models import tiny_model

pytest.importorskip("verl", reason="verl is not installed: pip install 'hgpo[verl]'")

from verl_head import CASES, PROMPTS, RESPONSES, VOCABULARY, Case, run_rank
from verl_workers import RANKS, run_on_ranks

pytestmark = pytest.mark.slow


def name(case: Case) -> str:
    return "-".join(flag for flag, value in asdict(case).items() if value is True) or "plain"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    """For each rank and case: what this project computes, and what verl does."""
    folder = tmp_path_factory.mktemp("head")
    for tied in (True, False):
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        config = Qwen2Config(
            **sizes, intermediate_size=64, vocab_size=VOCABULARY, tie_word_embeddings=tied, initializer_range=0.2
        )
        target = folder / ("tied" if tied else "untied")
        Qwen2ForCausalLM(config).save_pretrained(target)
        tiny_model().tokenizer.save_pretrained(target)
    run_on_ranks(run_rank, folder)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("rank", range(RANKS))
def test_log_probs_entropies_and_gradients_are_verls(ranks: list[dict[Any, Any]], rank: int, case: Case) -> None:
    ours, verls = ranks[rank][astuple(case)]
    torch.testing.assert_close(ours["values"], verls["values"], rtol=1e-5, atol=1e-6)
    assert ours["loss"] == pytest.approx(verls["loss"], rel=1e-5)
    gradients = [value for name, value in ours["values"].items() if name.startswith("gradient of")]
    assert sum(value.abs().sum() for value in gradients) > 1
    assert len(ours["values"]["log_probs, forward only: True"]) == sum(RESPONSES[rank])


@pytest.mark.parametrize("case", CASES, ids=name)
@pytest.mark.parametrize("rank", range(RANKS))
def test_only_positions_that_predict_responses_reach_the_head(
    ranks: list[dict[Any, Any]], rank: int, case: Case
) -> None:
    ours, verls = ranks[rank][astuple(case)]
    assert ours["rows"] == 2 * sum(RESPONSES[rank])  # once forward alone, once for gradients
    assert verls["rows"] >= 2 * (sum(PROMPTS[rank]) + sum(RESPONSES[rank]))
