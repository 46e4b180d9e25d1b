import asyncio
import math
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from corridor import Corridor
from hgpo.agents import TEMPLATES, AgentContext
from hgpo.envs.base import Task, TaskSplits
from hgpo.envs.env_checker import EnvContractError
from hgpo.envs.wrappers import LimitedSuite
from hgpo.estimators.transition_graph import won
from hgpo.policies.base import Response
from hgpo.rollout.prompts import RolloutError, RolloutRules, fit_prompts
from hgpo.rollout.records import by_trajectory, summarise_trajectories, to_step_batch
from hgpo.rollout.runner import collect
from hgpo.runs.metrics import rollout_metrics
from scripted_policy import ScriptedPolicy


def rules(**changes):
    return RolloutRules(**{"template": TEMPLATES.get("compact"), "history_length": 2, "temperature": 1.0, **changes})


def walker(prompt, rng):
    """Walks to the door named in the task; the current place is the last word."""
    goal = int(prompt.split("place ")[1].split()[0])
    return "open door" if prompt.split()[-1] == str(goal) else "go right"


def checked(task):
    """The task as a run has it: its environment is checked."""
    return LimitedSuite(TaskSplits({"train": lambda: [task]}), 50).tasks("train")


def rng():
    return np.random.default_rng(0)


class CountingPolicy(ScriptedPolicy):
    def __init__(self, answer):
        super().__init__(answer)
        self.batches = []

    def generate(self, requests, *, temperature):
        self.batches.append(len(requests))
        return super().generate(requests, temperature=temperature)


def test_groups_share_a_start_and_ids_are_explicit(corridor_suite):
    tasks = corridor_suite.tasks("train")
    steps = collect(tasks, ScriptedPolicy(walker), rules(), rng(), group_size=3, label="7/")
    assert {record.group for record in steps} == {"7/0/train/1", "7/1/train/3", "7/2/train/5"}
    assert len({record.trajectory for record in steps}) == 9
    assert len({(record.trajectory, record.step) for record in steps}) == len(steps)
    assert all(played[-1].won and len(played) == int(played[-1].task_id[-1]) + 1 for played in by_trajectory(steps))


def test_the_environments_of_a_group_and_no_others_are_reset_alike():
    class Seeded(Corridor):
        def reset(self, *, seed=None):
            observation, info = super().reset(seed=seed)
            return f"{seed} : {observation}", info

    steps = collect(
        [Task("t", "corridor", partial(Seeded, 1))] * 2, ScriptedPolicy(walker), rules(), rng(), group_size=3
    )
    starts = {(record.group, record.observation) for record in steps if record.step == 0}
    assert len(starts) == len({observation for _, observation in starts}) == 2


def test_only_live_environments_are_generated_for(corridor_suite):
    policy = CountingPolicy(walker)
    collect(corridor_suite.tasks("train"), policy, rules(), rng(), group_size=2)
    assert policy.batches == [6, 6, 4, 4, 2, 2]  # doors at 1, 3 and 5: two rollouts end after 2, 4 and 6 steps


def test_the_step_limit_truncates_and_is_not_a_win(corridor_suite):
    suite = LimitedSuite(corridor_suite, 4)
    steps = collect(suite.tasks("train"), ScriptedPolicy(walker), rules(), rng())
    ends = {record.task_id: record for record in steps if record.terminated or record.truncated}
    assert {task: (end.terminated, end.truncated, end.won) for task, end in ends.items()} == {
        "train/1": (True, False, True),
        "train/3": (True, False, True),
        "train/5": (False, True, False),
    }


def test_the_prompt_remembers_the_last_two_pairs(corridor_suite):
    steps = collect(corridor_suite.tasks("train")[1:2], ScriptedPolicy(walker), rules(), rng())
    assert steps[3].prompt == (
        "task : open the door at place 3 past : you are at place 1 > go right "
        "past : you are at place 2 > go right now : you are at place 3"
    )


def test_a_text_seen_in_two_states_is_told_apart_by_what_can_be_done(corridor_suite):
    def stumble(prompt, rng):
        return "fly" if prompt.count("past") == 1 else "go right"

    task = corridor_suite.tasks("train")[1:2]
    suite = LimitedSuite(corridor_suite, 4)
    published = collect(suite.tasks("train")[1:2], ScriptedPolicy(stumble), rules(), rng())
    steps = collect(suite.tasks("train")[1:2], ScriptedPolicy(stumble), rules(state="observation_and_commands"), rng())
    _, info = task[0].make().reset(seed=0)
    assert steps[0].observation == f"{published[0].observation}\nPossible: {', '.join(info['admissible_commands'])}"
    assert [step.prompt for step in steps] == [step.prompt for step in published]
    for before, after in pairwise(steps):
        assert before.next_observation == after.observation


def test_commands_that_the_environment_does_not_list_cannot_stand_for_the_state():
    class Silent(Corridor):
        def reset(self, *, seed=None):
            observation, info = super().reset(seed=seed)
            return observation, {key: value for key, value in info.items() if key != "admissible_commands"}

    task = Task("silent", "corridor", partial(Silent, goal=2))
    with pytest.raises(RolloutError, match=r"'silent'.*no admissible commands.*set rollout.state = 'observation'"):
        collect([task], ScriptedPolicy(walker), rules(state="observation_and_commands"), rng())


def test_rewards_penalties_and_admissibility(corridor_suite):
    def clumsy(prompt, rng):
        return (
            ""
            if prompt.endswith("place 0") and "past" not in prompt
            else "fly"
            if prompt.count("past") == 1
            else walker(prompt, rng)
        )

    [first, second, *_, last] = collect(
        corridor_suite.tasks("train")[:1],
        ScriptedPolicy(clumsy),
        rules(reward_scale=10.0, invalid_action_penalty=0.1),
        rng(),
    )
    assert (first.valid, first.fault, first.penalty, first.admissible) == (False, "empty", 0.1, False)
    assert (second.valid, second.penalty, second.admissible) == (True, 0.0, False)
    assert (last.reward, last.won, last.score, last.next_observation) == (10.0, True, 1.0, "you are at place 1")


def test_a_long_prompt_loses_its_oldest_memory_first_and_says_so(corridor_suite):
    policy = ScriptedPolicy(walker)
    policy.max_prompt_tokens = 25  # words, for a scripted policy: room for one pair
    steps = collect(corridor_suite.tasks("train")[1:2], policy, rules(), rng())
    assert [record.forgotten for record in steps] == [0, 0, 1, 1]
    assert "place 1 > go right" not in steps[3].prompt
    assert "place 2 > go right" in steps[3].prompt


def test_prompts_that_fit_are_rendered_once():
    policy, rendered = ScriptedPolicy(walker), []
    policy.max_prompt_tokens = 25

    def render(context):
        rendered.append(context.step)
        return TEMPLATES.get("compact").render(context)

    prompts = fit_prompts([AgentContext("leave", "a door", step) for step in range(3)], policy, render)
    assert rendered == [0, 1, 2]
    assert [prompt.forgotten for prompt in prompts] == [0, 0, 0]
    assert fit_prompts([], policy, render) == []


class BrokenReward(Corridor):
    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.reward, terminated, truncated, info


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "much"])
def test_a_reward_that_is_no_finite_number_names_task_and_step(reward):
    def make():
        environment = BrokenReward(goal=3)
        environment.reward = reward
        return environment

    with pytest.raises(EnvContractError, match=r"task 'broken'.*the reward a finite number; at step 1"):
        collect(checked(Task("broken", "corridor", make)), ScriptedPolicy(walker), rules(reward="environment"), rng())


@pytest.mark.parametrize("score", [math.nan, -math.inf, 1e308, "good"])
def test_a_score_that_is_no_share_names_the_task(score):
    class BrokenScore(Corridor):
        def _info(self, won):
            return {**super()._info(won), "score": score}

    with pytest.raises(EnvContractError, match=r"task 'broken'.*info\['score'\] a number from 0 to 1; at step 0"):
        collect(checked(Task("broken", "corridor", partial(BrokenScore, 3))), ScriptedPolicy(walker), rules(), rng())


class Endless(Corridor):
    """Goes on after the win, and says ever after that it is won."""

    won = False

    def step(self, action):
        observation, reward, terminated, _, info = super().step(action)
        self.won = self.won or terminated
        self.steps = getattr(self, "steps", 0) + 1
        return observation, reward, False, self.steps == 4, {**info, "won": self.won}


def test_a_win_is_paid_once():
    steps = collect([Task("endless", "corridor", partial(Endless, 1))], ScriptedPolicy(walker), rules(), rng())
    assert [step.won for step in steps] == [False, True, True, True]
    assert [step.reward for step in steps] == [0.0, 1.0, 0.0, 0.0]
    assert rollout_metrics(steps)["success"] == rollout_metrics(steps)["reward"] == 1.0


class Forgetful(Endless):
    """Goes on after the win, and says it in that step alone."""

    def step(self, action):
        before = self.won
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "won": info["won"] and not before}


def test_an_episode_that_was_won_stays_won():
    """For rewards, metrics, evaluations and estimators alike."""
    steps = collect([Task("forgetful", "corridor", partial(Forgetful, 1))], ScriptedPolicy(walker), rules(), rng())
    assert [step.reward for step in steps] == [0.0, 1.0, 0.0, 0.0]
    metrics = rollout_metrics(steps)
    assert (metrics["success"], metrics["score"], metrics["reward"]) == (1.0, 1.0, 1.0)
    assert [one.won for one in summarise_trajectories(steps, seed=0)] == [True]
    assert won(to_step_batch(steps)).tolist() == [True]


class Silent(Corridor):
    def _look(self):
        return None


def test_an_observation_that_is_no_text_names_the_task():
    with pytest.raises(
        EnvContractError, match=r"task 'silent': .*; at step 0 it returned an observation of type NoneType"
    ):
        collect(checked(Task("silent", "corridor", partial(Silent, 1))), ScriptedPolicy(walker), rules(), rng())


def test_a_group_needs_a_member(corridor_suite):
    with pytest.raises(ValueError, match="group_size must be at least 1"):
        collect(corridor_suite.tasks("train"), ScriptedPolicy(walker), rules(), rng(), group_size=0)


class AsyncWalker:
    """Answers each request after some turns of the event loop, so that no order can be relied on."""

    max_prompt_tokens = None
    numbers_per_response = 2

    def __init__(self, delay=0):
        self.delay, self.under_way, self.most, self.answered = delay, 0, 0, []

    def count_prompt_tokens(self, prompts):
        return [len(prompt.split()) for prompt in prompts]

    def take_weights(self, model):
        pass

    async def respond(self, request, *, temperature):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        generator = np.random.default_rng(request.seed)
        for _ in range(int(self.delay * generator.random())):
            await asyncio.sleep(0)
        self.under_way -= 1
        self.answered.append(request.prompt)
        text = walker(request.prompt, None) if generator.random() < 0.7 else "go left"
        return Response(text, NONE, NONE, NONE.astype(np.float32), finished=True)


NONE = np.empty(0, dtype=np.int32)


def test_with_a_policy_that_answers_in_its_own_time_no_episode_waits(corridor_suite):
    policy, done = AsyncWalker(delay=20), []
    tasks = LimitedSuite(corridor_suite, 12).tasks("train")
    steps = collect(tasks, policy, rules(), rng(), group_size=4, on_progress=lambda *count: done.append(count))
    assert policy.most == 12
    assert done == [(number, 12) for number in range(1, 13)]
    turns = [prompt.count("past") for prompt in policy.answered[:24]]
    assert turns != sorted(turns)  # some had their second answer before others had their first
    for before, after in pairwise(steps):
        assert after.step == (before.step + 1 if before.trajectory == after.trajectory else 0)


@pytest.mark.parametrize("policy", [AsyncWalker(), ScriptedPolicy(walker)], ids=["async", "batch"])
def test_every_step_is_told_as_soon_as_it_is_done(policy, corridor_suite):
    told, ended = [], []
    tasks = LimitedSuite(corridor_suite, 12).tasks("train")[:2]
    steps = collect(
        tasks,
        policy,
        rules(),
        rng(),
        on_step=told.append,
        on_progress=lambda done, total: ended.append((sum(step.terminated or step.truncated for step in told), done)),
    )
    assert {(step.trajectory, step.step) for step in told} == {(step.trajectory, step.step) for step in steps}
    assert len(told) == len(steps)
    assert all(over >= done for over, done in ended)


def test_which_answer_comes_first_changes_nothing(corridor_suite):
    tasks = LimitedSuite(corridor_suite, 12).tasks("train")
    prompt, slow = (collect(tasks, AsyncWalker(delay), rules(), rng(), group_size=4) for delay in (0, 20))
    assert [(step.trajectory, step.step, step.action) for step in prompt] == [
        (step.trajectory, step.step, step.action) for step in slow
    ]
    assert {step.action for step in prompt} == {"go left", "go right", "open door"}


def test_an_error_in_one_episode_ends_all_and_is_the_one_that_is_raised(corridor_suite):
    class Dying(AsyncWalker):
        async def respond(self, request, *, temperature):
            if "place 3 " in request.prompt:
                raise ConnectionError("the server is gone")
            return await super().respond(request, temperature=temperature)

    with pytest.raises(ConnectionError, match="the server is gone"):
        collect(corridor_suite.tasks("train"), Dying(), rules(), rng())


def test_an_async_policy_also_plays_where_a_loop_is_running(corridor_suite):
    async def notebook():
        return collect(corridor_suite.tasks("train")[:1], AsyncWalker(), rules(), rng())

    assert asyncio.run(notebook())


@pytest.mark.parametrize(
    ("log_probs", "batch_has"), [([-1.0, -0.5], -1.5), ([1e-6], 0.0), ([np.nan], None), ([-np.inf], None), ([], None)]
)
def test_a_batch_has_the_log_probs_of_responses_if_they_are_finite(log_probs, batch_has):
    task = Task("t", "corridor", partial(Corridor, 1))
    steps = collect(checked(task), ScriptedPolicy(walker), rules(), rng(), group_size=1)
    batch = to_step_batch([replace(step, log_probs=np.array(log_probs, np.float32)) for step in steps])
    found = batch.response_log_prob
    assert found is None if batch_has is None else found == pytest.approx([batch_has] * len(steps))
