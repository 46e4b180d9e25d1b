"""Splits training samples into batches that fit into memory and computes common prefixes once.

All prompts begin with the same instructions, prompts of one task continue with the same goal, and responses to one
prompt often begin with the same words. A row can therefore be a tree, in which every token follows its predecessor:

    go to fridge 1        go ─ to ┬ fridge ─ 1
    go to sink 1                  └ sink ─ 1

A token attends to the tokens before it on its own branch, and its position is its depth, so the result is the same
as in a separate row. Gradients of all branches add up in the common part. Samples with the same prompt and response
have the same log-probs, so the model computes them once, and token limits count them once.

Shape suffixes: R rows, W tokens of the widest row, B samples, M response tokens of all samples, U distinct ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from hgpo.policies.cache import common_prefix
from hgpo.policies.weights import adapter_off, base_model


@dataclass(frozen=True, slots=True)
class ValueTarget:
    """A step's value in units of the targets' standard deviation.

    Attributes:
        target: the value that the critic is trained to predict.
        old: the critic's value before the update.
    """

    target: float
    old: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A step in the form that the policy update needs.

    Example: a 57-token prompt answered by "go to fridge 1" and the end token is
    `Sample(prompt_ids=int32[57], response_ids=int32[5], log_probs=float32[5], advantage=0.7)`.

    Raises:
        ValueError: the prompt is empty, log-probs and response differ in length, or a number is not finite.
    """

    prompt_ids: NDArray[np.int32]
    response_ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]  # of the response tokens, recorded while sampling
    advantage: float
    cut: bool = False  # the response reached its length limit without an end token
    value: ValueTarget | None = None  # None without a critic

    def __post_init__(self) -> None:
        if len(self.prompt_ids) == 0:
            raise ValueError("a sample needs at least one prompt token")
        if self.response_ids.shape != self.log_probs.shape or self.response_ids.ndim != 1:
            raise ValueError(f"response_ids {self.response_ids.shape} and log_probs {self.log_probs.shape} differ")
        if not isfinite(self.advantage) or not np.isfinite(self.log_probs).all():
            raise ValueError(f"advantage {self.advantage} and log_probs must be finite")

    @property
    def token_count(self) -> int:
        """Prompt and response tokens together."""
        return len(self.prompt_ids) + len(self.response_ids)


SharePrefixes = Literal[True, False, "auto"]
ROW_TOKENS = 512
"""Width of a row of trees, unless twice the longest sample is more: wider rows cost attention, narrower share less."""
_WIDE_ENOUGH = 256  # hidden size from which computing tokens takes longer than laying out trees
logger = logging.getLogger(__name__)
_LOGIT_TOLERANCE = 1e-3  # of logits computed in two ways; a scale or a cap changes them by far more
_ENLARGED = 100.0  # factor on hidden states, since a cap hardly changes small logits
_TOLERANCE, _LOW_TOLERANCE = 1e-3, 5e-2  # of hidden states (float32, other types); an ignored mask changes them more
_PROBE_IDS = ([0, 1, 2, 3, 4, 5], [0, 1, 2, 5, 4])  # two samples with a common prefix; every vocabulary has these ids


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """Samples laid out as a tree in one row.

    Attributes:
        members: indices of the samples.
        paths: per sample, the indices of its input tokens in the row.
        ids_W: int32, the tokens.

    Example: the module's example is `PrefixTree([0, 1], [[0, 1, 2, 3], [0, 1, 4, 5]], ids_W=int32[6])`.
    """

    members: list[int]
    paths: list[NDArray[np.int64]]
    ids_W: NDArray[np.int32]


def row_tokens(model: Any, setting: SharePrefixes, samples: Sequence[Sample], max_tokens: int) -> int | None:
    """Most tokens of a row of trees; None: every sample has a separate row.

    Args:
        model: the model that computes the samples. Rows are separate if it does not support trees.
        setting: True, False, or "auto": True if the model is wide enough for trees to save time.
        samples: the samples; none of them is split. Rows are separate if one is longer than `max_tokens`: a shared row
            would be as wide as it, and a lower limit would save no memory.
        max_tokens: most tokens of a micro-batch.
    """
    shares = setting
    if shares == "auto":
        shares = model.config.get_text_config().hidden_size >= _WIDE_ENOUGH
    if not (samples and shares and accepts_trees(model)):
        return None
    longest = max(sample.token_count for sample in samples) - 1
    return row_width(longest, max_tokens) if longest <= max_tokens else None


def row_width(longest: int, max_tokens: int) -> int:
    """Most tokens of a row of trees if the longest sample has `longest` input tokens."""
    return max(min(max(ROW_TOKENS, 2 * longest), max_tokens), longest)


def pack(samples: Sequence[Sample], width: int) -> list[PrefixTree]:
    """Pack the samples into rows of at most `width` tokens; neighbours in lexical order share a row.

    A sample's last token is left out: it predicts nothing.
    """
    tokens = [np.concatenate([sample.prompt_ids, sample.response_ids[:-1]]) for sample in samples]
    rows: list[list[tuple[int, int]]] = []
    previous, size = np.empty(0, dtype=np.int32), 0
    for index in sorted(range(len(samples)), key=lambda index: tokens[index].tobytes()):
        shared = common_prefix(previous, tokens[index])
        if not rows or size + len(tokens[index]) - shared > width:
            rows.append([])
            shared = size = 0
        rows[-1].append((index, shared))
        previous, size = tokens[index], size + len(tokens[index]) - shared
    return [_tree(row, tokens) for row in rows]


def _tree(row: Sequence[tuple[int, int]], tokens: Sequence[NDArray[np.int32]]) -> PrefixTree:
    """The tree of the samples in `row`, each given by its index and the length of its prefix in the previous path."""
    paths, ids, size = [np.empty(0, dtype=np.int64)], [], 0
    for index, shared in row:
        new = tokens[index][shared:]
        paths.append(np.concatenate([paths[-1][:shared], np.arange(size, size + len(new))]))
        ids.append(new)
        size += len(new)
    return PrefixTree([index for index, _ in row], paths[1:], np.concatenate(ids))


@dataclass(frozen=True, slots=True)
class PackedTrees:
    """Trees as model inputs, and the positions of the samples' responses in them.

    Attributes:
        inputs: keyword arguments of the model.
        row_M: for each response token, sample by sample, the row of the token before it.
        place_M: for each response token, the index of the token before it in that row.
    """

    inputs: dict[str, Any]
    row_M: NDArray[np.int64]
    place_M: NDArray[np.int64]


def lay_out_trees(samples: Sequence[Sample], trees: Sequence[PrefixTree], device: torch.device) -> PackedTrees:
    """One row per tree, padded on the right."""
    shape = len(trees), max(len(tree.ids_W) for tree in trees)
    ids_RW, position_RW = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    sees_RWW = np.zeros((*shape, shape[1]), dtype=np.bool_)
    sees_RWW[:, np.arange(shape[1]), np.arange(shape[1])] = True  # padding, too: attending to nothing gives NaN
    before: dict[int, tuple[int, NDArray[np.int64]]] = {}
    for row, tree in enumerate(trees):
        ids_RW[row, : len(tree.ids_W)] = tree.ids_W
        packed = 0
        for member, path in zip(tree.members, tree.paths, strict=True):
            new = path >= packed
            position_RW[row, path] = np.arange(len(path))
            sees_RWW[row, path[new, None], path[None, :]] = new.nonzero()[0][:, None] >= np.arange(len(path))
            packed = max(packed, int(path[-1]) + 1)
            sample = samples[member]
            before[member] = row, path[len(sample.prompt_ids) - 1 :]
    inputs = {
        "input_ids": torch.from_numpy(ids_RW).to(device),
        "attention_mask": torch.from_numpy(sees_RWW[:, None]).to(device),
        "position_ids": torch.from_numpy(position_RW).to(device),
        "use_cache": False,
    }
    rows = [np.full(len(before[index][1]), before[index][0]) for index in range(len(samples))]
    return PackedTrees(
        inputs, np.concatenate(rows), np.concatenate([before[index][1] for index in range(len(samples))])
    )


def accepts_trees(model: Any) -> bool:
    """Whether `model` accepts any attention mask and computes a branch like a separate row; tested once per model."""
    if model not in _accepts:
        _accepts[model] = _check_trees(model)
    return _accepts[model]


_accepts: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


@torch.no_grad()
def _check_trees(model: Any) -> bool:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    looks_back = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    parts = split_model(model)
    if parts is None or config._attn_implementation != "sdpa" or kinds != {"full_attention"} or looks_back:
        return False
    with adapter_off(model):  # its dropout would make two passes differ
        try:
            return _computes_branches_like_rows(parts[0], model.device)
        except (ValueError, TypeError, IndexError, RuntimeError):  # of models that read a mask [B, S] only
            return False


def _computes_branches_like_rows(body: Any, device: torch.device) -> bool:
    """Whether two samples have the same hidden states in a tree as in separate rows."""
    samples = [
        Sample(np.array(ids, dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32), 0.0)
        for ids in _PROBE_IDS
    ]
    [tree] = pack(samples, ROW_TOKENS)
    found_WH = body(**lay_out_trees(samples, [tree], device).inputs).last_hidden_state[0]
    tolerance = _TOLERANCE if found_WH.dtype == torch.float32 else _LOW_TOLERANCE
    for member, path in zip(tree.members, tree.paths, strict=True):
        ids = torch.tensor([_PROBE_IDS[member]], device=device)
        alone_WH = body(input_ids=ids, use_cache=False).last_hidden_state[0]
        if not torch.allclose(found_WH[path], alone_WH, atol=tolerance, rtol=tolerance):
            return False
    return True


def split_model(model: Any) -> tuple[Any, torch.nn.Module] | None:
    """The body of a causal language model and its head; None where its logits are not head(body).

    Some models scale or cap their logits; each model is tested once, on two tokens.
    """
    if model not in _split:
        _split[model] = _check_split(model)
    return _split[model]


_split: WeakKeyDictionary[Any, tuple[Any, torch.nn.Module] | None] = WeakKeyDictionary()


@torch.no_grad()
def _check_split(model: Any) -> tuple[Any, torch.nn.Module] | None:
    causal = base_model(model)
    body, head = causal.base_model, causal.get_output_embeddings()
    if body is causal or head is None:
        return None
    ids = torch.tensor([[1, 2]], device=causal.device)  # not of padding only, whose embedding can be 0
    # An adapter's dropout would make two passes differ.
    with adapter_off(model), head.register_forward_pre_hook(lambda _, inputs: (_ENLARGED * inputs[0],)):
        logits = causal(input_ids=ids, use_cache=False).logits.float()
        found = head(body(input_ids=ids, use_cache=False).last_hidden_state).float()
    if found.shape == logits.shape and torch.allclose(found, logits, atol=_LOGIT_TOLERANCE, rtol=_LOGIT_TOLERANCE):
        return body, head
    logger.warning(
        "%s scales or caps the logits of its head, so a batch needs memory for all its logits", type(causal).__name__
    )
    return None


def distinct(samples: Sequence[Sample]) -> tuple[list[int], NDArray[np.int64]]:
    """The first index of each distinct (prompt, response), and for every sample the index of its pair among them.

    Example: of samples a, b, a: `[0, 1]` and `[0, 1, 0]`.
    """
    first: list[int] = []
    places: dict[tuple[bytes, bytes], int] = {}
    place_N = np.empty(len(samples), dtype=np.int64)
    for row, sample in enumerate(samples):
        place = places.setdefault((sample.prompt_ids.tobytes(), sample.response_ids.tobytes()), len(first))
        if place == len(first):
            first.append(row)
        place_N[row] = place
    return first, place_N


def micro_batches(samples: Sequence[Sample], max_tokens: int, row_tokens: int | None = None) -> list[NDArray[np.int64]]:
    """Indices of `samples` in batches of at most `max_tokens` tokens, padding included.

    Tokens are counted as by `padded_tokens`. A sample longer than `max_tokens` has a separate batch. Equal samples are
    in the same batch.

    Args:
        samples: the samples.
        max_tokens: most tokens of a batch.
        row_tokens: width of rows that samples share; samples with common prefixes come into one batch. None: one row
            per sample and batches of similar lengths, longest first; samples of equal length keep their order.
    """
    if not samples:
        return []
    first, place_N = distinct(samples)
    members: list[list[int]] = [[] for _ in first]
    for row, place in enumerate(place_N):
        members[place].append(row)
    chosen = [samples[row] for row in first]
    batches = _of_equals(chosen, max_tokens) if row_tokens is None else _of_neighbours(chosen, max_tokens, row_tokens)
    return [np.asarray([row for place in batch for row in members[place]], dtype=np.int64) for batch in batches]


def _of_neighbours(samples: Sequence[Sample], max_tokens: int, width: int) -> list[list[int]]:
    """Batches with as many rows of trees as fit."""
    trees, count = pack(samples, width), max(1, max_tokens // width)
    parts = [trees[first : first + count] for first in range(0, len(trees), count)]
    return [[member for tree in part for member in tree.members] for part in parts]


def _of_equals(samples: Sequence[Sample], max_tokens: int) -> list[list[int]]:
    """Batches with as many rows of one sample each as fit. The longest prompt and the longest response of a batch may
    belong to different samples."""
    order = sorted(range(len(samples)), key=lambda place: -samples[place].token_count)
    batches: list[list[int]] = []
    prompt = response = longest = read = 0
    for place in order:
        sample = samples[place]
        prompt, response = max(prompt, len(sample.prompt_ids)), max(response, len(sample.response_ids))
        width = max(longest, prompt + response - 1)  # never less than the longest sample's own tokens
        if batches and (read + 1) * width <= max_tokens:
            batches[-1].append(place)
            read += 1
        else:
            batches.append([place])
            prompt, response, longest = len(sample.prompt_ids), len(sample.response_ids), sample.token_count
            read = 1
    return batches


def padded_tokens(samples: Sequence[Sample], rows: Iterable[int], row_tokens: int | None = None) -> int:
    """Tokens that the model computes for one batch, padding included: number of rows · width of the widest row.

    Without trees there is one row per distinct sample, of longest prompt + longest response - 1 tokens.
    """
    chosen = [samples[row] for row in rows]
    if row_tokens is not None:
        trees = pack([chosen[row] for row in distinct(chosen)[0]], row_tokens)
        return len(trees) * max(len(tree.ids_W) for tree in trees)
    prompt = max(len(sample.prompt_ids) for sample in chosen)
    response = max(len(sample.response_ids) for sample in chosen)
    return len(distinct(chosen)[0]) * (prompt + response - 1)
