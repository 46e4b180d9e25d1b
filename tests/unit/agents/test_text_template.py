"""Templates from a file: what is replaced, what stays as it is, and what is rejected."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.agents import AgentContext, AgentSpec, make_agent
from hgpo.agents.text_template import PLACEHOLDERS, TextTemplate, is_file, is_text, read_text_template

CONTEXT = AgentContext(
    task="put a mug in desk.",
    observation=" You arrive at shelf 1.\n",
    step=3,
    history=(("you see a desk 1", "go to bed 1"), ("you see a bed 1 ", "go to shelf 1")),
    admissible=("look", "help", "take mug 2 from shelf 1"),
)
START = AgentContext(task="put a mug in desk.", observation="a room", step=0, admissible=("look", "help"))
SECTIONS = """\
[first]
You see {observation}, may do [{actions}].
[later]
Task {task}: {steps_taken} done. The last {history_steps}: {history}

Step {step}: {observation} <action>
[past]
[Observation {step}: '{observation}', Action {step}: '{action}']
[action]
 '{action}'
"""


def test_a_text_without_sections_is_the_prompt_of_every_step() -> None:
    template = TextTemplate("{task}|{step}|{steps_taken}|{history_steps}|{observation}\n{history}\n{actions}\n")
    assert template.render(CONTEXT) == (
        "put a mug in desk.|4|3|2|You arrive at shelf 1.\n"
        "[Step 2] observation: you see a desk 1\n[Step 2] action: go to bed 1\n"
        "[Step 3] observation: you see a bed 1\n[Step 3] action: go to shelf 1\n"
        "- look\n- take mug 2 from shelf 1"
    )
    assert template.render(START) == "put a mug in desk.|1|0|0|a room\n\n- look"


def test_sections_word_the_first_prompt_the_past_and_the_actions() -> None:
    template = TextTemplate(SECTIONS)
    assert template.render(START) == "You see a room, may do ['look']."
    assert template.render(CONTEXT) == (
        "Task put a mug in desk.: 3 done. The last 2: [Observation 2: 'you see a desk 1', Action 2: 'go to bed 1']\n"
        "[Observation 3: 'you see a bed 1', Action 3: 'go to shelf 1']\n\nStep 4: You arrive at shelf 1. <action>"
    )


def test_the_page_shows_a_text_that_works_and_every_placeholder() -> None:
    page = (Path(__file__).parents[3] / "docs" / "prompts.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert "[Observation 3: 'you see a bed 1', Action 3: 'go to shelf 1']\nStep 4" in TextTemplate(example).render(
        CONTEXT
    )
    table = re.findall(r"^\| `(.*?)` \|", page, re.MULTILINE)
    assert re.findall(r"\{(\w+)\}", " ".join(table)) == list(PLACEHOLDERS["first"])


def test_actions_after_the_first_keep_their_indentation() -> None:
    text = "[first]\n{observation} [{actions}]\n[later]\n{observation}\n[action]\n '{action}'\n"
    context = AgentContext("t", "o", 0, admissible=("a", "b"))
    assert TextTemplate(text).render(context) == "o ['a'\n 'b']"


@given(st.text(st.sampled_from("{}.[]_0!:taskobervin" + string.ascii_lowercase)), st.text(max_size=40))
def test_what_others_wrote_is_inserted_as_it_stands(observation: str, task: str) -> None:
    """Placeholders, attributes and indexes in it are characters; only white space at its ends is left out."""
    context = AgentContext(task, observation, 1, ((observation, task),), (task,))
    text = "{task}<{observation}>{{task}}"
    assert TextTemplate(text).render(context) == f"{task}<{observation.strip()}>{{task}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{observation} {tsk}", r"'\{tsk\}' is no placeholder; did you mean task\? Known: \{task\}, \{observation\}, "),
        ("{observation.__class__}", r"'\{observation.__class__\}' is no placeholder"),
        ("{observation[0]}", r"'\{observation\[0\]\}' is no placeholder"),
        ("{observation!r:>10}", "is no placeholder"),
        ("{observation} {}", r"'\{\}' is no placeholder"),
        ("{observation} {0}", r"'\{0\}' is no placeholder"),
        ("{observation} {", r"'\{' is no placeholder.*For braces, write \{\{ and \}\}"),
        ("{observation} { {task} }", r"'\{' is no placeholder"),
        ("{task} {action}", r"'\{action\}' is no placeholder; did you mean actions\?"),
        ("{task}", r"\{observation\} is missing"),
        ("", r"\{observation\} is missing"),
        ("[first]\n{observation}\n", r"the section \[later\] is missing"),
        ("[first]\n{observation}\n[later]\n{task}\n", r"\{observation\} is missing in \[later\]"),
        ("[first]\n{observation}\n[first]\n{observation}\n[later]\n{observation}\n", "a section is repeated"),
        ("hello\n[first]\n{observation}\n[later]\n{observation}\n", r"'hello' is in no section"),
        (f"{SECTIONS}{{actions}}", r"'\{actions\}' is no placeholder of \[action\]; did you mean action\?"),
    ],
)
def test_mistakes_are_named_with_what_is_known(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TextTemplate(text)


def test_responses_follow_the_published_rules_where_the_text_asks_for_a_tag() -> None:
    tagged, bare = TextTemplate(SECTIONS), TextTemplate("{observation}")
    for template in (tagged, bare):
        parsed = template.parse(template.respond("go to desk 1"))
        assert (parsed.action, parsed.valid) == ("go to desk 1", True)
    assert not tagged.parse("go to desk 1").valid
    assert bare.parse("Go to desk 1").action == "go to desk 1"


@pytest.mark.parametrize(("environment", "length"), [("alfworld", 30), ("webshop", 20)])
def test_the_direct_agent_takes_a_text_and_cuts_a_response_without_a_tag_as_published(
    environment: str, length: int
) -> None:
    template = make_agent("direct", AgentSpec(environment, SECTIONS, 2)).template
    assert len(template.parse("x" * 50).action) == length


def test_a_file_is_told_from_a_name_and_from_a_text() -> None:
    assert is_file("prompts/mine.txt")
    assert not any(is_file(other) for other in ("compact", "my_module:NAME", "{observation}.txt", 3))
    assert is_text("see {observation}")
    assert not any(is_text(other) for other in ("compact", "my_module:NAME", "prompts/mine.txt"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.txt cannot be read: No such file"):
        read_text_template(tmp_path / "missing.txt")
    (tmp_path / "latin.txt").write_bytes(b"{observation} \xe9")
    with pytest.raises(ValueError, match=r"latin\.txt: .*utf-8"):
        read_text_template(tmp_path / "latin.txt")
    (tmp_path / "mine.txt").write_text("{observatio}")
    with pytest.raises(ValueError, match=r"agent\.template: .*mine\.txt: .* did you mean observation\?"):
        read_text_template(tmp_path / "mine.txt")


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(SECTIONS, encoding="utf-8-sig")
    assert read_text_template(tmp_path / "prompt.txt") == SECTIONS


def test_headings_may_end_in_spaces_or_the_text() -> None:
    spaced = re.sub(r"^(\[\w+\])$", r"\1 \t", SECTIONS, flags=re.MULTILINE)
    assert spaced.count("\t") == 4
    assert TextTemplate(spaced).render(CONTEXT) == TextTemplate(SECTIONS).render(CONTEXT)
    assert TextTemplate("[first]\n{observation}\n[later]\n{observation} {history}\n[past]").render(CONTEXT) == (
        "You arrive at shelf 1. \n"
    )
