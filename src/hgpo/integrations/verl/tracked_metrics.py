"""verl's own metrics of an update, which trackers show, computed from the trainer's records. Needs verl.

verl's trainer reads columns of all rows from the queue for them.

Shape suffixes: N steps of the batch, P tokens of the longest prompt, T of the longest response.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from hgpo.columns import FloatArray
from hgpo.estimators import Advantages
from hgpo.integrations.verl import verl_api
from hgpo.integrations.verl.queue import BatchSteps, is_padding


def tracked_metrics(
    batch: Any,
    steps: BatchSteps,
    advantages: Advantages,
    value_N: FloatArray | None,
    timing: Mapping[str, float],
    gpus: int,
) -> dict[str, float]:
    """verl's metrics of scores, advantages, lengths and speed.

    Args:
        batch: verl's, which may lack some of the steps and have padding.
        steps: all that were collected.
        advantages: of the steps.
        value_N: of the steps; None without a critic.
        timing: verl's seconds by phase.
        gpus: number of GPUs.
    """
    kept = {key for key, tag in zip(batch.keys, batch.tags, strict=True) if not is_padding(tag)}
    index_N = np.array([index for index, key in enumerate(steps.keys) if key in kept])
    data = verl_api.DataProto(_columns(steps, index_N, advantages, value_N))
    data.meta_info["global_token_num"] = [tag["seq_len"] for tag in batch.tags]
    return {
        **verl_api.compute_data_metrics(data, use_critic=value_N is not None),
        **verl_api.compute_timing_metrics(data, dict(timing)),
        **verl_api.compute_throughout_metrics(data, dict(timing), gpus),
    }


def _columns(steps: BatchSteps, index_N: np.ndarray, advantages: Advantages, value_N: FloatArray | None) -> TensorDict:
    """The columns of the steps with these indexes; a number of a step is repeated over its tokens."""
    total: defaultdict[str, float] = defaultdict(float)
    for record in steps.records:
        total[record.trajectory] += record.reward
    records = [steps.records[index] for index in index_N]
    prompt_N, response_N = (
        torch.tensor([len(getattr(record, name)) for record in records]) for name in ("prompt_ids", "token_ids")
    )
    longest = int(response_N.max())

    def repeated(number_N: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(number_N, dtype=np.float32)).unsqueeze(-1).expand(-1, longest)

    score_N1 = torch.tensor([[total[record.trajectory]] for record in records])
    columns = {
        "token_level_scores": score_N1,
        "token_level_rewards": score_N1,
        "advantages": repeated(advantages.values[index_N]),
        "returns": repeated(advantages.returns[index_N]),
        "response_mask": torch.arange(longest) < response_N.unsqueeze(-1),
        "prompts": torch.empty(len(records), 1).expand(-1, int(prompt_N.max())),  # of which verl reads the width
        "responses": torch.empty(len(records), 1).expand(-1, longest),
        "prompt_length": prompt_N.float(),
        "response_length": response_N.float(),
    }
    if value_N is not None:
        columns["values"] = repeated(value_N[index_N])
    return TensorDict(columns, batch_size=len(records))
