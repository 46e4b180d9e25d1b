"""Carries out policy updates and prints what memory they took and what the estimate was, in GiB.

    python updates_memory.py '{"llama": {…}, "settings": {…}, "prompt": 448, "response": 64}'

A process of its own: the most that one has had resident never goes down.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models import llama, qwen2  # noqa: F401  # their modules are loaded before memory is looked at

from hgpo.config import Config
from hgpo.runs.metrics import peak_resident_gib
from hgpo.training.batching import Sample
from hgpo.training.run_plan import ModelSummary, estimate_memory
from hgpo.training.update import Sampling, Trained, make_optimizer, update_policy

MODELS = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM")}
FIRST_TOKEN = 3  # others are special


def main(case: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    config_class, model_class = (getattr(transformers, name) for name in MODELS[case["kind"]])
    model_config = config_class(**case["sizes"], eos_token_id=2, bos_token_id=1, attn_implementation="sdpa")
    with torch.device("meta"):
        summary = ModelSummary.of(model_class(model_config))
    config = Config.model_validate(
        {
            "training": case["settings"],
            "policy": {
                "precision": case["precision"],
                "max_prompt_tokens": case["prompt"],
                "max_response_tokens": case["response"],
            },
            "warm_start": {"enabled": True},
        }
    )
    phases = estimate_memory(summary, config.policy, config.training, config.warm_start, torch.device("cpu"))
    update(model_class(model_config).eval(), config)
    estimated = sum(phases["the updates"].values())
    sys.stdout.write(json.dumps({"measured": peak_resident_gib(), "estimated": estimated}))


def update(model: Any, config: Config) -> None:
    """Two full micro-batches of rows of unequal length, after a short one: AdamW has its moments from there on."""
    training, policy = config.training, config.policy
    rng, vocabulary = np.random.default_rng(0), model.config.vocab_size
    prompt, response = policy.max_prompt_tokens, policy.max_response_tokens
    reference = None
    if training.kl_coefficient:
        reference = copy.deepcopy(model).requires_grad_(False)
        if policy.precision == "bfloat16":
            reference = reference.to(torch.bfloat16)
    count = 2 * max(1, training.micro_batch_tokens // (prompt + response - 1))

    def sample(prompt_tokens: int, response_tokens: int) -> Sample:
        return Sample(
            rng.integers(FIRST_TOKEN, vocabulary, prompt_tokens).astype(np.int32),
            rng.integers(FIRST_TOKEN, vocabulary, response_tokens).astype(np.int32),
            np.full(response_tokens, -7.0, dtype=np.float32),
            float(rng.normal()),
        )

    optimizer = make_optimizer(model, training)
    sampling = Sampling(precision=policy.precision)
    update_policy(Trained(model, optimizer, reference), [sample(4, 4)], training, rng, sampling)
    full = [sample(prompt - row % 16, response) for row in range(count)]
    update_policy(Trained(model, optimizer, reference), full, training, rng, sampling)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
