from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from corridor import Corridor
from hgpo.agents import TEMPLATES
from hgpo.policies.base import Response
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.prompts import Prompt, RolloutError, RolloutRules

RULES = RolloutRules(TEMPLATES.get("compact"), history_length=1, temperature=1.0, reward_scale=10.0)
IDS = EpisodeIds("g", "g#0", "train/1", "corridor")
NONE = np.empty(0, dtype=np.int32)


def begun(environment, rules=RULES):
    return Episode(IDS, rules, *environment.reset(seed=0))


def said(text):
    return Response(text, NONE, NONE, NONE.astype(np.float32), finished=True)


def test_answers_and_commands_move_an_episode_alike():
    answered, commanded = begun(Corridor(1)), begun(Corridor(1))
    one, other = Corridor(1), Corridor(1)
    one.reset(), other.reset()
    for action in ("go right", "open door"):
        answer = answered.answer(Prompt("…", forgotten=0), said(action))
        record = answered.finish(answer, one.step(answer.action.action))
        transition = commanded.advance(action, other.step(action), action)
        assert (record.reward, record.won, record.terminated) == (
            transition.reward,
            transition.won,
            transition.terminated,
        )
        assert answered.context() == commanded.context()
    assert answered.ended
    assert commanded.ended


@pytest.mark.parametrize(("history_length", "remembered"), [(0, ()), (1, (1,)), (None, (0, 1))])
def test_the_situation_holds_what_was_seen_and_done_in_the_last_steps(history_length, remembered):
    environment = Corridor(2)
    episode = begun(environment, replace(RULES, history_length=history_length))
    assert episode.context().history == ()
    episode.advance("go right", environment.step("go right"), "response 0")
    episode.advance("go right", environment.step("go right"), "response 1")
    context = episode.context()
    assert context.step == 2
    assert context.history == tuple((f"you are at place {step}", "go right") for step in remembered)
    assert context.responses == tuple(f"response {step}" for step in remembered)
    assert context.admissible == ("go left", "go right", "open door")


def test_a_record_says_what_was_told_and_what_came_of_it():
    environment = Corridor(0)
    episode = begun(environment, replace(RULES, invalid_action_penalty=0.1))
    answer = episode.answer(Prompt("now : here", forgotten=3), said(""))
    record = episode.finish(answer, environment.step(answer.action.action))
    assert (record.group, record.trajectory, record.step, record.task_id) == ("g", "g#0", 0, "train/1")
    assert (record.prompt, record.forgotten, record.valid, record.fault) == ("now : here", 3, False, "empty")
    assert (record.penalty, record.admissible, record.observation) == (0.1, False, "you are at place 0")


def test_no_listed_commands_and_a_score_of_0_are_recorded_as_such():
    episode = begun(Corridor(0))
    episode.info = {**episode.info, "admissible_commands": []}
    answer = episode.answer(Prompt("…", forgotten=0), said("open door"))
    result = "open", 1.0, True, False, {"won": True, "score": 0.0}
    record = episode.finish(answer, result)
    assert (record.admissible, record.won, record.score) == (None, True, 0.0)


@pytest.mark.parametrize(
    ("action", "meant"),
    [
        ("click[8 oz  |  250 ml]", "click[8 oz  |  250 ml]"),
        ("click[wine red]", "click[wine\xa0red]"),
        ("click[mug]", "click[Mug]"),
        ("click[cup]", "click[cup]"),
        ("CLICK[CUP]", "click[cup]"),
        ("click[cuP]", "click[cup]"),
        ("click[a b]", "click[a b]"),
        ("open door", "open door"),
        ("", ""),
    ],
)
def test_an_action_gets_the_spaces_and_the_case_of_the_command_that_is_listed(action, meant):
    episode = begun(Corridor(0))
    listed = [
        "click[8 oz  |  250 ml]",
        "click[wine\xa0red]",
        *2 * ["click[Mug]"],
        "click[a b]",
        "click[a  b]",
        "click[cup]",
    ]
    episode.info = {**episode.info, "admissible_commands": listed}
    assert episode.answer(Prompt("…", forgotten=0), said(action)).action.action == meant


def test_an_environment_may_change_its_info_in_place():
    info = {"won": False, "admissible_commands": ["open door"]}
    episode = Episode(IDS, RULES, "a hall", info)
    answer = episode.answer(Prompt("…", forgotten=0), said("open door"))
    info["admissible_commands"][:] = ["go in"]
    assert episode.finish(answer, ("a door", 0.0, False, False, info)).admissible


def test_a_task_and_tools_that_only_the_reset_gives_stay_in_the_prompts():
    info = {"won": False, "task": "open the door", "tools": [{"name": "look"}]}
    episode = Episode(IDS, RULES, "a hall", info)
    episode.advance("look", ("a door", 0.0, False, False, {"won": False, "task": None}))
    assert (episode.context().task, episode.context().tools) == ("open the door", ({"name": "look"},))
    episode.advance("look", ("a door", 0.0, False, False, {"won": False, "task": "go in", "tools": []}))
    assert (episode.context().task, episode.context().tools) == ("go in", ())
    assert Episode(IDS, RULES, "a hall", {"won": False, "task": None}).context().task == ""
    episode = Episode(IDS, RULES, "a hall", {"won": False})
    episode.advance("look", ("a door", 0.0, False, False, {"won": False}))
    assert episode.info == {"won": False}


@pytest.mark.parametrize(
    ("state", "info", "starts"),
    [
        ("observation_and_commands", {"admissible_commands": []}, True),
        ("observation_and_commands", {}, False),
        ("tool_call", {"tools": []}, False),
        ("simulator", {"state_key": ""}, True),
        ("simulator", {"state_key": None}, False),
    ],
)
def test_a_state_key_needs_what_it_reads_though_no_command_may_be_possible(state, info, starts):
    with nullcontext() if starts else pytest.raises(RolloutError, match="the environment gives no"):
        Episode(IDS, replace(RULES, state=state), "a shop", {"won": False, **info})


class Words:
    """Encodes a prompt as the number of its words."""

    max_prompt_tokens = None

    def encode_prompts(self, prompts):
        return [np.array([len(prompt.split())], dtype=np.int32) for prompt in prompts]


def ended_by_a_limit(encoder, **info):
    episode = begun(Corridor(1), replace(RULES, cut_encoder=encoder))
    result = "you see a door", 0.0, False, True, {"won": False, **info}
    return episode.finish(episode.answer(Prompt("…", forgotten=0), said("go right")), result)


def test_a_state_after_a_limit_whose_prompt_is_too_long_for_the_critic_has_no_further_return():
    class Short(Words):
        max_prompt_tokens = 3

        def count_prompt_tokens(self, prompts):
            return [len(prompt.split()) for prompt in prompts]

    assert ended_by_a_limit(Short()).next_prompt_ids.tolist() == []


def test_after_a_win_no_return_follows_although_a_limit_cut():
    assert len(ended_by_a_limit(Words()).next_prompt_ids)
    assert ended_by_a_limit(Words(), won=True).next_prompt_ids.tolist() == []


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True), (False, False)])
def test_the_critic_is_given_the_state_in_which_a_limit_cut(terminated, truncated):
    episode = begun(Corridor(1), replace(RULES, cut_encoder=Words()))
    result = "you see a door", 0.0, terminated, truncated, {"won": False}
    record = episode.finish(episode.answer(Prompt("…", forgotten=0), said("go right")), result)
    shown = RULES.template.render(episode.context())
    assert "you see a door" in shown
    assert record.next_prompt_ids.tolist() == ([len(shown.split())] if truncated else [])
