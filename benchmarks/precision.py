"""Speed-up by bfloat16 on this CPU for models of several widths: float32 seconds / bfloat16 seconds, measured in turn.

Models are made from scratch with two layers and a vocabulary of 4,096: the number of layers does not change a ratio.
docs/decisions/013-bfloat16-on-cpus.md has the figures on which the precision "auto" is based.

.venv/bin/python benchmarks/precision.py --threads 2
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from hgpo.policies.sampler import sample_responses
from hgpo.policies.tiny import build_model
from hgpo.policies.weights import Precision, autocast, cpu_has_bfloat16
from hgpo.training.batching import Sample
from hgpo.training.log_probs import token_log_probs

VOCABULARY, LAYERS = 4096, 2
PROMPT_TOKENS, RESPONSE_TOKENS = 88, 8


def main() -> None:
    """Read the command line, measure and show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 192, 256, 384, 576, 1024])
    parser.add_argument("--rows", type=int, default=16, help="prompts at a time (default: 16)")
    parser.add_argument("--rounds", type=int, default=7, help="of both precisions in turn (default: 7)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    console = Console()
    if not cpu_has_bfloat16():
        console.print('This processor does not multiply in bfloat16 by itself: "auto" is float32.')
    table = Table("width", "forward and backward", "prefill and decoding")
    for width in arguments.widths:
        model = build_model(VOCABULARY, hidden_size=width, layers=LAYERS, heads=max(1, width // 64)).eval()
        samples = _samples(arguments.rows)
        training = _ratio(partial(_train, model, samples), arguments.rounds)
        sampling = _ratio(partial(_sample, model, samples), arguments.rounds)
        table.add_row(str(width), f"{training:.2f}", f"{sampling:.2f}")
    console.print(table)


def _samples(rows: int) -> list[Sample]:
    rng = np.random.default_rng(0)
    lengths = (PROMPT_TOKENS, RESPONSE_TOKENS)
    tokens = [[rng.integers(VOCABULARY, size=length, dtype=np.int32) for length in lengths] for _ in range(rows)]
    return [Sample(prompt, response, np.zeros(RESPONSE_TOKENS, np.float32), 1.0) for prompt, response in tokens]


def _train(model: Any, samples: list[Sample], precision: Precision) -> None:
    token_log_probs(model, samples, precision=precision, entropy="none").log_prob_BT.mean().backward()
    model.zero_grad(set_to_none=True)


def _sample(model: Any, samples: list[Sample], precision: Precision) -> None:
    with autocast(model, precision):
        sample_responses(
            model,
            [sample.prompt_ids for sample in samples],
            uniform_BT=None,
            temperature=0,
            max_tokens=RESPONSE_TOKENS,
            end_tokens=[VOCABULARY - 1],
            pad_token=0,
        )


def _ratio(work: Any, rounds: int) -> float:
    """Median over rounds of float32 seconds over bfloat16 seconds; a first round is not counted."""
    ratios = []
    for _ in range(rounds + 1):
        seconds: dict[Precision, float] = {}
        for precision in ("float32", "bfloat16"):
            began = time.perf_counter()
            work(precision)
            seconds[precision] = time.perf_counter() - began
        ratios.append(seconds["float32"] / seconds["bfloat16"])
    return statistics.median(ratios[1:])


if __name__ == "__main__":
    main()
