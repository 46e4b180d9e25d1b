"""Converts an episode to rows of verl's queue, which one request writes as columns. Does not import verl.

verl's own agent workers create a pydantic model and several tensors for each step. Here all steps of an episode become
columns at once, and each record is serialised once, with its arrays. Only columns that the ranks or the trainer read
are stored.

Shape suffix: N steps of the episode.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from hgpo.policies.base import Response
from hgpo.rollout.records import StepRecord

RECORD = "hgpo_record"
"""The column of the serialised records."""

_VERSIONS = ("min_global_steps", "max_global_steps")  # of the weights that sampled a response


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """The rows of one episode.

    Attributes:
        columns: the columns that the ranks read, and `RECORD`, each with N rows.
        tags: tags of each row; verl reads the lengths and the versions of the weights.
    """

    columns: TensorDict
    tags: list[dict[str, Any]]


def episode_rows(turns: Sequence[tuple[StepRecord, Response]]) -> EpisodeRows:
    """One row per step."""
    prompts, responses = [record.prompt_ids for record, _ in turns], [record.token_ids for record, _ in turns]
    tags = []
    for record, response in turns:
        prompt, generated = len(record.prompt_ids), len(record.token_ids)
        lengths = {"prompt_len": prompt, "response_len": generated, "seq_len": prompt + generated}
        tags.append({**lengths, **{name: response.details.get(name) for name in _VERSIONS}})
    log_probs = [record.log_probs for record, _ in turns]
    return EpisodeRows(_columns(prompts, responses, log_probs, [record for record, _ in turns]), tags)


def failure_row(message: str) -> EpisodeRows:
    """A row without a step; the trainer raises `message` when it reads the row."""
    token = np.zeros(1, dtype=np.int32)
    columns = _columns([token], [token], [np.zeros(1, dtype=np.float32)], [message])
    return EpisodeRows(columns, [{"prompt_len": 1, "response_len": 1, "seq_len": 2, **dict.fromkeys(_VERSIONS)}])


def unpack_records(stored: torch.Tensor) -> list[StepRecord | str]:
    """The rows of the column `RECORD`: records, and messages of `failure_row`."""
    values, ends = stored.values().numpy(), stored.offsets().tolist()  # type: ignore[attr-defined]  # of nested ones
    return [pickle.loads(values[start:end].data) for start, end in pairwise(ends)]  # noqa: S301  # written by this run's own workers


def _columns(
    prompts: list[np.ndarray],
    responses: list[np.ndarray],
    log_probs: list[np.ndarray],
    stored: Sequence[StepRecord | str],
) -> TensorDict:
    inputs = [ids for pair in zip(prompts, responses, strict=True) for ids in pair]
    lengths_N = [len(prompt) + len(response) for prompt, response in zip(prompts, responses, strict=True)]
    response_lengths_N = [len(response) for response in responses]
    packed = [np.frombuffer(pickle.dumps(one, protocol=pickle.HIGHEST_PROTOCOL), dtype=np.uint8) for one in stored]
    columns = {
        "prompts": column(np.concatenate(prompts).astype(np.int64), [len(prompt) for prompt in prompts]),
        "responses": column(np.concatenate(responses).astype(np.int64), response_lengths_N),
        "response_mask": column(np.ones(sum(response_lengths_N), dtype=np.int64), response_lengths_N),
        "input_ids": column(np.concatenate(inputs).astype(np.int64), lengths_N),
        "position_ids": column(np.concatenate([np.arange(length) for length in lengths_N]), lengths_N),
        "rollout_log_probs": column(np.concatenate(log_probs), response_lengths_N),
        RECORD: column(np.concatenate(packed), [len(one) for one in packed]),
    }
    return TensorDict(columns, batch_size=len(stored))


def column(values: np.ndarray, lengths_N: Sequence[int]) -> torch.Tensor:
    """Rows of different lengths, one after another in `values`, as a column for the queue.

    The layout is strided: the queue splits a column into rows five times, which takes ten times as long with layout
    jagged. The queue returns jagged columns.
    """
    rows = torch.from_numpy(values).split(list(lengths_N))  # type: ignore[no-untyped-call]
    return torch.nested.as_nested_tensor(list(rows), layout=torch.strided)
