"""From contexts to prompts within a limit."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.agents import TEMPLATES, AgentContext, AgentSpec, make_agent
from hgpo.messages import as_text
from hgpo.rollout.prompts import Prompt, PromptBatcher, RolloutError, fit_prompts

SOME_TEMPLATES = {
    "compact": TEMPLATES.get("compact"),
    "reasoning": TEMPLATES.get("reasoning"),
    "react": make_agent("react", AgentSpec("corridor", "compact", 0), {}).template,
}


class Words:
    """Counts words, and how often it was asked to."""

    def __init__(self, limit: int | None) -> None:
        self.max_prompt_tokens = limit
        self.counted = 0

    def count_prompt_tokens(self, prompts):
        self.counted += len(prompts)
        return [words(prompt) for prompt in prompts]


def words(prompt) -> int:
    return len(as_text(prompt).split())


def context(pairs: list[tuple[str, str]]) -> AgentContext:
    responses = tuple(f"Thought: so.\nAction: {action}" for _, action in pairs)
    return AgentContext("open the door", "a hall", len(pairs), tuple(pairs), ("look",), responses)


def one_pair_after_the_other(told: AgentContext, limit: int, render) -> Prompt:
    """What `fit_prompts` promises, taken at its word."""
    forgotten = 0
    while words(render(told)) > limit:
        told, forgotten = told.forget_oldest(), forgotten + 1
    return Prompt(render(told), forgotten)


pairs = st.lists(
    st.tuples(st.sampled_from(["a", "a room", "you see " + 9 * "a thing "]), st.sampled_from(["go", "go on"]))
)


@pytest.mark.parametrize("template", SOME_TEMPLATES.values(), ids=SOME_TEMPLATES)
@given(histories=st.lists(pairs, max_size=4), share=st.floats(0, 1))
def test_no_more_is_forgotten_than_has_to_be(template, histories, share):
    contexts = [context(history) for history in histories]
    bare = words(template.render(context([]))) + 8  # for the line that says how much was left out
    longest = max([bare, *(words(template.render(one)) for one in contexts)])
    limit = round(bare + share * (longest - bare))
    expected = [one_pair_after_the_other(one, limit, template.render) for one in contexts]
    assert fit_prompts(contexts, Words(limit), template.render) == expected


def test_a_long_history_is_not_gone_through_pair_by_pair():
    counter = Words(60)
    [prompt] = fit_prompts([context([("a room", "go")] * 1000)], counter, SOME_TEMPLATES["compact"].render)
    assert prompt.forgotten > 950
    assert words(prompt.text) <= 60
    assert counter.counted < 30


def test_a_prompt_that_fits_is_counted_once_and_without_a_limit_never():
    for limit, counted in ((1000, 2), (None, 0)):
        counter = Words(limit)
        fit_prompts([context([("a", "go")])] * 2, counter, SOME_TEMPLATES["compact"].render)
        assert counter.counted == counted


def test_a_prompt_without_any_memory_has_to_fit():
    with pytest.raises(RolloutError, match=r"without any memory takes \d+ tokens, over policy.max_prompt_tokens = 5"):
        fit_prompts([context([]), context([("a", "go")] * 9)], Words(5), SOME_TEMPLATES["compact"].render)


@pytest.mark.parametrize("limit", [40, None])
def test_concurrent_prompts_are_counted_together_and_fail_apart(limit):
    class Calls(Words):
        calls = 0

        def count_prompt_tokens(self, prompts):
            self.calls += 1
            return super().count_prompt_tokens(prompts)

    counter, render = Calls(limit), SOME_TEMPLATES["compact"].render
    contexts = [context([("a", "go")]), context([]), AgentContext("word " * 50, "a hall", 0, (), (), ())]

    async def together():
        batcher = PromptBatcher(counter, render)
        return await asyncio.gather(*map(batcher, contexts), return_exceptions=True)

    *fitting, long = asyncio.run(together())
    assert fitting == [Prompt(render(one), 0) for one in contexts[:2]]
    assert isinstance(long, RolloutError) == (limit is not None)
    assert counter.calls == (2 if limit else 0)  # all together, and the one that does not fit
