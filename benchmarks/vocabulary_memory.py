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

ROW_TOKENS, PROMPT_TOKENS = 512, 8


def main() -> None:
    """Read the command line, measure each case in a process of its own, show and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--tokens", type=int, default=8_192, help="response tokens of the micro-batch (default: 8192)")
    parser.add_argument("--hidden-size", type=int, default=896, help="default: that of Qwen2.5-0.5B")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--max-logits", type=int, default=MAX_LOGITS, help="training.max_logits")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--case", choices=["bare", "scored"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measured(arguments)))
        return
    peak = {case: _in_a_process(case) for case in ("bare", "scored")}
    held_at_once = arguments.tokens * arguments.vocabulary * 4 / 2**30
    report = {
        **{name: getattr(arguments, name) for name in ("vocabulary", "tokens", "hidden_size", "layers", "max_logits")},
        "torch": torch.__version__,
        "bare_gib": round(peak["bare"], 3),
        "scored_gib": round(peak["scored"], 3),
        "added_gib": round(peak["scored"] - peak["bare"], 3),
        "all_logits_gib": round(held_at_once, 3),
    }
    print(
        f"bare {report['bare_gib']:.2f} GiB, scored {report['scored_gib']:.2f}: scoring adds "
        f"{report['added_gib']:.2f} GiB; the logits alone, all at once in float32, would be {held_at_once:.2f}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _in_a_process(case: str) -> float:
    command = [sys.executable, __file__, *sys.argv[1:], "--case", case]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(answer))


def measured(arguments: argparse.Namespace) -> float:
    """Peak resident memory of this process after two passes, in GiB."""
    model = _model(arguments)
    samples = _samples(arguments)
    for _ in range(2):  # the second begins with gradients held, as a second micro-batch does
        {"bare": _bare, "scored": _scored}[arguments.case](model, samples, arguments.max_logits)
    return peak_resident_gib()


def _bare(model: Any, samples: list[Sample], max_logits: int) -> None:
    inputs, _, _ = lay_out(samples, model.device)
    with autocast(model, "bfloat16"):
        hidden_BLH = model.base_model(**inputs).last_hidden_state
    hidden_BLH.float().mean().backward()


def _scored(model: Any, samples: list[Sample], max_logits: int) -> None:
    scores = token_log_probs(model, samples, precision="bfloat16", entropy="figure", max_logits=max_logits)
    scores.log_prob_BT.mean().backward()


def _model(arguments: argparse.Namespace) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=arguments.vocabulary,
        hidden_size=arguments.hidden_size,
        intermediate_size=4 * arguments.hidden_size,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.hidden_size // 64,
        num_key_value_heads=2,
        max_position_embeddings=2 * ROW_TOKENS,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen2ForCausalLM(config).eval()


def _samples(arguments: argparse.Namespace) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(
            rng.integers(3, arguments.vocabulary, PROMPT_TOKENS),
            rng.integers(3, arguments.vocabulary, ROW_TOKENS),
            np.zeros(ROW_TOKENS, dtype=np.float32),
            1.0,
        )
        for _ in range(arguments.tokens // ROW_TOKENS)
    ]


if __name__ == "__main__":
    main()
