"""prime-rl: an algorithm that gives every sampled message its own advantage. Read in prime-rl 0.8.0 (commit 559b447).

prime-rl has no setting that points at user code, so the algorithm takes the place of one that has a name there:

    from prime_rl.orchestrator import algo
    from hgpo.integrations.prime_rl import step_algorithm

    algo.ALGORITHM_CLASSES["grpo"] = step_algorithm(StepAdvantages("hgpo"))

A trace is a graph of messages. Each sampled one is a step; the messages between it and the sampled one before it are
its observation. The trace's reward goes to the last step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hgpo.integrations.attempts import StepAdvantages, Turn, with_final_reward

_PASSED_OVER = ("system", "developer")


def step_algorithm(estimate: StepAdvantages) -> type[Any]:
    """A class for `prime_rl.orchestrator.algo.ALGORITHM_CLASSES["grpo"]`; GRPO's settings but for its own penalty.

    Raises:
        ImportError: prime-rl is not installed.
    """
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.orchestrator.algo.routing import assign_advantages

    class StepAlgorithm(GRPOAlgorithm):  # type: ignore[misc]  # of a library that is not there when this is checked
        """Credit for every sampled message."""

        def __init__(self, config: Any, policy_pool: Any) -> None:
            super().__init__(config, policy_pool)
            if self.length_penalty is not None:
                raise ValueError("length_penalty is GRPO's own, and nothing reads it here: leave it out")

        async def score_group(self, episodes: list[Any]) -> None:
            """Assign credit to a group's trainable traces."""
            assign_steps([trace for _, trace in iter_trainable_traces(episodes)], estimate, assign_advantages)

    return StepAlgorithm


def assign_steps(traces: Sequence[Any], estimate: StepAdvantages, assign: Callable[[Any, list[float]], None]) -> None:
    """Compare the traces of one group step by step.

    Args:
        traces: With `nodes` and `reward`.
        estimate: The estimator.
        assign: prime-rl's `assign_advantages`: a trace and one value for each sampled token, in the nodes' order.
    """
    advantages = estimate([turns_of(trace) for trace in traces], [0] * len(traces))
    for trace, advantage_T in zip(traces, advantages, strict=True):
        sampled = [sum(node.mask) for node in trace.nodes if any(node.mask)]
        credit = zip(advantage_T, sampled, strict=True)
        assign(trace, [float(value) for value, tokens in credit for _ in range(tokens)])


def turns_of(trace: Any) -> list[Turn]:
    """A trace's steps in the order of its nodes."""
    turns = [
        Turn(_heard_before(trace.nodes, place), _said(node.message))
        for place, node in enumerate(trace.nodes)
        if any(node.mask)
    ]
    return with_final_reward(turns, trace.reward)


def _heard_before(nodes: Sequence[Any], place: int) -> str:
    """What was said between a node and the sampled one that it follows from."""
    heard: list[str] = []
    above = nodes[place].parent
    while above is not None and not any(nodes[above].mask):
        if getattr(nodes[above].message, "role", None) not in _PASSED_OVER:
            heard.append(_said(nodes[above].message))
        above = nodes[above].parent
    return "\n".join(reversed(heard))


def _said(message: Any) -> str:
    """A message's content and tool calls; what is no text as its representation."""
    content = getattr(message, "content", None)
    calls = getattr(message, "tool_calls", None)
    said = "" if content is None else content if isinstance(content, str) else repr(content)
    return f"{said}\n{calls!r}" if calls else said
