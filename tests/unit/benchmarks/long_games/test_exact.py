"""The games are what they say, and what is called exact is."""

from __future__ import annotations

import numpy as np
import pytest

from hgpo.columns import FloatArray
from long_games.contenders import DISCOUNTED_BASELINE, ORACLE_BASELINE, ORACLE_CREDIT, advantages
from long_games.exact import action_shares, action_values, gradient, success, values
from long_games.families import (
    FAMILIES,
    NOTHING,
    OPEN,
    PUT,
    START_SUCCESS,
    TABLE,
    TAKE,
    NoSuchStart,
    instance,
    start_logits,
)
from long_games.memory import Game, game
from long_games.play import Played, play, step_batch
from long_games.rules import LOST, WON, Rules
from long_games.updates import batch_gradient

SMALL = Rules(
    2,
    3,
    ((0, 0), (1, 0)),
    lambda state, action: (
        ((0.75, (state[0], 1)), (0.25, LOST))
        if state[1] == 0
        else ((1.0, WON if action == state[0] else (state[0], 0)),)
    ),
    lambda state: state[1],
)
"""Two rooms, two goals: the first room is left with luck, in the second the action of the goal's number wins."""


def exact_success(small: Game, logit_KA: FloatArray) -> float:
    return success(small, values(small, action_shares(logit_KA)))


FIRST, *OTHERS = FAMILIES


@pytest.fixture(scope="module", params=[FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(family: str) -> tuple[Game, FloatArray]:
    return instance(family, 0)


def test_by_hand() -> None:
    """Even odds: .75 to get to the second room, half a win there, and no time to come back."""
    small = game(SMALL)
    np.testing.assert_allclose(exact_success(small, np.zeros((small.keys, 2))), 0.75 / 2)
    assert small.world.observations == 2


def test_a_start_wins_three_games_in_ten(made: tuple[Game, FloatArray]) -> None:
    drawn, logit_KA = made
    assert abs(exact_success(drawn, logit_KA) - START_SUCCESS) < 1e-6
    assert len(drawn.start) == 16


def test_the_gradient_is_that_of_the_success(made: tuple[Game, FloatArray]) -> None:
    """Against differences along three random directions and along the gradient itself."""
    drawn, logit_KA = made
    share_KA = action_shares(logit_KA)
    found = gradient(drawn, share_KA, values(drawn, share_KA))
    directions = [found, *np.random.default_rng(1).normal(size=(3, *found.shape))]
    for direction in directions:
        nudge = 1e-5 * direction / np.linalg.norm(direction)
        slope = (exact_success(drawn, logit_KA + nudge) - exact_success(drawn, logit_KA - nudge)) / 2e-5
        np.testing.assert_allclose((found * direction).sum() / np.linalg.norm(direction), slope, rtol=1e-4, atol=1e-8)


def test_every_entry_of_a_small_gradient() -> None:
    small = game(SMALL)
    logit_KA = np.random.default_rng(2).normal(size=(small.keys, 2))
    share_KA = action_shares(logit_KA)
    found = gradient(small, share_KA, values(small, share_KA))
    for k, a in np.ndindex(found.shape):
        nudge = np.zeros_like(logit_KA)
        nudge[k, a] = 1e-5
        slope = (exact_success(small, logit_KA + nudge) - exact_success(small, logit_KA - nudge)) / 2e-5
        np.testing.assert_allclose(found[k, a], slope, atol=1e-9)


def many(drawn: Game, logit_KA: FloatArray, rollouts: int) -> tuple[Played, FloatArray, FloatArray]:
    share_KA = action_shares(logit_KA)
    return play(drawn, share_KA, np.random.default_rng(3), rollouts), share_KA, values(drawn, share_KA)


def test_as_many_games_are_won_as_is_exact(made: tuple[Game, FloatArray]) -> None:
    played, _, _ = many(*made, 300)
    assert abs(played.won.mean() - START_SUCCESS) < 4 * np.sqrt(0.3 * 0.7 / played.size)


@pytest.mark.slow
@pytest.mark.parametrize("oracle", [ORACLE_BASELINE, ORACLE_CREDIT])
def test_the_oracles_mean_gradient_is_the_exact_one(made: tuple[Game, FloatArray], oracle: str) -> None:
    """Every batch's error has mean 0: projected on random directions it stays within 4 standard errors."""
    drawn, logit_KA = made
    share_KA = action_shares(logit_KA)
    value_TN = values(drawn, share_KA)
    true, number = gradient(drawn, share_KA, value_TN), np.random.default_rng(4)
    directions_DK = np.stack([true.ravel(), *number.normal(size=(4, true.size))])
    directions_DK /= np.linalg.norm(directions_DK, axis=1, keepdims=True)
    off_BD = []
    for _ in range(30):
        played = play(drawn, share_KA, number, 25)
        advantage_N = advantages(oracle, drawn, played, share_KA, value_TN)
        off_BD.append(directions_DK @ (batch_gradient(played, advantage_N, share_KA) - true).ravel())
    error_D = np.std(off_BD, axis=0, ddof=1) / np.sqrt(30)
    assert (np.abs(np.mean(off_BD, axis=0)) < 4 * error_D).all()
    assert (error_D[0] < 0.15 * np.linalg.norm(true)).all()


def test_values_are_what_later_steps_earn(made: tuple[Game, FloatArray]) -> None:
    drawn, logit_KA = made
    played, share_KA, value_TN = many(drawn, logit_KA, 10)
    at = (played.time, played.node)
    q_NA = np.stack(
        [action_values(drawn, value_TN, *at, np.full(len(played.key), a)) for a in range(drawn.rules.actions)], axis=1
    )
    np.testing.assert_allclose((share_KA[played.key] * q_NA).sum(axis=1), value_TN[at], atol=1e-12)


def test_what_an_estimator_sees(made: tuple[Game, FloatArray]) -> None:
    """Groups are tasks, a won game pays once, at its last step, and what is seen is what was seen."""
    drawn, logit_KA = made
    played, share_KA, _ = many(drawn, logit_KA, 3)
    batch = step_batch(drawn, played, share_KA)
    assert batch.reward.sum() == played.won.sum()
    assert (batch.reward[batch.order][batch.trajectory_start[1:] - 1] == played.won).all()
    seen = np.array(batch.labels["observation"])[batch.observation]
    assert (seen == drawn.observation[played.node]).all()
    goes_on = np.flatnonzero(played.trajectory[1:] == played.trajectory[:-1])
    assert (batch.next_observation[goes_on] == batch.observation[goes_on + 1]).all()
    assert batch.response_log_prob == pytest.approx(np.log(share_KA[played.key, played.action]))
    cut = np.bincount(played.trajectory, weights=batch.truncated) == 1
    assert (
        cut
        == (np.bincount(played.trajectory) == drawn.rules.horizon)
        & (played.next[batch.trajectory_start[1:] - 1] < len(drawn.key))
    ).all()


def test_equal_keys_are_equal_pasts(made: tuple[Game, FloatArray]) -> None:
    """The key of a step is its goal, observation and the two pairs before it, no more and no less."""
    drawn, logit_KA = made
    played, _, _ = many(drawn, logit_KA, 20)
    goal_N = drawn.world.goal[drawn.state[played.node]]
    past: dict[tuple[int, ...], int] = {}
    for row, key in enumerate(played.key):
        first = row - min(2, int(played.time[row]))
        pairs = [(int(drawn.observation[played.node[r]]), int(played.action[r])) for r in range(first, row)]
        known = (int(goal_N[row]), int(drawn.observation[played.node[row]]), *np.ravel(pairs).astype(int).tolist())
        assert past.setdefault(known, int(key)) == key
    assert len(set(past.values())) == len(past)


@pytest.mark.slow
def test_instances_differ_and_come_again(family: str, made: tuple[Game, FloatArray]) -> None:
    first, again, other = made[1], instance(family, 0)[1], instance(family, 1)[1]
    assert (first == again).all()
    assert first.shape != other.shape or (first != other).any()


def test_a_start_that_cannot_be_is_refused() -> None:
    sure = Rules(2, 1, ((0, 0),), lambda state, action: ((1.0, WON),), lambda state: 0)
    with pytest.raises(NoSuchStart, match=r"the noise alone wins 1\.00"):
        start_logits(game(sure), np.random.default_rng(0))
    hopeless = Rules(2, 1, ((0, 0),), lambda state, action: ((1.0, LOST),), lambda state: 0)
    with pytest.raises(NoSuchStart, match=r"wins only 0\.00"):
        start_logits(game(hopeless), np.random.default_rng(0))
    with pytest.raises(ValueError, match="unknown family 'chess'"):
        instance("chess", 0)


def test_outcomes_must_add_up() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        game(Rules(1, 1, ((0, 0),), lambda state, action: ((0.5, WON),), lambda state: 0))


def test_the_household_says_nothing_happens() -> None:
    rules = FAMILIES["household"](np.random.default_rng(0))
    state = rules.starts[0]
    thing = state[2]

    def after(*actions: int) -> object:
        now = state
        for action in actions:
            ((_, now),) = rules.step(now, action)
        return now if now == WON else rules.observe(now)

    assert after(OPEN) == after(TAKE) == after(thing, OPEN, OPEN) == after(TABLE, PUT) == (NOTHING,)
    assert after(thing, OPEN, TAKE, TABLE, PUT) == WON


def test_the_discounted_oracle_expects_what_is_earned(made: tuple[Game, FloatArray]) -> None:
    """Its advantages have mean 0 at every time: what a step earns later, discounted, against what is expected."""
    drawn, logit_KA = made
    played, share_KA, value_TN = many(drawn, logit_KA, 300)
    advantage_N = advantages(DISCOUNTED_BASELINE, drawn, played, share_KA, value_TN)
    for time in (0, 2):
        here = advantage_N[played.time == time]
        assert abs(here.mean()) < 4 * here.std() / np.sqrt(len(here))
    last = np.flatnonzero(played.time == played.time.max())
    discounted = values(drawn, share_KA, 0.5)
    at = (played.time[last], played.node[last])
    if played.time.max() == drawn.rules.horizon - 1:
        np.testing.assert_allclose(discounted[at], value_TN[at], atol=1e-12)
