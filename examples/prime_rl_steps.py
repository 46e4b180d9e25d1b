"""HGPO in prime-rl: every sampled message has its own advantage.

Written against prime-rl 0.8.0 (commit 559b447). It has not been run on the real library: its test uses objects with the
same attributes. prime-rl has no setting for a user's algorithm, so this class replaces a registered one:

    from prime_rl.orchestrator import algo
    algo.ALGORITHM_CLASSES["grpo"] = step_algorithm(StepAdvantages("hgpo"))

A trace is a graph of messages. Each sampled message is a step; the messages between the previous sampled message and
this one are its observation. The last step receives the trace's reward.
"""

from hgpo.integrations.turns import StepAdvantages, Turn, with_final_reward


def step_algorithm(estimate: StepAdvantages):
    """A subclass of prime-rl's GRPO algorithm with one advantage per message; `length_penalty` is not supported."""
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.orchestrator.algo.routing import assign_advantages

    class StepAlgorithm(GRPOAlgorithm):
        """GRPO with step advantages."""

        def __init__(self, config, policy_pool):
            super().__init__(config, policy_pool)
            if self.length_penalty is not None:
                raise ValueError("length_penalty has no effect on step advantages: remove it")

        async def score_group(self, episodes):
            """Assign advantages to a group's trainable traces."""
            traces = [trace for _, trace in iter_trainable_traces(episodes)]
            for trace, values in zip(traces, token_advantages(traces, estimate), strict=True):
                assign_advantages(trace, values)

    return StepAlgorithm


def token_advantages(traces, estimate: StepAdvantages) -> list[list[float]]:
    """For each trace of one group, one advantage for each sampled token, in the order of the nodes."""
    advantages = estimate([turns_of(trace) for trace in traces], [0] * len(traces))
    rows = []
    for trace, advantage_T in zip(traces, advantages, strict=True):
        counts = [sum(node.mask) for node in trace.nodes if any(node.mask)]
        rows.append([float(value) for value, count in zip(advantage_T, counts, strict=True) for _ in range(count)])
    return rows


def turns_of(trace) -> list[Turn]:
    """A trace's steps in the order of its nodes."""
    turns = [
        Turn(observation(trace.nodes, index), text(node.message))
        for index, node in enumerate(trace.nodes)
        if any(node.mask)
    ]
    return with_final_reward(turns, trace.reward)


def observation(nodes, index: int) -> str:
    """The messages between the previous sampled node and this one, without system messages."""
    messages = []
    parent = nodes[index].parent
    while parent is not None and not any(nodes[parent].mask):
        if nodes[parent].message.role not in ("system", "developer"):
            messages.append(text(nodes[parent].message))
        parent = nodes[parent].parent
    return "\n".join(reversed(messages))


def text(message) -> str:
    """A message's content and tool calls, without the calls' random ids."""
    content = "" if message.content is None else str(message.content)
    calls = getattr(message, "tool_calls", None) or ()
    return "\n".join([content, *(f"{call.name}({call.arguments})" for call in calls)])
