"""Less work per forward pass: a key-value cache that is written in place, a last layer for some columns only, batches
of sequences of similar length, and prefixes of prompts that are computed once.

transformers' own cache makes a longer copy of itself for every token, and under autocast keeps float32 keys. The cache
here allocates its memory once, for prompts and responses, in the data type of the model's computation.

A model's output is used where tokens are predicted: in the last column while a prompt is read, and in the columns of
the responses while training. The last layer needs the keys and values of all columns, but queries, attention and MLP
only for these columns. The restriction saves a third of the time in tiny models of 2 or 3 layers, in large ones little.

Shape suffixes: B rows, H key heads, C capacity in tokens, S visible tokens, Q new tokens, L columns, D head size,
M moved rows; in batches P prompt and T response tokens; in layouts U prompts, G prefixes, P columns, N prompts in
lexical order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, apply_rotary_pos_emb

from hgpo.policies.base import TokenIds
from hgpo.policies.weights import base_model


class PreallocatedLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's keys and values in fixed buffers.

    The model sees a window of the buffers, some rows and a range of tokens: `keys` and `values` [B, H, S, D].
    """

    is_sliding = False

    def __init__(self, rows: int, capacity: int) -> None:
        """Prepare buffers for `rows` sequences of `capacity` tokens; the first `update` allocates them."""
        super().__init__()
        self._rows, self._capacity = rows, capacity
        self.show(slice(0, rows), 0, 0)

    def show(self, rows: slice, start: int, end: int) -> None:
        """Set the window to tokens `start` to `end` of `rows`; new tokens are written at `end`."""
        self._window, self._start, self._end = rows, start, end
        if self.is_initialized:
            self._view()

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the buffers, with zeros: a masked token's weight of 0 times NaN would be NaN."""
        self.key_BHCD, self.value_BHCD = (
            states.new_zeros(
                (self._rows, states.shape[1], self._capacity, states.shape[3]), dtype=_computing_dtype(states)
            )
            for states in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new keys and values [B, H, Q, D] to the window, and return the window [B, H, S, D]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self._end + key_states.shape[-2]
        self.key_BHCD[self._window, :, self._end : end] = key_states
        self.value_BHCD[self._window, :, self._end : end] = value_states
        self._end = end
        self._view()
        return self.keys, self.values

    def _view(self) -> None:
        self.keys = self.key_BHCD[self._window, :, self._start : self._end]
        self.values = self.value_BHCD[self._window, :, self._start : self._end]

    def move_rows(self, source_M: torch.Tensor, target_M: torch.Tensor, rows: int) -> None:
        """Copy the cached tokens of rows `source_M` to rows `target_M`; then show the first `rows` rows only."""
        for buffer_BHCD in (self.key_BHCD, self.value_BHCD) if self.is_initialized else ():
            buffer_BHCD[target_M, :, : self._end] = buffer_BHCD[source_M, :, : self._end]
        self.show(slice(0, rows), self._start, self._end)

    def get_seq_length(self) -> int:
        """Number of tokens in the window."""
        return self._end - self._start

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset of the keys for the next `query_length` tokens."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """-1: no limit."""
        return -1

    def get_max_cache_shape(self) -> int:
        """`get_max_length` under its name in older releases of transformers."""
        return self.get_max_length()


class ResponseCache(DynamicCache):  # type: ignore[misc]
    """The cache of one batch of prompts and their responses.

    Layers with full attention are `PreallocatedLayer`; layers with sliding windows shorter than `capacity` or other
    states are transformers' own.

    Attributes:
        in_place: whether all layers are preallocated, so that prompts may be computed in parts.
    """

    layers: list[Any]

    def __init__(self, config: Any, rows: int, capacity: int) -> None:
        """Create the cache of a model with this configuration for `rows` sequences of at most `capacity` tokens."""
        super().__init__(config=config)
        self.layers = [
            PreallocatedLayer(rows, capacity) if _sees_all(layer, capacity) else layer for layer in self.layers
        ]
        self.in_place = bool(self.layers) and all(isinstance(layer, PreallocatedLayer) for layer in self.layers)

    @classmethod
    def of(cls, model: Any, rows: int, capacity: int) -> Self:
        """A cache for `model`; `ValueError` if its architecture needs a special cache."""
        if not model._supports_default_dynamic_cache():
            raise ValueError(f"{type(model).__name__} needs a cache of its own, so it cannot be sampled from here")
        return cls(model.config, rows, capacity)

    def show(self, rows: slice, start: int, end: int) -> None:
        """Set the window of the preallocated layers to tokens `start` to `end` of `rows`."""
        for layer in self.layers:
            if isinstance(layer, PreallocatedLayer):
                layer.show(rows, start, end)


def cache_name(model: Any) -> str:
    """The name of the cache in a model's arguments and outputs; newer releases of transformers call it `cache`."""
    taken = inspect.signature(base_model(model).forward).parameters
    return "cache" if "cache" in taken else "past_key_values"


def last_columns(model: Any, columns: int) -> dict[str, int]:
    """Keywords for Qwen2 models: the last layer, made a `LastLayer`, computes only `columns` columns. Others: empty."""
    layers = getattr(base_model(model).base_model, "layers", None)
    if not layers or not isinstance(layers[-1], Qwen2DecoderLayer):
        return {}
    if type(layers[-1]) is Qwen2DecoderLayer:
        layers[-1].__class__ = LastLayer  # same parameters and names
    return {"last_columns": columns}


class LastLayer(Qwen2DecoderLayer):  # type: ignore[misc]
    """The last layer of a Qwen2 model; with `last_columns`, its output has only so many columns."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_values: Any = None,
        use_cache: bool | None = False,
        position_embeddings: Any = None,
        last_columns: int | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """See `Qwen2DecoderLayer`."""
        count, keys = last_columns or hidden_states.shape[1], past_key_values
        if count < hidden_states.shape[1] and (attention_mask is None or attention_mask.dim() == 4):
            keys = self._keys(hidden_states, position_embeddings, past_key_values)
            attention_mask = _rows_of_mask(attention_mask, count, keys.columns, hidden_states.device)
            hidden_states = hidden_states[:, -count:]
            position_embeddings = tuple(part_BLD[:, -count:] for part_BLD in position_embeddings)
        output: torch.Tensor = super().forward(
            hidden_states,
            attention_mask=attention_mask,
            past_key_values=keys,
            use_cache=use_cache,
            position_embeddings=position_embeddings,
            **options,
        )
        return output

    def _keys(self, hidden_states: torch.Tensor, position_embeddings: Any, cache: Any) -> _GivenKeys:
        """Keys and values of all columns; the cache stores them if there is one."""
        attention, normal_BLH = self.self_attn, self.input_layernorm(hidden_states)
        shape = (*normal_BLH.shape[:-1], -1, attention.head_dim)
        key_BHLD, value_BHLD = (
            projection(normal_BLH).view(shape).transpose(1, 2) for projection in (attention.k_proj, attention.v_proj)
        )
        _, key_BHLD = apply_rotary_pos_emb(key_BHLD[:, :0], key_BHLD, *position_embeddings)
        if cache is None:
            return _GivenKeys(key_BHLD, value_BHLD)
        return _GivenKeys(*cache.update(key_BHLD, value_BHLD, attention.layer_idx))


class _GivenKeys:
    """Replaces the cache: attention uses the given keys and values instead of those of the last columns."""

    def __init__(self, key_BHSD: torch.Tensor, value_BHSD: torch.Tensor) -> None:
        self._given = key_BHSD, value_BHSD
        self.columns = key_BHSD.shape[2]

    def update(self, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self._given


def _rows_of_mask(
    mask_B1LS: torch.Tensor | None, count: int, columns: int, device: torch.device
) -> torch.Tensor | None:
    """The mask of the last `count` columns; None means that each column sees the columns up to itself."""
    if mask_B1LS is not None:
        return mask_B1LS[:, :, -count:]
    if count == 1:
        return None
    sees_LS = torch.ones(count, columns, dtype=torch.bool, device=device).tril(columns - count)
    return sees_LS[None, None]


def select_rows(cache: ResponseCache, index_B: torch.Tensor, device: torch.device) -> None:
    """Replace row b of `cache` by row index[b]; `index_B` is on the CPU. Only rows that change are copied."""
    target_M = (index_B != torch.arange(len(index_B))).nonzero().squeeze(-1)
    source_M, target_M = index_B[target_M].to(device), target_M.to(device)
    for layer in cache.layers:
        if isinstance(layer, PreallocatedLayer):
            layer.move_rows(source_M, target_M, len(index_B))
        else:
            layer.reorder_cache(index_B.to(device))


def _sees_all(layer: Any, capacity: int) -> bool:
    if type(layer) is DynamicSlidingWindowLayer:
        return bool(layer.sliding_window >= capacity)
    return type(layer) is DynamicLayer


def _computing_dtype(states: torch.Tensor) -> torch.dtype:
    """The type that attention computes in; autocast would round float32 to it at every token."""
    kind = states.device.type
    lowered = states.dtype == torch.float32 and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if lowered else states.dtype


def pad_left(sequences: Sequence[TokenIds], pad_token: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad on the left, so that all sequences end in the last column; returns ids [B, P] and mask [B, P].

    Example: `pad_left([[5, 6], [7]], 0)` -> `[[5, 6], [0, 7]]`, `[[True, True], [False, True]]`.
    """
    ids_BP, mask_BP = pad_right([sequence[::-1] for sequence in sequences], pad_token)
    return np.ascontiguousarray(ids_BP[:, ::-1]), np.ascontiguousarray(mask_BP[:, ::-1])


def pad_right(sequences: Sequence[TokenIds], pad_token: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad on the right; returns ids [B, T] and mask [B, T].

    Example: `pad_right([[5, 6], [7]], 0)` -> `[[5, 6], [7, 0]]`, `[[True, True], [True, False]]`.
    """
    lengths_B = np.fromiter((len(sequence) for sequence in sequences), dtype=np.int64, count=len(sequences))
    width = int(lengths_B.max(initial=0))
    mask_BT = np.arange(width) < lengths_B[:, None]
    ids_BT = np.full((len(sequences), width), pad_token, dtype=np.int64)
    if width:
        ids_BT[mask_BT] = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
    return ids_BT, mask_BT


def length_buckets(
    lengths: Sequence[int] | NDArray[np.int64], *, max_tokens: int, max_rows: int | None = None
) -> list[NDArray[np.int64]]:
    """Indices in batches of similar length, each of at most `max_tokens` padded tokens (rows · longest) and `max_rows`.

    Every index appears once; longest batches first, so that out-of-memory errors occur at once. A sequence
    longer than `max_tokens` has a separate batch. Equal lengths keep their order.

    Example: `length_buckets([3, 9, 4, 8], max_tokens=18)` -> `[[1, 3], [2, 0]]`.
    """
    lengths_N = np.asarray(lengths, dtype=np.int64)
    order_N = np.argsort(-lengths_N, kind="stable")
    buckets: list[NDArray[np.int64]] = []
    start = 0
    while start < len(order_N):
        longest = max(1, int(lengths_N[order_N[start]]))
        rows = max(1, max_tokens // longest)
        rows = min(rows, max_rows) if max_rows else rows
        buckets.append(order_N[start : start + rows])
        start += rows
    return buckets


def cuts(lengths: Sequence[int] | NDArray[np.int64], *, overhead: int) -> list[slice]:
    """Cut descending lengths into runs, each padded to its longest, at the least cost.

    A run costs its padded tokens (members · longest) plus `overhead`, the cost of one forward pass in tokens.

    Example: `cuts([9, 8, 3, 3], overhead=5)` -> `[slice(0, 2), slice(2, 4)]`: 18 + 6 + 2 · 5 tokens instead of 36 + 5.
    """
    lengths_N = np.asarray(lengths, dtype=np.int64)
    return cheapest_runs(len(lengths_N), lambda end: np.arange(end, 0, -1) * lengths_N[:end] + overhead)


def cheapest_runs(count: int, costs: Callable[[int], NDArray[np.int64]]) -> list[slice]:
    """Cut 0 to `count` - 1 into runs at the least cost.

    Args:
        count: number of items.
        costs: end -> int64[end], the costs of the runs from each start to `end`.
    """
    cost_N = np.zeros(count + 1, dtype=np.int64)  # least cost of the first n items
    begin_N = np.zeros(count + 1, dtype=np.int64)  # where the last of their runs begins
    for end in range(1, count + 1):
        costs_N = cost_N[:end] + costs(end)
        begin_N[end] = np.argmin(costs_N)
        cost_N[end] = costs_N[begin_N[end]]
    runs: list[slice] = []
    end = count
    while end:
        runs.append(slice(int(begin_N[end]), end))
        end = int(begin_N[end])
    return runs[::-1]


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """Prompts as rows: the first `shared` columns have prefixes that prompts share, the other columns have the rest.

    Both parts are padded on the left. Example: `[[5, 6, 7], [5, 6, 8, 9]]`, laid out together, has `shared = 2` and
    `ids_UP = [[5, 6, 8, 9], [5, 6, 0, 7]]`.

    Attributes:
        order_U: the index of the prompt in row u; the longest rest comes first.
        ids_UP: the rows.
        mask_UP: where the rows have a token.
        shared: number of columns for prefixes; 0 if nothing is shared.
        ids_GP: the different prefixes, longest first, of `shared` columns.
        mask_GP: where the prefixes have a token.
        prefix_U: index in `ids_GP` of row u's prefix; arbitrary for a row that shares none.
    """

    order_U: NDArray[np.int64]
    ids_UP: NDArray[np.int64]
    mask_UP: NDArray[np.bool_]
    shared: int
    ids_GP: NDArray[np.int64]
    mask_GP: NDArray[np.bool_]
    prefix_U: NDArray[np.int64]


def lay_out_apart(prompts: Sequence[TokenIds], pad_token: int) -> PromptLayout:
    """One row per prompt, padded on the left, the longest first."""
    order_U = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    ids_UP, mask_UP = pad_left([prompts[index] for index in order_U], pad_token)
    ids_GP, mask_GP = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.bool_)
    return PromptLayout(order_U, ids_UP, mask_UP, 0, ids_GP, mask_GP, np.zeros(len(order_U), dtype=np.int64))


def lay_out_together(prompts: Sequence[TokenIds], pad_token: int, *, overhead: int) -> PromptLayout:
    """Rows with shared prefixes, if these save more than `overhead` tokens; else as `lay_out_apart`.

    Every rest has at least the prompt's last token, after which the response begins.
    """
    shared_U = shared_tokens(prompts)
    keys = [prompt[:count].tobytes() for prompt, count in zip(prompts, shared_U, strict=True)]
    prefixes = {key: prompt[:count] for key, prompt, count in zip(keys, prompts, shared_U, strict=True) if count}
    if int(shared_U.sum()) - sum(map(len, prefixes.values())) <= overhead:
        return lay_out_apart(prompts, pad_token)
    prefixes = dict(sorted(prefixes.items(), key=lambda item: -len(item[1])))
    index_of = {key: index for index, key in enumerate(prefixes)}
    ids_GP, mask_GP = pad_left([*prefixes.values()], pad_token)
    order_U = np.argsort([count - len(prompt) for prompt, count in zip(prompts, shared_U, strict=True)], kind="stable")
    prefix_U = np.array([index_of.get(keys[index], 0) for index in order_U])
    ids_UR, mask_UR = pad_left([prompts[index][shared_U[index] :] for index in order_U], pad_token)
    mask_US = mask_GP[prefix_U] & (shared_U[order_U] > 0)[:, None]
    return PromptLayout(
        order_U,
        np.concatenate([np.where(mask_US, ids_GP[prefix_U], pad_token), ids_UR], axis=1),
        np.concatenate([mask_US, mask_UR], axis=1),
        ids_GP.shape[1],
        ids_GP,
        mask_GP,
        prefix_U,
    )


def shared_tokens(prompts: Sequence[TokenIds]) -> NDArray[np.int64]:
    """The length of the prefix that each prompt shares with others, int64[U], so that the total of tokens is least.

    Runs of prompts in lexical order share a prefix; the tokens of a run are its prefix, once, and every rest.

    Example: `shared_tokens([[5, 6, 7], [5, 6, 8], [9]])` -> `[2, 2, 0]`.
    """
    order_N = sorted(range(len(prompts)), key=lambda index: prompts[index].astype(">i4").tobytes())
    alike_N = np.array(
        [common_prefix(prompts[one][:-1], prompts[other][:-1]) for one, other in pairwise(order_N)], dtype=np.int64
    )

    def added(end: int) -> NDArray[np.int64]:
        """The negative savings of runs: all but one prompt of a run save the common prefix."""
        common_N = np.minimum.accumulate(alike_N[: end - 1][::-1])[::-1]
        return np.append(-common_N * np.arange(end - 1, 0, -1), 0)

    shared_U = np.zeros(len(prompts), dtype=np.int64)
    for run in cheapest_runs(len(prompts), added):
        if run.stop - run.start > 1:
            shared_U[order_N[run]] = alike_N[run.start : run.stop - 1].min()
    return shared_U


def common_prefix(one: TokenIds, other: TokenIds) -> int:
    """Length of the longest common prefix."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length
