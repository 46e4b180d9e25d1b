"""What steps are compared by: the observation, with commands, as in the published G2PO code, tool calls, own keys."""

from __future__ import annotations

import json
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hgpo.config import ConfigError, load_config
from hgpo.envs.env_checker import EnvContractError
from hgpo.keys import canonical_json
from hgpo.rollout.state_keys import INFO_OF, NO_CALL, STATE_KEYS, Visit, called, make_key
from hgpo.storage.conversations import steps_of_conversation
from hgpo.tool_calls import ToolCall

Place = tuple[str, tuple[str, ...]]

texts = st.sampled_from(["You arrive at desk 1.", "Nothing happens.", "You heat the mug 1.", "You turn on the lamp 1."])
places = st.tuples(texts, st.sampled_from([("look",), ("look", "go to desk 1")]))


def keys(state: str, episode: list[Place]) -> list[str]:
    key = make_key(state)
    return [key(Visit(text, None, {"admissible_commands": list(commands)})) for text, commands in episode]


def published(episode: list[Place]) -> list[tuple[Place | str, ...]]:
    """The published bookkeeping on pairs in place of texts: a growing list, of which the last two are looked at."""
    start, *rest = episode
    history: list[Place] = [start]
    found: list[tuple[Place | str, ...]] = [("start", start[0])]
    for place in rest:
        if not place[0].startswith("Nothing happens"):
            history.append(place)
        joined = len(history) >= 2 and history[-2][0].startswith(("You heat", "You cool", "You clean", "You turn on"))
        found.append(tuple(history[-2:]) if joined else (history[-1],))
    return found


@given(st.lists(st.lists(places, min_size=1, max_size=7), min_size=1, max_size=4))
def test_published_keys_part_the_steps_as_the_published_bookkeeping_does(episodes: list[list[Place]]) -> None:
    # A real episode starts with a description of the room and of the task.
    episodes = [[("You are in the middle of a room.", ("look",)), *episode] for episode in episodes]
    ours = [key for episode in episodes for key in keys("published_g2po", episode)]
    theirs = [key for episode in episodes for key in published(episode)]
    for (one, first), (other, second) in combinations(zip(ours, theirs, strict=True), 2):
        assert (one == other) == (first == second)


def test_a_failed_command_leaves_the_key() -> None:
    start = ("You are in a room.", ("look", "go to desk 1"))
    desk = ("You arrive at desk 1.", ("look", "take mug 1 from desk 1"))
    found = keys("published_g2po", [start, desk, ("Nothing happens.", desk[1]), desk])
    assert found[0] == start[0]
    assert found[1] == found[2] == found[3] != found[0]


def test_the_place_after_an_unseen_change_remembers_it() -> None:
    walk = ("You arrive at desk 1.", ("look",))
    heated, failed = ("You heat the mug 1.", ("look",)), ("Nothing happens.", ("look",))
    after, still, later = keys("published_g2po", [("Room.", ()), heated, walk, failed, walk])[2:]
    [plain] = keys("published_g2po", [("Room.", ()), walk])[1:]
    assert after == still
    assert after != plain
    assert "You heat" in after
    assert later == plain


def test_the_others_know_no_past() -> None:
    episode = [("Room.", ("look",)), ("Nothing happens.", ("look", "wait"))]
    assert keys("observation", episode) == ["Room.", "Nothing happens."]
    assert keys("observation_and_commands", episode) == [
        "Room.\nPossible: look",
        "Nothing happens.\nPossible: look, wait",
    ]
    assert make_key("observation_and_commands")(Visit("Room.", info={"admissible_commands": None})) == (
        "Room.\nPossible: "
    )


def test_the_names_of_state_keys() -> None:
    names = {"observation", "observation_and_commands", "published_g2po", "simulator", "json", "tool_call"}
    assert names <= set(STATE_KEYS.names())
    assert set(INFO_OF) < names
    for name in names:
        assert callable(make_key(name))


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown state key 'jason'; did you mean json"):
        make_key("jason")


def call_text(name: str, arguments: dict[str, object], order: bool) -> list[str]:
    """One call in the forms in which actions are stored."""
    pairs = list(arguments.items())
    call = ToolCall(name, dict(pairs if order else reversed(pairs)))
    message = {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [{"id": "x7", "function": {"name": name, "arguments": call.arguments}}],
    }
    [step] = steps_of_conversation([{"role": "user", "content": "hi"}, message])
    return [call.action, f"I think.\n{call.tagged}", step["action"]]


@given(
    st.text(min_size=1, max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=3),
)
def test_equal_calls_have_equal_keys_in_every_form(name: str, arguments: dict[str, object]) -> None:
    forms = [called(action) for order in (True, False) for action in call_text(name, arguments, order)]
    assert len(set(forms)) == 1
    assert forms[0] is not None
    assert called(ToolCall(name + "x", arguments).action) != forms[0]
    assert called(ToolCall(name, {**arguments, "more": 1}).action) != forms[0]


@pytest.mark.parametrize(
    "action",
    [
        *(None, "", "look", "[]", "[1]", '["a"]', '{"tool": 3}', "[" * 3000),
        f'{{"tool": "x", "arguments": {{"a": {"[" * 900}{"]" * 900}}}}}',
        *('[{"name": "a"}]', '[{"name": "a", "arguments": {}, "id": 1}]'),
    ],
)
def test_other_actions_are_no_calls(action: str | None) -> None:
    assert called(action) is None


LONG = "x" * 3_000
CALLS = [{"name": "write", "arguments": {"text": LONG}}, {"name": "look", "arguments": {}}]
TAGGED = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in CALLS]


@pytest.mark.parametrize(
    ("action", "calls"),
    [
        (TAGGED[0], CALLS[:1]),
        ("I write.\n" + "\n".join(TAGGED) + "<|im_end|>", CALLS),
        (f"<think>Or {TAGGED[0]}?</think>{TAGGED[1]}", CALLS[1:]),
        (f"<tool_call>no JSON</tool_call>{TAGGED[1]}", CALLS[1:]),
        (f'<think>I write <tool_call>" first.</think>{TAGGED[1]}', CALLS[1:]),
        (f"<tool_call>[{json.dumps(CALLS[0])}, {json.dumps(CALLS[1])}]</tool_call>", CALLS),
        (f"I look.\n{json.dumps(CALLS[1])}", CALLS[1:]),  # ShareGPT's function_call
        (f"\n{json.dumps(CALLS[1])}", CALLS[1:]),
        (json.dumps({"tool": "write", "arguments": {"text": LONG}}, indent=1), CALLS[:1]),
    ],
)
def test_calls_of_other_trainers_are_read(action: str, calls: list[dict[str, object]]) -> None:
    assert called(action) == canonical_json(calls)


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_call>x</tool_call>"])
@pytest.mark.parametrize("rest", ["", LONG])
def test_tags_in_arguments_belong_to_the_call(tag: str, rest: str) -> None:
    call = ToolCall("note", {"text": f"a {tag} b{rest}"})
    forms = [call.action, call.tagged, f"<think>Or {TAGGED[1]}?</think>\n{call.tagged}"]
    forms += [f"I note.\n{call.tagged}", f"I note.\n{json.dumps([{'name': call.name, 'arguments': call.arguments}])}"]
    assert {called(form) for form in forms} == {canonical_json([{"name": call.name, "arguments": call.arguments}])}


def test_tags_without_end_take_little_time() -> None:
    start = time.process_time()
    assert called("<tool_call>" * 100_000) is None
    assert time.process_time() - start < 1.0


def test_the_last_call_stays_until_the_next() -> None:
    key = make_key("tool_call")
    look, take = ToolCall("look", {}).action, ToolCall("take", {"what": "key"}).action
    found = [
        key(Visit(text, action)) for text, action in [("a", None), ("b", "hm"), ("c", look), ("d", "well"), ("e", take)]
    ]
    assert found[:2] == [NO_CALL, NO_CALL]
    assert found[2] == found[3] == called(look)
    assert found[4] == called(take)


class Counted:
    """The number of visits of the episode."""

    def __init__(self) -> None:
        self.visits = 0

    def __call__(self, visit: Visit) -> str:
        self.visits += 1
        return f"{self.visits} after {visit.action}"


def number(visit: Visit) -> int:
    return len(visit.observation)


def test_own_keys_are_functions_or_classes_with_one_instance_per_episode() -> None:
    for _ in range(2):
        key = make_key(f"{__name__}:Counted")
        assert [key(Visit("a")), key(Visit("a", "go"))] == ["1 after None", "2 after go"]


def test_a_key_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="returned 1; it has to return text"):
        make_key(f"{__name__}:number")(Visit("a"))


class Misfit:
    def __init__(self, size: int) -> None: ...


class Uncallable: ...


def failing(visit: Visit) -> str:
    raise KeyError("place")


def leaving(visit: Visit) -> str:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("failing", r"its call raised KeyError: 'place' \(test_state_keys.py, line \d+\)"),
        ("leaving", r"its call raised SystemExit: 3 \(test_state_keys.py, line \d+\)"),
        ("Misfit", r"Misfit\(\) raised TypeError: .*missing 1 required positional argument: 'size'$"),
        ("Uncallable", r"its instances cannot be called; the class needs __call__\(self, visit\)"),
    ],
)
def test_errors_of_own_keys_name_the_key(name: str, message: str) -> None:
    state = f"{__name__}:{name}"
    with pytest.raises(EnvContractError, match=f"^the state key '{state}': {message}"):
        make_key(state)(Visit("a"))


def test_a_class_that_cannot_be_used_is_rejected_while_settings_are_read() -> None:
    with pytest.raises(ConfigError, match=r"Misfit\(\) raised TypeError"):
        load_config(None, ["warm_start.enabled=true", f"rollout.state={__name__}:Misfit"])


def test_what_cannot_be_called_is_no_state_key() -> None:
    with pytest.raises(ValueError, match="'__name__' cannot be called"):
        make_key(f"{__name__}:__name__")
