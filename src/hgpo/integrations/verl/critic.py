"""The critic on verl: verl's critic workers estimate values of prompts, and are then trained on the targets.

    steps -> rows in the queue -> [verl: infer_batch] -> Values -> advantages
    targets -> the same rows -> [verl: train_mini_batch]

A row is a prompt and one more token, on which no value depends. So verl's critic has one value per row, at the prompt's
last token, and its loss is the mean over rows. A cut state is the state in which a time limit truncated an episode; its
prompt has a row that is not trained on.

    value of a token = score(last hidden state), normalised (`hgpo.training.value_model.ReturnScale`)

verl 0.9.1 always requires FlashAttention for a critic, initialises the head at random, and supports LoRA only for
causal language models. Here the head starts at zero, is trained together with adapters, and is rescaled when the scale
of the targets changes. Every process of a run loads this module.

Needs verl and TransferQueue. Shape suffixes: N steps, B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict
from transformers import AutoModelForTokenClassification

from hgpo.config import TrainingSettings
from hgpo.estimators.gae import value_targets
from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.queue import SCORED, cut
from hgpo.integrations.verl.verl_api import transfer_queue
from hgpo.policies.base import TokenIds
from hgpo.rollout.records import StepRecord, Values
from hgpo.steps import StepBatch
from hgpo.training.value_model import ReturnScale, value_figures

PARTITION = "critic"
LEARNT = (*SCORED, "values", "returns")
"""Columns that an update of the critic reads."""
HEAD = "score"
"""The name of the head in transformers' classes for one label per token."""


class VerlCritic:
    """verl's critic workers, the scale of their values, and the rows of the update under way.

    Attributes:
        scale: the scale of the values; the trainer saves it with a checkpoint.
    """

    def __init__(
        self, workers: Any, training: TrainingSettings, *, gamma: float, target_lambda: float, seed: int
    ) -> None:
        """`gamma` and `target_lambda` define the targets (`hgpo.estimators.gae.value_targets`); `seed` is the run's."""
        self._workers, self._training, self._seed = workers, training, seed
        self._gamma, self._target_lambda = gamma, target_lambda
        self.scale = ReturnScale()
        self._rows: CriticRows | None = None

    def estimate(self, steps: Sequence[StepRecord]) -> Values:
        """The value of every step and of every cut state."""
        ranks = self._ranks()
        padding = cut(len(steps), self._training.mini_batch_size, ranks).padding
        rows = self._rows = put_rows(steps, max(padding, ranks - 1))
        keys = rows.estimated + rows.padding[: -len(rows.estimated) % ranks]
        ray.get(self._workers.infer_batch(rows.batch(keys, ranks, SCORED, compute_loss=False)).futures)
        value_B = self.scale.restored(read_values(rows.estimated))
        bootstrap_N = np.zeros(len(steps))
        bootstrap_N[rows.cut_steps] = value_B[len(steps) :]
        return Values(value_B[: len(steps)], bootstrap_N)

    def train(self, batch: StepBatch, update: int) -> dict[str, Any]:
        """Train on all steps; return the metrics. First update the scale, and the head so that values stay the same.

        Args:
            batch: the steps that `estimate` received, with the values that it returned.
            update: number of the update.
        """
        assert self._rows is not None, "`estimate` is called first"
        assert batch.value is not None, "`estimate` returned the values"
        ranks, rows = self._ranks(), self._rows
        target_N = value_targets(batch, self._gamma, self._target_lambda)
        after = self.scale.updated(target_N)
        self._workers.rescale_head(*self.scale.change_to(after))
        self.scale = after
        parts = cut(len(target_N), self._training.mini_batch_size, ranks)
        keys = rows.steps + rows.padding[: parts.padding]
        put_targets(keys, after.normalised(target_N), after.normalised(batch.value))
        learnt = rows.batch(
            keys,
            ranks,
            LEARNT,
            global_batch_size=parts.size,
            mini_batch_size=parts.size,
            epochs=self._training.epochs,
            seed=self._seed + update,
            dataloader_kwargs={"shuffle": True},
        )
        output = verl_api.rename_dict(self._workers.train_mini_batch(learnt).get()["metrics"], "critic/")
        output["perf/mfu/critic"] = output.pop("critic/mfu")
        transfer_queue.kv_clear(keys=list(rows.length_B), partition_id=PARTITION)
        metrics: dict[str, Any] = verl_api.reduce_metrics(output)
        return metrics | value_figures(target_N, batch.value)

    def _ranks(self) -> int:
        """Number of training processes; each takes the same number of rows."""
        known = self._workers._dispatch_info
        if "train" not in known:
            known["train"] = self._workers._query_dispatch_info("train")
        return int(max(known["train"])) + 1


@dataclass(frozen=True, slots=True)
class CriticRows:
    """The rows of an update in the queue.

    Attributes:
        length_B: key of every row -> number of its tokens.
        steps: keys of the steps' rows, in the order of the steps.
        cut: keys of the cut states' rows.
        padding: keys of rows that only fill up batches.
        cut_steps: index of the step that led to each cut state.
    """

    length_B: dict[str, int]
    steps: list[str]
    cut: list[str]
    padding: list[str]
    cut_steps: list[int]

    @property
    def estimated(self) -> list[str]:
        """Keys of the rows that have a value."""
        return self.steps + self.cut

    def batch(self, keys: Sequence[str], ranks: int, fields: Sequence[str], **facts: Any) -> Any:
        """Some rows as verl's batch. Every rank has the same number of rows and about the same number of tokens."""
        by_length = sorted(keys, key=lambda key: self.length_B[key])
        ordered = [key for rank in range(ranks) for key in by_length[rank::ranks]]
        tags: list[dict[str, Any]] = [{} for _ in ordered]
        facts["temperature"] = 1.0  # verl's engine reads it; it has no effect on values
        return transfer_queue.KVBatchMeta(
            partition_id=PARTITION, keys=ordered, tags=tags, fields=list(fields), extra_info=facts
        )


def put_rows(steps: Sequence[StepRecord], padding: int) -> CriticRows:
    """Write the rows of an update into the queue: of all steps, of cut states, and of padding."""
    cut_steps = [number for number, step in enumerate(steps) if len(step.next_prompt_ids)]
    of_steps = {f"step_{number}": step.prompt_ids for number, step in enumerate(steps)}
    of_cut = {f"cut_{number}": steps[number].next_prompt_ids for number in cut_steps}
    of_padding = {f"padding_{number}": steps[0].prompt_ids[:1] for number in range(padding)}
    prompts = {**of_steps, **of_cut, **of_padding}
    rows = [_row(prompt_ids, trained=key in of_steps) for key, prompt_ids in prompts.items()]
    _put(list(prompts), {name: [row[name] for row in rows] for name in SCORED})
    length_B = {key: len(prompt_ids) + 1 for key, prompt_ids in prompts.items()}
    return CriticRows(length_B, list(of_steps), list(of_cut), list(of_padding), cut_steps)


def _row(prompt_ids: TokenIds, *, trained: bool) -> dict[str, torch.Tensor]:
    """A prompt, with its last token repeated as the response; a row that is not `trained` is masked in the loss."""
    prompt = torch.from_numpy(prompt_ids.astype(np.int64))
    return {
        "prompts": prompt,
        "responses": prompt[-1:],
        "input_ids": torch.cat([prompt, prompt[-1:]]),
        "position_ids": torch.arange(len(prompt) + 1),
        "response_mask": torch.tensor([int(trained)]),
    }


def read_values(keys: list[str]) -> NDArray[np.float32]:
    """The normalised value of each row at its prompt's last token, float32[B], as the workers wrote it."""
    data = transfer_queue.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=["prompts", "values"])
    return np.array([value[-2].item() for value in data["values"].unbind()], dtype=np.float32)


def put_targets(keys: list[str], target_N: NDArray[np.float32], old_N: NDArray[np.float32]) -> None:
    """Write normalised targets and old values to the first N rows, those of the steps, and zeros to the padding."""
    columns = {"returns": target_N, "values": old_N}
    zeros = np.zeros(len(keys) - len(target_N), dtype=np.float32)
    _put(keys, {name: list(torch.from_numpy(np.append(one, zeros))[:, None]) for name, one in columns.items()})


def _put(keys: list[str], columns: dict[str, list[torch.Tensor]]) -> None:
    """Write columns whose rows may have different lengths."""
    nested = {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()}
    transfer_queue.kv_batch_put(keys=keys, partition_id=PARTITION, fields=TensorDict(nested, batch_size=len(keys)))


# ---- in the critic's workers ---------------------------------------------------------------------------------------


def load_value_model(local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool) -> Any:
    """The layers of a language model with a scalar head of zeros; the attention is that of `model_config`."""
    model = AutoModelForTokenClassification.from_pretrained(
        local_path, dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
    )
    for parameter in getattr(model, HEAD).parameters():
        torch.nn.init.zeros_(parameter)
    return model


class ValueEngine(verl_api.FSDPEngineWithValueHead):  # type: ignore[misc]
    """verl's critic engine. With LoRA, all weights of the head are trained, too."""

    def _build_lora_module(self, module: Any) -> Any:
        module.enable_input_require_grads()
        settings = self.model_config
        lora = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            target_modules=verl_api.convert_to_regular_types(settings.target_modules),
            exclude_modules=[HEAD],
            bias="none",
        )
        adapted = get_peft_model(module, lora)
        for parameter in getattr(adapted.get_base_model(), HEAD).parameters():
            parameter.requires_grad_(True)
        return adapted


class CriticWorker(verl_api.TrainingWorker):  # type: ignore[misc]
    """verl's critic worker, with a head that can be rescaled."""

    @verl_api.register_method(dispatch_mode=verl_api.Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
    def rescale_head(self, factor: float, shift: float) -> None:
        """Change every normalised value to `factor` * value + `shift`."""
        module = self.engine.module
        module.reshard()  # with reshard_after_forward = false, the gathered copies would be changed, and then discarded
        head = getattr(module.get_base_model() if hasattr(module, "get_base_model") else module, HEAD)
        with torch.no_grad():
            head.weight.mul_(factor)
            head.bias.mul_(factor).add_(shift)

    def _postprocess_output(self, output: dict[str, Any], **facts: Any) -> Any:
        """Return values as float32: `put_targets` writes float32 to the same column, and a column has one type."""
        found = output.get("model_output", {})
        if "values" in found:
            found["values"] = found["values"].float()
        return super()._postprocess_output(output, **facts)


verl_api.replace("load_valuehead_model", load_value_model)
for _device in ("cuda", "cpu"):
    verl_api.EngineRegistry._engines["value_model"]["fsdp2"][_device] = ValueEngine
