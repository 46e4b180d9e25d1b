"""Prompts that begin alike, laid out so that a beginning is read once for all of them.

Agents ask many times with one template and one task; what differs comes late.

Shape suffixes: U prompts, G beginnings, P columns, N prompts in lexical order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hgpo.policies.padding import TokenIds, cheapest_runs, pad_left


@dataclass(frozen=True, slots=True)
class PromptLayout:
    """Prompts as rows whose first columns hold what they share with others, flush right, and the others the rest.

    Example: `[[5, 6, 7], [5, 6, 8, 9]]`, laid out together, is `ids_UP = [[5, 6, 8, 9], [5, 6, 0, 7]]`, of which
    two columns are `shared`.

    Attributes:
        order_U: row u holds the prompt of this index; the longest rest comes first.
        ids_UP, mask_UP: the rows, and where they hold a token.
        shared: columns of beginnings; 0 if nothing is shared.
        ids_GP, mask_GP: the beginnings, longest first, as they stand in those columns.
        beginning_U: which of them row u begins with; any, where `mask_UP` shows none.
    """

    order_U: NDArray[np.int64]
    ids_UP: NDArray[np.int64]
    mask_UP: NDArray[np.bool_]
    shared: int
    ids_GP: NDArray[np.int64]
    mask_GP: NDArray[np.bool_]
    beginning_U: NDArray[np.int64]


def lay_out_apart(prompts: Sequence[TokenIds], pad_token: int) -> PromptLayout:
    """Every prompt as a row of its own, flush right."""
    order_U = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    ids_UP, mask_UP = pad_left([prompts[index] for index in order_U], pad_token)
    ids_GP, mask_GP = np.zeros((0, 0), dtype=np.int64), np.zeros((0, 0), dtype=np.bool_)
    return PromptLayout(order_U, ids_UP, mask_UP, 0, ids_GP, mask_GP, np.zeros(len(order_U), dtype=np.int64))


def lay_out_together(prompts: Sequence[TokenIds], pad_token: int, *, overhead: int) -> PromptLayout:
    """Beginnings that several prompts have are read once, if that saves more than `overhead` tokens.

    Every prompt keeps at least its last token to itself, since the response follows that.
    """
    shared_U = shared_tokens(prompts)
    keys = [prompt[:count].tobytes() for prompt, count in zip(prompts, shared_U, strict=True)]
    beginnings = {key: prompt[:count] for key, prompt, count in zip(keys, prompts, shared_U, strict=True) if count}
    if int(shared_U.sum()) - sum(map(len, beginnings.values())) <= overhead:
        return lay_out_apart(prompts, pad_token)
    beginnings = dict(sorted(beginnings.items(), key=lambda item: -len(item[1])))
    index_of = {key: index for index, key in enumerate(beginnings)}
    ids_GP, mask_GP = pad_left([*beginnings.values()], pad_token)
    order_U = np.argsort([count - len(prompt) for prompt, count in zip(prompts, shared_U, strict=True)], kind="stable")
    beginning_U = np.array([index_of.get(keys[index], 0) for index in order_U])
    ids_UR, mask_UR = pad_left([prompts[index][shared_U[index] :] for index in order_U], pad_token)
    mask_US = mask_GP[beginning_U] & (shared_U[order_U] > 0)[:, None]
    return PromptLayout(
        order_U,
        np.concatenate([np.where(mask_US, ids_GP[beginning_U], pad_token), ids_UR], axis=1),
        np.concatenate([mask_US, mask_UR], axis=1),
        ids_GP.shape[1],
        ids_GP,
        mask_GP,
        beginning_U,
    )


def shared_tokens(prompts: Sequence[TokenIds]) -> NDArray[np.int64]:
    """How many first tokens of each prompt, int64[U], to read together with others': what costs the fewest tokens.

    In lexical order, runs of prompts are read together; a run costs its common beginning once and every rest.

    Example: `shared_tokens([[5, 6, 7], [5, 6, 8], [9]])` -> `[2, 2, 0]`.
    """
    order_N = sorted(range(len(prompts)), key=lambda index: prompts[index].astype(">i4").tobytes())
    alike_N = np.array([_common(prompts[one], prompts[other]) for one, other in pairwise(order_N)], dtype=np.int64)

    def added(end: int) -> NDArray[np.int64]:
        """What runs save, as costs: all but one of a run's prompts save what they have in common."""
        common_N = np.minimum.accumulate(alike_N[: end - 1][::-1])[::-1]
        return np.append(-common_N * np.arange(end - 1, 0, -1), 0)

    shared_U = np.zeros(len(prompts), dtype=np.int64)
    for run in cheapest_runs(len(prompts), added):
        if run.stop - run.start > 1:
            shared_U[order_N[run]] = alike_N[run.start : run.stop - 1].min()
    return shared_U


def _common(one: TokenIds, other: TokenIds) -> int:
    """Tokens that both begin with, their last ones left out."""
    length = min(len(one), len(other)) - 1
    differ = np.flatnonzero(one[:length] != other[:length])
    return int(differ[0]) if len(differ) else max(length, 0)
