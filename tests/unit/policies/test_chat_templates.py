"""Which chat templates show a prompt, and how those that do not are refused."""

import pytest

from hgpo.messages import Message, as_text
from hgpo.policies.chat import Chat, PromptEncoder
from tiny_models import tiny_model

TURNS = (Message("user", "go"), Message("assistant", "take"), Message("user", "desk"))


def body(content):
    return "{% for message in messages %}<{{ message.role }}>" + content + "{% endfor %}<assistant>"


PARTS = body("{% for part in message.content %}{{ part.text }}{% endfor %}")
TYPED_PARTS = body(
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
)
FIRST_PART = body("{{ message.content[0].text }}")
STRICT_PARTS = "{% if messages[-1].content is string %}{{ raise_exception('parts') }}{% endif %}" + PARTS
EITHER = body(
    "{% if message.content is string %}{{ message.content }}{% else %}{{ message.content[0].text }}{% endif %}"
)
PROMPT = "Put the  Mug on\nthe desk."


def rendered(template, prompt=PROMPT, chat=None, name="lab/model"):
    """The text around and of a prompt."""
    tokenizer = tiny_model().tokenizer
    tokenizer.chat_template, tokenizer.name_or_path = template, name
    encoder, texts = PromptEncoder(tokenizer, 400, chat), []
    encoder._ids = lambda given: texts.extend(given) or [[0]]
    encoder.encode_prompts([prompt])
    return texts[0]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        pytest.param(
            "{% for message in messages %}<{{ message.role }}>{% endfor %}", "leaves out or changes", id="no content"
        ),
        pytest.param("<user><assistant>", "leaves out or changes", id="no messages"),
        pytest.param(body("{{ message.text }}"), "leaves out or changes", id="another key"),
        pytest.param(body("{{ message.value }}"), "leaves out or changes", id="ShareGPT's key"),
        pytest.param(
            "{% for m in messages %}{% if m.role == 'human' %}{{ m.content }}{% endif %}{% endfor %}",
            "leaves out",
            id="other role names",
        ),
        pytest.param(
            "{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}",
            "leaves out or changes",
            id="others",
        ),
        pytest.param(
            "{% for m in messages[:-1] %}{{ m.content }}{% endfor %}", "leaves out or changes", id="all but the last"
        ),
        pytest.param(
            "{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "leaves out or changes", id="all but the first"
        ),
        pytest.param(body("{{ message.content[:1000] }}"), "leaves out or changes", id="cut after 1,000 characters"),
        pytest.param(body("{{ message.content | truncate(2000) }}"), "leaves out or changes", id="truncated"),
        pytest.param(body("{{ message.content.split('\\n')[0] }}"), "leaves out or changes", id="the first line"),
        pytest.param(body("{{ message.content | lower }}"), "leaves out or changes", id="lower case"),
        pytest.param(body("{{ message.content | title }}"), "leaves out or changes", id="title case"),
        pytest.param(body("{{ message.content.split() | join(' ') }}"), "leaves out or changes", id="one line"),
        pytest.param(
            "{{ raise_exception('tools are needed') }}", "fails .TemplateError: tools are needed", id="raises"
        ),
        pytest.param("{{ messages[0].content + 1 }}", "fails .TypeError", id="a fault in it"),
    ],
)
def test_a_template_that_does_not_show_the_prompt_is_refused_with_the_models_name(template, message):
    with pytest.raises(ValueError, match=rf"lab/model's chat template {message}"):
        rendered(template)
    with pytest.raises(ValueError, match=rf"the model's chat template {message}"):
        rendered(template, name="")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(PARTS, f"<user>{PROMPT}<assistant>", id="parts"),
        pytest.param(TYPED_PARTS, f"<user>{PROMPT}<assistant>", id="parts with a type"),
        pytest.param(FIRST_PART, f"<user>{PROMPT}<assistant>", id="the first part"),
        pytest.param(STRICT_PARTS, f"<user>{PROMPT}<assistant>", id="parts or an error"),
        pytest.param(EITHER, f"<user>{PROMPT}<assistant>", id="either: right before"),
        pytest.param(body("{{ message.content }}"), f"<user>{PROMPT}<assistant>", id="text: right before"),
        pytest.param(body("{{ message.content | trim }}"), f"<user>{PROMPT}<assistant>", id="trimmed: right before"),
    ],
)
def test_a_prompt_is_shown_whole_as_text_or_as_parts(template, expected):
    assert rendered(template) == expected


@pytest.mark.parametrize("template", [PARTS, TYPED_PARTS, FIRST_PART, EITHER])
def test_turns_and_system_message_are_parts_too(template):
    system = Chat("Answer in one Word.\n")
    assert rendered(template, TURNS, system) == (
        "<system>Answer in one Word.\n<user>go<assistant>take<user>desk<assistant>"
    )
    assert (
        rendered(body("{{ message.content | trim }}"), "go", system) == "<system>Answer in one Word.<user>go<assistant>"
    )


@pytest.mark.parametrize(
    "template",
    [
        body("{% if message.role == 'user' %}{{ message.content }}{% endif %}"),
        body("{{ message.content | upper if message.role == 'system' else message.content }}"),
    ],
)
def test_a_system_message_that_is_not_shown_whole_is_refused(template):
    with pytest.raises(ValueError, match="lab/model's chat template leaves out or changes a system message"):
        rendered(template, chat=Chat("Answer in one word."))


STARTING = "{% if messages[0].role != 'user' %}{{ raise_exception('user first') }}{% endif %}" + body(
    "{{ message.content }}"
)
ALTERNATING = (
    "{% for message in messages %}{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('must alternate') }}{% endif %}<{{ message.role }}>{{ message.content }}{% endfor %}"
)
LAST_THREE = "{% for message in messages[-3:] %}<{{ message.role }}>{{ message.content }}{% endfor %}"
ASKED = tuple(Message(role, text) for role, text in zip(("user", "assistant") * 3, "abcdef", strict=True))[:5]


@pytest.mark.parametrize(
    ("template", "turns"),
    [
        pytest.param(LAST_THREE, ASKED, id="five turns of which three are shown"),
        pytest.param(ALTERNATING, (TURNS[0], *TURNS), id="two messages of the user in a row"),
        pytest.param(STARTING, TURNS[1:], id="the agent speaks first"),
        pytest.param("{{ messages[0].content }}", TURNS, id="the first is shown alone"),
        pytest.param("{% for m in messages | reverse %}{{ m.content }}{% endfor %}", TURNS, id="another order"),
    ],
)
def test_a_conversation_whose_turns_the_template_does_not_show_becomes_one_message(template, turns):
    assert as_text(turns) in rendered(template, turns)


@pytest.mark.parametrize("template", [LAST_THREE, ALTERNATING, STARTING])
def test_turns_that_the_template_shows_stay_turns(template):
    assert "<user>go<assistant>take<user>desk" in rendered(template, TURNS)
