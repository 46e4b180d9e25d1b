"""Responses of thinking models: an action in a thought is no action; without one, the published rule holds.

Cases marked "before" were already read correctly before thoughts were known.
"""

from __future__ import annotations

import re
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hgpo.agents import TEMPLATES, AgentContext, AgentSpec, ParsedAction, make_agent
from hgpo.agents.prompts import clean_action, parse_tagged
from hgpo.agents.react import MAX_REMEMBERED_CHARACTERS, remembered
from hgpo.messages import opened_thought, thought_spans, without_thoughts
from hgpo.policies.base import Response
from hgpo.policies.chat import PromptEncoder
from hgpo.policies.tiny import build_tokenizer
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import Prompt, RolloutRules
from hgpo.tool_calls import ToolCall
from tiny_models import tiny_model

REACT = make_agent("react", AgentSpec("alfworld", "household-reasoning", 2), {}).template
PONDER = "The fridge may hold it.\nAction: go to fridge 1\nbut apples lie on counters."
ANSWER = "Thought: Apples lie on counters.\nAction: go to countertop 1"
COUNTER = ParsedAction("go to countertop 1", True)
NO_LINE = ParsedAction("", False, "no Action:")


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(f"<think>\n{PONDER}\n</think>\n\n{ANSWER}", COUNTER, id="Qwen3"),
        pytest.param(f"{PONDER}\n</think>\n\n{ANSWER}", COUNTER, id="DeepSeek-R1 and QwQ prefill the tag"),
        pytest.param(f"<thinking>{PONDER}</thinking>{ANSWER}", COUNTER, id="thinking"),
        pytest.param(f"<reasoning>\n{PONDER}\n</reasoning>\n{ANSWER}", COUNTER, id="reasoning"),
        pytest.param(f"<THINK>{PONDER}</Think> Action: go to countertop 1", COUNTER, id="upper case, same line"),
        pytest.param(f"[THINK]{PONDER}[/THINK]{ANSWER}", COUNTER, id="Magistral"),
        pytest.param(f"<seed:think>{PONDER}</seed:think>{ANSWER}", COUNTER, id="Seed-OSS"),
        pytest.param(f"<think>{PONDER}</think><think>{PONDER}</think>{ANSWER}", COUNTER, id="two thoughts"),
        pytest.param(f"<think>In <think></think>?\n{PONDER}</think>{ANSWER}", COUNTER, id="quotes both tags"),
        pytest.param(f"<think>In <think>?\n{PONDER}</think>{ANSWER}", COUNTER, id="quotes the opening tag"),
        pytest.param(f"In <think></think>?\n{PONDER}</think>{ANSWER}", COUNTER, id="prefilled, quotes both tags"),
        pytest.param(f"{ANSWER}\n<think>\n{PONDER}</think>\nAction: look", COUNTER, id="thinks on after it: before"),
        pytest.param(f"<think>\n{PONDER}", NO_LINE, id="cut in the thought"),
        pytest.param(f"<think>a</think>\n<think>\n{PONDER}", NO_LINE, id="cut in the second thought"),
        pytest.param(f"<think>\n{PONDER}\n</think>", NO_LINE, id="nothing after the thought"),
        pytest.param(f"{PONDER}\n</think>", NO_LINE, id="prefilled, nothing after the thought"),
        pytest.param(f"{ANSWER}\n</think>\nAction: look", ParsedAction("look", True), id="prefilled, whole form twice"),
    ],
)
def test_react_reads_the_line_outside_thoughts(response: str, expected: ParsedAction) -> None:
    parsed = REACT.parse(response)
    assert parsed == expected
    told = remembered(response, parsed.action)
    assert parsed.action in told
    assert not re.search(r"think|reasoning", told, re.IGNORECASE)


def tagged(response: str) -> tuple[str, bool]:
    parsed = parse_tagged(response, fallback_characters=30)
    return parsed.action, parsed.valid


FRIDGE, TABLE = "<action>go to fridge 1</action>", "<action>go to table 1</action>"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(f"<think>Not {FRIDGE}.</think>{TABLE}", ("go to table 1", True), id="Qwen3"),
        pytest.param(f"Not {FRIDGE}.</think>{TABLE}", ("go to table 1", False), id="prefilled"),
        pytest.param(f"Not {FRIDGE}.</think><think>a</think>{TABLE}", ("go to table 1", True), id="prefilled, form"),
        pytest.param(
            f"In <think> </think>, then <action> </action>.</think><think>a</think>{TABLE}",
            ("go to table 1", True),
            id="prefilled, quotes the form",
        ),
        pytest.param(
            f"<think>In <think> </think>, then <action> </action>.</think>\n\n{TABLE}",
            ("go to table 1", True),
            id="quotes the form",
        ),
        pytest.param(f"<thinking>{FRIDGE}</thinking><think>a</think>{TABLE}", ("go to table 1", True), id="thinking"),
        pytest.param(
            f"<reasoning>{FRIDGE}</reasoning><think>a</think>{TABLE}", ("go to table 1", True), id="reasoning"
        ),
        pytest.param(f"<think>Maybe {FRIDGE}", ("", False), id="cut in the thought"),
        pytest.param(f"<think>Maybe {FRIDGE}</think>", ("", False), id="nothing after the thought"),
        pytest.param(f"Maybe {FRIDGE}</think>", ("", False), id="prefilled, nothing after the thought"),
        pytest.param(f"<think>{FRIDGE}</think>I go to table 1", ("i go to table 1", False), id="no tag after it"),
        pytest.param(f"<think>a</think>{FRIDGE}<think>b</think>{TABLE}", ("go to fridge 1", True), id="on: before"),
        pytest.param(f"<think>a</think>{FRIDGE}</think>", ("go to fridge 1", True), id="stray tag: before"),
        pytest.param(f"Well. <think>a</think>{FRIDGE}</think>", ("go to fridge 1", True), id="stray tag, text: before"),
        pytest.param(f"<think>a <think> b</think>{FRIDGE}", ("go to fridge 1", True), id="opened twice: before"),
        pytest.param("<think>go to a box", ("<think>go to a box", False), id="no tag at all: before"),
    ],
)
def test_direct_reads_the_tag_outside_thoughts(response: str, expected: tuple[str, bool]) -> None:
    assert tagged(response) == expected


PIECES = ["<think>", "</think>", "<thinking>", "</thinking>", "<action>", "</ACTION>", "look", "\n", "<", "去", "İ"]


def published(response: str) -> tuple[str, bool]:
    """The rule of the published code."""
    lowered = response.lower()
    found = re.search("<action>(.*?)</action>", lowered, re.DOTALL)
    if found is None:
        return clean_action(lowered[-30:]), False
    whole = "<think>" in lowered and "</think>" in lowered and not re.search("[\u4e00-\u9fff]", response)
    return clean_action(found[1]), whole


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("<action>look</action>")
@example("<action><action>look</ACTION></action>")
def test_the_published_rule_holds_where_no_thought_holds_an_action(response: str) -> None:
    lowered = response.lower()
    thoughts = [lowered[start:end] for start, end in thought_spans(lowered)]
    if not any("<action>" in thought for thought in thoughts):
        assert tagged(response) == published(response)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_thoughts_are_in_order_apart_and_gone(response: str) -> None:
    spans = thought_spans(response)
    assert spans == sorted(spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    assert not re.search("<think(ing)?>", without_thoughts(response).replace("\n", "<"))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("<think>\ngo to fridge 1?\n</think>\n\nGo to table 1", ParsedAction("go to table 1", True)),
        ("go to fridge 1?\n</think>\n\ngo to table 1", ParsedAction("go to table 1", True)),
        (f"<think>{'x' * 5000}</think>look", ParsedAction("look", True)),
        ("<think>go to fridge 1", ParsedAction("", False, "empty")),
        ("<reasoning>go to fridge 1</reasoning>", ParsedAction("", False, "empty")),
    ],
    ids=["Qwen3", "prefilled", "long", "cut in the thought", "nothing after the thought"],
)
@pytest.mark.parametrize("name", ["compact", "household-compact"])
def test_compact_reads_what_follows_the_thought(name: str, response: str, expected: ParsedAction) -> None:
    assert TEMPLATES.get(name).parse(response) == expected


def test_a_long_thought_or_answer_does_not_push_its_action_out_of_the_history() -> None:
    told = remembered(f"<think>{'hm ' * 5000}</think>{ANSWER}", "go to countertop 1")
    assert told == ANSWER
    told = remembered(f"Thought: {'hm ' * 5000}\nAction: go to countertop 1", "go to countertop 1")
    assert len(told) <= MAX_REMEMBERED_CHARACTERS
    assert told.endswith("\nAction: go to countertop 1")
    turns = REACT.render(AgentContext("t", "o", 1, history=(("a", ""),), responses=(f"<think>{PONDER}",)))
    assert turns[1].text == "Action: "


# Templates that open the thought in the prompt


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|assistant|>\n<think>\n", "<think>"),
        ("<|assistant|>[THINK]", "[THINK]"),
        ("<|assistant|>\n<think>\n\n</think>\n\n", ""),
        ("<|assistant|>\n", ""),
        ("<|system|>Write <think>.<|assistant|>", ""),
    ],
)
def test_a_prompt_that_ends_in_a_thought_is_known(prompt: str, opened: str) -> None:
    assert opened_thought(prompt) == opened


@pytest.mark.parametrize(("ending", "thinks"), [("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("", False)])
def test_an_encoder_knows_whether_its_template_opens_a_thought(ending: str, thinks: bool) -> None:
    tokenizer = tiny_model().tokenizer
    tokenizer.chat_template += ending
    assert PromptEncoder(tokenizer, 40).opens_thought == thinks


@pytest.mark.parametrize(
    ("text", "in_thought", "action", "fault"),
    [
        (PONDER, True, "", "unclosed thought"),
        (f"{PONDER}</think>{ANSWER}", True, "go to countertop 1", ""),
        (PONDER, False, "go to fridge 1", ""),
    ],
    ids=["cut in the thought", "closed", "no thinking model: before"],
)
def test_a_response_that_is_cut_in_a_prefilled_thought_has_no_action(
    text: str, in_thought: bool, action: str, fault: str
) -> None:
    rules = RolloutRules(REACT, None, temperature=1.0)
    episode = Episode(EpisodeIds("g", "t", "k", "k"), rules, "You see a fridge.", {"task": "t"})
    response = Response(text, *[np.empty(0)] * 3, finished=False, in_thought=in_thought)  # type: ignore[arg-type]
    parsed = episode.answer(Prompt("?", 0), response).action
    assert (parsed.action, parsed.fault) == (action, fault)


def played(template: object, text: str, *, in_thought: bool) -> tuple[ParsedAction, AgentContext]:
    """The action of a response, and the context of the next prompt."""
    rules = RolloutRules(template, None, temperature=1.0)  # type: ignore[arg-type]
    episode = Episode(EpisodeIds("g", "t", "k", "k"), rules, "You see a fridge.", {"task": "t", "tools": TOOLS})
    response = Response(text, *[np.empty(0)] * 3, finished=True, in_thought=in_thought)  # type: ignore[arg-type]
    answer = episode.answer(Prompt("?", 0), response)
    record = episode.finish(answer, ("Nothing happens.", 0.0, False, False, {"won": False, "tools": TOOLS}))
    assert record.response == text
    return answer.action, episode.context()


TOOLS = [{"name": "look", "description": "", "parameters": {}}]
CALL = ToolCall("look", {"at": "fridge"}).tagged


@pytest.mark.parametrize(("name", "text"), [("react", PONDER), ("tools", f"I may call {CALL}")])
def test_an_action_in_a_prefilled_thought_that_was_cut_is_not_remembered(name: str, text: str) -> None:
    template = make_agent(name, AgentSpec("corridor", "compact", 2)).template
    parsed, context = played(template, text, in_thought=True)
    turns = template.render(context)
    assert (parsed.action, parsed.fault) == ("", "unclosed thought")
    assert "fridge" not in turns[1].text  # type: ignore[union-attr]


@pytest.mark.parametrize("ponder", [f"Not {FRIDGE}.", "In <think> </think>, then <action> </action>."])
def test_a_prefilled_thought_counts_as_a_thought(ponder: str) -> None:
    text = f"{ponder}</think>\n{TABLE}"
    assert played(TEMPLATES.get("reasoning"), text, in_thought=True)[0] == ParsedAction("go to table 1", True)
    assert not played(TEMPLATES.get("reasoning"), f"Not it.</think>{TABLE}", in_thought=False)[0].valid
    other = f"Not {FRIDGE}.</seed:think>\nAction: look"
    assert played(REACT, other, in_thought=True)[0] == ParsedAction("look", True)


@pytest.mark.parametrize("opening", ["<think>\n", "[THINK]", "<seed:think>"])
@pytest.mark.parametrize("agent", ["direct compact", "direct reasoning", "react", "tools"])
def test_a_demonstration_closes_a_prefilled_thought(agent: str, opening: str) -> None:
    name, _, template_name = agent.partition(" ")
    template = make_agent(name, AgentSpec("corridor", template_name, 2)).template
    command = ToolCall("look", {"at": "fridge"}).action if name == "tools" else "go to fridge 1"
    tokenizer = build_tokenizer([template.respond(command), "</think> [/THINK] </seed:think>"])
    tokenizer.chat_template += opening
    encoder = PromptEncoder(tokenizer, 40)
    [text] = encoder.decode(encoder.encode_responses([template.respond(command)], tokenizer.eos_token_id))
    assert played(template, text, in_thought=encoder.opens_thought)[0] == ParsedAction(command, True)


OTHER_TAGS = ("</think>", "<think></think>", "<think><think></think>")


@pytest.mark.parametrize(
    "tag", ["<think>", "<action>", *(pytest.param(tag, marks=pytest.mark.slow) for tag in OTHER_TAGS)]
)
def test_reading_takes_no_longer_than_the_text_is_long(tag: str) -> None:
    began = time.process_time()
    for parse in (REACT.parse, tagged, TEMPLATES.get("compact").parse):
        parse(tag * 100_000)
    assert time.process_time() - began < 6
