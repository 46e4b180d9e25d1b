"""Episodes of an evaluation set, each independent of the others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

import pytest

from corridor import Corridor, CorridorSuite
from hgpo.agents import TEMPLATES, Agent
from hgpo.envs.base import Task, TaskSplits
from hgpo.envs.wrappers import LimitedSuite
from hgpo.policies.base import AnswerFailed, ContextFull, RequestUsage, Response
from hgpo.policies.openai import ServerRefused
from hgpo.policies.wrappers import AsyncBatcher, PricedPolicy, Prices
from hgpo.rollout.episode import Episode, EpisodeIds
from hgpo.rollout.eval_tasks import EvalTask, Player, evaluation_randomness, play_tasks
from hgpo.rollout.prompts import RolloutRules
from hgpo.rollout.records import StepCounts
from hgpo.rollout.runner import play as play_episode
from scripted_policy import ScriptedPolicy

TASKS = LimitedSuite(CorridorSuite(longest=12), max_steps=9).tasks("held_out")  # doors at place 2, 4, … 12
GAMES = [EvalTask(task, place, seed=7) for place, task in enumerate(TASKS)]
COMPACT = TEMPLATES.get("compact")
PLAIN = Agent(COMPACT, 0)
REFLECTING = Agent(COMPACT, 0, trials=3, reflect=lambda context: f"lost at: {COMPACT.render(context)}")


def expert(prompt, rng):
    goal, place = int(prompt.split("at place ")[1].split()[0]), int(prompt.split()[-1])
    return "open door" if goal == place else "go right"


class Answering(AsyncBatcher):
    """Answers with `expert`; each answer takes ten and one token, and two requests."""

    def __init__(self, answer=expert):
        super().__init__(ScriptedPolicy(answer))
        self.asked = []

    async def respond(self, request, *, temperature) -> Response:
        self.asked.append(request)
        response = await super().respond(request, temperature=temperature)
        return replace(response, usage=RequestUsage(10, 1, requests=2, seconds=0.25))


def play(policy, games=GAMES, agent=PLAIN, **player):
    played = []
    rules = RolloutRules(agent.template, agent.history_length, temperature=1.0)
    finished = asyncio.run(play_tasks(games, Player(policy, agent, rules, **player), played.append))
    return finished, {one.summary.task: one for one in played}


def test_one_episode_is_played_alone():
    rules = RolloutRules(COMPACT, history_length=0, temperature=1.0)
    environment = TASKS[0].make()
    episode = Episode(EpisodeIds("g", "g#0", TASKS[0].id, TASKS[0].kind), rules, *environment.reset(seed=0))

    async def step(action):
        return environment.step(action)

    async def whole():
        return [record.action async for record, _ in play_episode(episode, step, Answering(), rules)]

    assert asyncio.run(whole()) == ["go right", "go right", "open door"]


def test_every_game_is_handed_over_with_its_steps_and_what_it_took():
    finished, played = play(PricedPolicy(Answering(), Prices(prompt=1e6, response=1e5)))
    assert finished
    assert {task: one.summary.won for task, one in played.items()} == {
        f"held_out/{goal}": goal <= 8 for goal in (2, 4, 6, 8, 10, 12)
    }
    one = played["held_out/4"]
    assert [step.action for step in one.steps] == ["go right"] * 4 + ["open door"]
    assert one.summary.counts == StepCounts(steps=5, valid=5, listed=5, admissible=5, cut=0)
    assert one.summary.usage.prompt_tokens == 50
    assert one.summary.usage.latencies == (0.25,) * 5
    assert one.summary.usage.cost == pytest.approx(50.5)
    assert {step.group for step in one.steps} == {"7/held_out/4"}


def test_every_seed_and_every_place_has_its_own_random_numbers():
    drawn = [evaluation_randomness(seed, place) for seed in range(3) for place in range(3)]
    assert len({reset_seed for reset_seed, _ in drawn}) == len({rng.integers(2**31) for _, rng in drawn}) == 9


def test_neither_order_nor_company_changes_what_a_game_draws():
    def drawn(games, max_concurrency):
        policy = Answering()
        play(policy, games, max_concurrency=max_concurrency)
        return {(request.prompt, request.seed) for request in policy.asked}

    assert drawn(GAMES, 64) == drawn(GAMES[::-1], 2)
    assert drawn(GAMES[3:4], 1) <= drawn(GAMES, 64)


def test_a_lost_game_is_tried_again_with_what_was_learnt():
    lessons = []

    def learns(prompt, rng):
        if prompt.startswith("lost at"):
            lessons.append(prompt)
            return f"lesson {len(lessons)}"
        return "go left"

    _, played = play(Answering(learns), GAMES[:1], REFLECTING)
    [one] = played.values()
    assert one.summary.trials == (False, False, False)
    assert len(lessons) == 2  # none after the last trial
    assert lessons[0] == "lost at: task : open the door at place 2 now : you are at place -9"
    assert one.summary.counts.steps == 27
    assert one.summary.usage.requests == 2 * 29
    assert sorted({step.trajectory for step in one.steps}) == [f"7/held_out/2#{trial}" for trial in range(3)]


def test_an_agent_without_reflection_repeats_a_lost_trial_without_a_lesson():
    _, played = play(Answering(lambda prompt, rng: "go left"), GAMES[:1], replace(PLAIN, trials=2))
    assert played["held_out/2"].summary.trials == (False, False)


def test_lessons_reach_the_next_trials_prompts():
    class Telling(type(COMPACT)):
        def tail(self, context):
            return [f"lessons : {'; '.join(context.lessons)}"] if context.lessons else []

    class Thinking(Answering):
        """The prompt of this model opens a thought."""

        async def respond(self, request, *, temperature):
            return replace(await super().respond(request, temperature=temperature), in_thought=True)

    def answer(prompt, rng):
        return f"hm</think>be  quick\nnext time{'!' * 2000}" if prompt == "reflect" else "go left"

    agent = Agent(Telling(), 0, trials=2, reflect=lambda context: "reflect")
    policy = Thinking(answer)
    play(policy, GAMES[:1], agent)
    told = [request.prompt.rpartition("lessons : ")[2] for request in policy.asked if "lessons" in request.prompt]
    assert told == ["be quick next time".ljust(1000, "!")] * 9


def test_a_game_that_is_won_is_not_tried_again():
    _, played = play(Answering(), GAMES[:1], REFLECTING)
    assert played["held_out/2"].summary.trials == (True,)


class Forgetful(Corridor):
    """Goes on after the win, and says in that step alone that it is won."""

    def step(self, action):
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info


@pytest.mark.parametrize("fills", [False, True], ids=["to the step limit", "until the context is full"])
def test_a_game_that_was_won_stays_won(fills):
    def answer(prompt, rng):
        if fills and prompt.endswith("place 3"):
            raise ContextFull("full")
        return next(actions)

    actions = chain(["go right", "open door"], repeat("go right"))
    suite = LimitedSuite(TaskSplits({"train": lambda: [Task("forgetful", "corridor", partial(Forgetful, 1))]}), 9)
    _, played = play(Answering(answer), [EvalTask(suite.tasks("train")[0], 0, seed=7)])
    one = played["forgetful"]
    assert not one.steps[-1].truncated if fills else one.steps[-1].truncated
    assert (one.summary.won, one.summary.score) == (True, 1.0)


def test_a_later_trial_that_was_won_before_the_context_was_full_is_won():
    class Full(Answering):
        """The first trial is lost; in the second, the context is full after the door was opened."""

        async def respond(self, request, *, temperature):
            if len(self.asked) > 13:
                raise ContextFull("full")
            return await super().respond(request, temperature=temperature)

    def late(prompt, rng):
        return "go left" if len(policy.asked) <= 10 else expert(prompt, rng)

    policy = Full(late)
    task = Task("t", "corridor", partial(Forgetful, 2))
    [limited] = LimitedSuite(TaskSplits({"held_out": lambda: [task]}), max_steps=9).tasks("held_out")
    _, played = play(policy, [EvalTask(limited, 0, seed=7)], REFLECTING)
    assert played["t"].summary.trials == (False, True)
    assert played["t"].summary.context_full
    assert played["t"].summary.failure == ""


def test_an_answer_that_does_not_come_fails_its_game_alone():
    def fails(prompt, rng):
        if "place 6 now : you are at place 3" in prompt:
            raise AnswerFailed("no luck")
        return expert(prompt, rng)

    class OneByOne(Answering):
        async def respond(self, request, *, temperature):
            return Response(fails(request.prompt, None), *[()] * 3, finished=True, usage=RequestUsage(1, 1, 1, 0.0))

    finished, played = play(OneByOne())
    assert finished
    assert {task for task, one in played.items() if one.summary.failure} == {"held_out/6"}
    assert played["held_out/6"].summary.failure == "AnswerFailed: no luck"
    assert played["held_out/6"].summary.usage.requests == 3
    assert played["held_out/6"].summary.usage.latencies == ()  # an answer from the cache takes no time
    assert not played["held_out/6"].summary.won


def test_an_unusable_answer_counts_among_the_requests_of_its_game():
    class Calling(Answering):
        async def respond(self, request, *, temperature):
            raise AnswerFailed("a tool call", usage=RequestUsage(10, 1, requests=2, seconds=0.25))

    policy = PricedPolicy(Calling(), Prices(prompt=1e5))
    _, played = play(policy, GAMES[:1])
    [one] = played.values()
    assert one.summary.failure == "AnswerFailed: a tool call"
    assert (one.summary.usage.requests, one.summary.usage.cost) == (2, 1)


def test_a_response_counts_although_the_environment_then_breaks():
    class Breaking(Corridor):
        def step(self, action):
            if self.place == 2:
                raise OSError("gone")
            return super().step(action)

    suite = LimitedSuite(TaskSplits({"train": lambda: [Task("breaking", "corridor", partial(Breaking, 4))]}), 9)
    policy = PricedPolicy(Answering(), Prices(prompt=1e5))
    _, played = play(policy, [EvalTask(suite.tasks("train")[0], 0, seed=7)])
    one = played["breaking"].summary
    assert one.failure.startswith("EnvContractError: ")
    assert (one.counts.steps, one.usage.requests) == (2, 2 * 3)
    assert one.usage.cost == policy.cost == 3


def test_a_failed_game_releases_its_environment():
    made = []

    def make():
        environment = Corridor(1)
        made.append(weakref.ref(environment))
        return environment

    async def fail(request, *, temperature):
        raise AnswerFailed("no answer")

    policy = Answering()
    policy.respond = fail
    suite = LimitedSuite(TaskSplits({"train": lambda: [Task("a", "b", make)]}), max_steps=9)
    gc.collect()
    gc.disable()
    try:
        rules = RolloutRules(COMPACT, 0, temperature=1.0)
        player = Player(policy, PLAIN, rules)
        assert asyncio.run(play_tasks([EvalTask(suite.tasks("train")[0], 0, 7)], player, lambda result: None))
        assert [one() for one in made] == [None]
    finally:
        gc.enable()


def test_a_server_that_refuses_everybody_ends_all():
    class Refusing(Answering):
        async def respond(self, request, *, temperature):
            raise ServerRefused("go away")

    with pytest.raises(ServerRefused, match="go away"):
        play(Refusing())


def test_no_more_games_are_under_way_than_said():
    under_way, most = [0], [0]

    class Slow(Answering):
        async def respond(self, request, *, temperature):
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0.001)
            under_way[0] -= 1
            return await super().respond(request, temperature=temperature)

    play(Slow(), max_concurrency=3)
    assert most[0] == 3


def test_what_a_game_cost_that_was_under_way_when_the_money_was_spent_is_handed_over():
    prices = Prices(prompt=1e5)  # an answer costs 1
    policy = PricedPolicy(Answering(), prices, limit=8)
    finished, played = play(policy, max_concurrency=1)
    assert not finished
    assert {task: one.summary.failure.split(":")[0] for task, one in played.items()} == {
        "held_out/2": "",
        "held_out/4": "",
        "held_out/6": "OverBudget",
    }
    assert policy.cost == sum(one.summary.usage.cost for one in played.values()) == 8
