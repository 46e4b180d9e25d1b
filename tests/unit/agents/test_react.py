"""The agents ReAct and Reflexion."""

import json
import time
from dataclasses import replace

import pytest

from hgpo.agents import AgentContext, AgentSpec, ParsedAction, make_agent
from hgpo.agents.react import MAX_REMEMBERED_CHARACTERS, MOST_LESSONS, ReactTemplate, remembered
from hgpo.messages import Message, as_text
from hgpo.tool_calls import ToolCall, parse_action

HOUSEHOLD = AgentSpec("alfworld", "household-reasoning", history_length=2)
NOWHERE = AgentSpec("corridor:CorridorSuite", "compact", history_length=2)


def react(spec=HOUSEHOLD, **options):
    return make_agent("react", spec, options)


LATER = AgentContext(
    task="put a mug in desk.",
    observation="You open drawer 1.",
    step=2,
    history=(("You see a drawer 1.", "look"), ("You see a drawer 1.", "open drawer 1")),
    responses=("Thought: I look.\nAction: look", "Thought: I open it.\nAction: open drawer 1\nObservation: no"),
    admissible=("close drawer 1", "help", "look"),
    kind="pick_heat_then_place_in_recep",
)
START = AgentContext(task="put a mug in desk.", observation="You see a desk 1.", step=0)


def test_history_is_told_in_real_turns_without_what_the_model_made_up():
    first, *rest = react().template.render(LATER)
    assert first.role == "user"
    assert first.text.endswith("Your task: put a mug in desk.\n\nYou see a drawer 1.")
    assert rest == [
        Message("assistant", "Thought: I look.\nAction: look"),
        Message("user", "Observation: You see a drawer 1."),
        Message("assistant", "Thought: I open it.\nAction: open drawer 1"),
        Message("user", "Observation: You open drawer 1.\n\nPossible commands: close drawer 1, look"),
    ]


def test_examples_of_the_tasks_type_come_before_it():
    text = as_text(react().template.render(LATER))
    assert text.count("Here is how a task was done:") == 2
    assert text.count("\nTask: ") == 2
    assert text.index("heat") < text.index("put a mug in desk.")
    shorter = as_text(react(examples=0, list_commands=False).template.render(LATER))
    assert "Here is how" not in shorter
    assert "Possible commands" not in shorter


def test_an_environment_without_examples_is_asked_without():
    assert "Here is how" not in as_text(react(NOWHERE).template.render(LATER))


def test_the_first_step_is_one_message():
    messages = react().template.render(START)
    assert [message.role for message in messages] == ["user"]


def test_what_is_left_out_of_a_long_history_is_said():
    text = as_text(react().template.render(LATER.forget_oldest()))
    assert "(Your first 1 turns are left out here.)" in text
    assert "I look." not in text


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ("Thought: a\nAction: go to desk 1", "go to desk 1"),
        ("Thought: a\naction : Go to Desk 1.", "go to desk 1."),
        ("**Thought:** a\n**Action:** `open drawer 1`", "open drawer 1"),
        ("> Action 2: 'look'\nObservation: x\nAction: help", "look"),
        ("- Action:\tsearch[red shoes, size 9]", "search[red shoes, size 9]"),
        ("I see.\n \n\n  >\n Action: look", "look"),
        ("Action\n\n 3 \n ** \n:\n** go to desk 1", "go to desk 1"),
        ("An action: look\naction 7 help\n\tAction : open drawer 1", "open drawer 1"),
        ('Action: say "hello"', 'say "hello"'),
        ('**Action: say "hello"**', 'say "hello"'),
        ('Action: `"open drawer 1"`', "open drawer 1"),
        ("Action: open drawer 1*", "open drawer 1"),
        ("Action:\n```\nopen drawer 1\n```", "open drawer 1"),
    ],
)
def test_the_first_action_is_read_through_white_space_and_marks(response, action):
    assert react().template.parse(response) == ParsedAction(action, valid=True)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("I think.\nopen drawer 1\n", ParsedAction("open drawer 1", False, "no Action:")),
        ("", ParsedAction("", False, "no Action:")),
        ("Action: ``", ParsedAction("", False, "empty Action:")),
        ('Action: {"tool": "look",', ParsedAction('{"tool": "look",', False, "not a tool call")),
        (f"Action: search[{'a' * 600}]", ParsedAction(f"search[{'a' * 505}", False, "too long")),
        ("Action:\n\nObservation: You see a desk 1.", ParsedAction("", False, "empty Action:")),
        ("**Action:**\n**Thought 2:** I look.\nAction: look", ParsedAction("", False, "empty Action:")),
    ],
)
def test_an_ill_formed_answer_is_called_so(response, expected):
    assert react().template.parse(response) == expected


@pytest.mark.parametrize("action", ["open drawer 1", 'say "yes"', 'say "a" and "b"', "say 'yes'"])
def test_a_response_is_the_inverse_of_reading_it(action):
    template = react().template
    assert template.parse(template.respond(action)) == ParsedAction(action, valid=True)


def test_an_endless_response_is_remembered_in_part():
    assert len(remembered("x" * 10_000_000, "look")) == MAX_REMEMBERED_CHARACTERS
    assert remembered("", "look") == "Action: look"
    long = f"Action: {'x' * MAX_REMEMBERED_CHARACTERS}"
    assert remembered(f"Thought: write it.\n{long}", long.removeprefix("Action: ")) == long
    assert remembered("x" * 10_000_000 + "\nlook", "look").endswith("\nAction: look")  # without the word "Action:"


@pytest.mark.parametrize("response", ["action " * 200_000, "\n" * 100_000, " \n" * 50_000, "Action" + "\n" * 100_000])
def test_reading_takes_no_longer_than_the_text_is_long(response):
    began = time.process_time()
    assert not react().template.parse(response).valid  # a pattern that looks back would take minutes
    remembered(response, "look")
    assert time.process_time() - began < 2


def test_options_are_checked():
    with pytest.raises(ValueError, match="agent 'react' has no option example; it takes examples, list_commands"):
        react(example=1)
    with pytest.raises(ValueError, match="give 0 or more"):
        react(examples=-1)


def test_everything_is_remembered():
    agent = react()
    assert agent.history_length is None
    assert agent.trials == 1
    assert isinstance(agent.template, ReactTemplate)


def reflexion(**options):
    return make_agent("reflexion", HOUSEHOLD, options)


def test_the_last_lessons_are_told_before_the_task_is_begun():
    template = reflexion().template
    assert "failed" not in as_text(template.render(START))
    lessons = tuple(f"lesson {number}" for number in range(MOST_LESSONS + 2))
    told = as_text(template.render(replace(START, lessons=lessons)))
    assert "- lesson 2\n- lesson 3\n- lesson 4" in told
    assert "lesson 1\n" not in told
    assert told.index("lesson 4") < told.index("You see a desk 1.")


def test_the_question_follows_the_whole_lost_trial_without_examples_and_commands():
    agent = reflexion()
    history, responses = (("You see a desk 1.", "look"),), ("Action: look",)
    lost = replace(
        START, step=1, history=history, responses=responses, admissible=("look",), lessons=("of an earlier trial",)
    )
    messages = agent.reflect(lost)
    assert [message.role for message in messages] == ["user", "assistant", "user"]
    assert "Here is how" not in messages[0].text
    assert "earlier trial" not in messages[0].text
    assert messages[-1].text.startswith("Observation: You see a desk 1.\n\nThe attempt is over")
    assert "Possible commands" not in messages[-1].text


def test_the_number_of_trials_is_an_option():
    assert reflexion().trials == 3
    assert reflexion(trials=5).trials == 5
    with pytest.raises(ValueError, match=r"agent\.options\.trials = 0"):
        reflexion(trials=0)


@pytest.mark.parametrize(
    "form",
    [
        "Action:\n```json\n{}\n```",
        "Action: {}\nObservation: written.\nAction: {{}}",
        "<think>Action: look</think>Thought: I write.\nAction:\n\n{}",
    ],
)
def test_a_tool_call_may_have_several_lines_and_the_tags_of_thoughts(form):
    call = ToolCall("write", {"text": "Use <think> Tags </think>", "place": "Desk 1"})
    response = form.format(json.dumps({"tool": call.name, "arguments": call.arguments}, indent=2))

    parsed = react().template.parse(response)

    assert parsed == ParsedAction(call.action, valid=True)
    told = remembered(response, parsed.action)
    assert react().template.parse(told) == parsed
    assert "Observation" not in told


@pytest.mark.parametrize("quotes", ["{}", "`{}`", "**{}**"])
def test_a_tool_call_keeps_case_spaces_and_length(quotes):
    call = ToolCall("Send", {"to": "Ann", "text": "Two  spaces. " + "x" * 600})
    parsed = react().template.parse("Thought: I write.\nAction: " + quotes.format(call.action) + "\nObservation: sent")
    assert parse_action(parsed.action) == call
    assert parsed.valid
    assert react().template.parse("Action: Open  Drawer 1").action == "open drawer 1"
