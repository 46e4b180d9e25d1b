"""Memory that the log-probs over a large vocabulary add to the model's own forward and backward pass.

Each case runs in a separate process, because a process's peak resident memory never decreases. The model has the Qwen2
architecture and few layers, whose memory is part of both figures. *bare* is the body's forward pass and the backward
pass of the mean of its last hidden states; *scored* is `token_log_probs` and the backward pass of the mean log-prob,
with the entropy as a figure, as in an update.

.venv/bin/python benchmarks/vocabulary_memory.py --json benchmarks/vocabulary_memory.cpu.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo.policies.weights import autocast
from hgpo.runs.metrics import peak_resident_gib
from hgpo.training.batching import Sample
from hgpo.training.log_probs import MAX_LOGITS, lay_out, token_log_probs

SIZES = {"vocabulary": 151_936, "tokens": 8_192, "hidden_size": 896, "layers": 2}
"""Those of Qwen2.5-0.5B with fewer layers, and a micro-batch with this number of response tokens."""
ROW_TOKENS, PROMPT_TOKENS = 512, 8


def main() -> None:
    """Read the command line, measure each case in a process of its own, show and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(measured(arguments.case))
        return
    bare, scored = (_in_a_process(case) for case in ("bare", "scored"))
    report = {
        **SIZES,
        "max_logits": MAX_LOGITS,
        "torch": torch.__version__,
        "bare_gib": round(bare, 3),
        "scored_gib": round(scored, 3),
        "added_gib": round(scored - bare, 3),
        "all_logits_gib": round(SIZES["tokens"] * SIZES["vocabulary"] * 4 / 2**30, 3),
    }
    print(json.dumps(report, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _in_a_process(case: str) -> float:
    command = [sys.executable, __file__, "--case", case]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measured(case: str) -> float:
    """Peak resident memory of this process after two passes, in GiB."""
    model, samples = _model(), _samples()
    for _ in range(2):  # the second begins with gradients held, as a second micro-batch does
        CASES[case](model, samples)
    return peak_resident_gib()


def _bare(model: Any, samples: list[Sample]) -> None:
    inputs, _, _ = lay_out(samples, model.device)
    with autocast(model, "bfloat16"):
        hidden_BLH = model.base_model(**inputs).last_hidden_state
    hidden_BLH.float().mean().backward()


def _scored(model: Any, samples: list[Sample]) -> None:
    token_log_probs(model, samples, precision="bfloat16", entropy="figure").log_prob_BT.mean().backward()


CASES = {"bare": _bare, "scored": _scored}


def _model() -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=SIZES["vocabulary"],
        hidden_size=SIZES["hidden_size"],
        intermediate_size=4 * SIZES["hidden_size"],
        num_hidden_layers=SIZES["layers"],
        num_attention_heads=SIZES["hidden_size"] // 64,
        num_key_value_heads=2,
        max_position_embeddings=2 * ROW_TOKENS,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config).eval()


def _samples() -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(
            rng.integers(3, SIZES["vocabulary"], PROMPT_TOKENS),
            rng.integers(3, SIZES["vocabulary"], ROW_TOKENS),
            np.zeros(ROW_TOKENS, dtype=np.float32),
            1.0,
        )
        for _ in range(SIZES["tokens"] // ROW_TOKENS)
    ]


if __name__ == "__main__":
    main()
