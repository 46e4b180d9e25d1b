"""Steps of equal divergence, PPO with Adam, and what curves and cosines make of them."""

from __future__ import annotations

import numpy as np
import pytest

from hgpo.columns import FloatArray
from long_games.cells import cosines, curve
from long_games.contenders import CONTENDERS, ORACLE_CREDIT, advantages
from long_games.exact import action_shares, gradient, success, values
from long_games.families import generator, instance
from long_games.memory import Game
from long_games.play import play
from long_games.updates import PpoAdam, batch_gradient, divergence, equal_divergence


@pytest.fixture(scope="module")
def made() -> tuple[Game, FloatArray]:
    return instance("search", 1)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("budget", [0.001, 0.01, 0.3])
def test_a_step_diverges_as_far_as_was_asked(made: tuple[Game, FloatArray], scale: float, budget: float) -> None:
    """Whatever the scale of the advantages, and for policies that are certain."""
    drawn, start_KA = made
    for logit_KA in (start_KA, 200.0 * start_KA):
        share_KA = action_shares(logit_KA)
        played = play(drawn, share_KA, np.random.default_rng(0))
        direction_KA = np.zeros_like(share_KA)
        direction_KA[played.key] = np.random.default_rng(1).normal(size=(len(played.key), share_KA.shape[1]))
        changed_KA = equal_divergence(logit_KA, scale * direction_KA, played.key, budget)
        key_U, visits_U = np.unique(played.key, return_counts=True)
        moved = divergence(logit_KA[key_U], changed_KA[key_U], visits_U / visits_U.sum())
        np.testing.assert_allclose(moved, budget, rtol=1e-3)
        unseen = np.setdiff1d(np.arange(drawn.keys), key_U)
        assert (changed_KA[unseen] == logit_KA[unseen]).all()


def test_no_direction_moves_nothing(made: tuple[Game, FloatArray]) -> None:
    _, logit_KA = made
    assert (equal_divergence(logit_KA, np.zeros_like(logit_KA), np.zeros(3, dtype=int), 0.1) == logit_KA).all()


def test_the_batch_gradient_by_hand(made: tuple[Game, FloatArray]) -> None:
    drawn, logit_KA = made
    share_KA = action_shares(logit_KA)
    played = play(drawn, share_KA, np.random.default_rng(0), 1)
    advantage_N = np.random.default_rng(1).normal(size=len(played.key))
    expected = np.zeros_like(share_KA)
    for key, action, advantage in zip(played.key, played.action, advantage_N, strict=True):
        expected[key] -= advantage * share_KA[key] / played.size
        expected[key, action] += advantage / played.size
    np.testing.assert_allclose(batch_gradient(played, advantage_N, share_KA), expected, atol=1e-12)


def test_adam_climbs_and_stays_near(made: tuple[Game, FloatArray]) -> None:
    """The first pass moves every visited logit by about the rate; clipping holds the ratios of what was played."""
    drawn, logit_KA = made
    share_KA = action_shares(logit_KA)
    value_TN = values(drawn, share_KA)
    played = play(drawn, share_KA, np.random.default_rng(0))
    advantage_N = advantages(ORACLE_CREDIT, drawn, played, share_KA, value_TN)
    once = PpoAdam(0.05, epochs=1, parts=1).update(logit_KA, played, advantage_N, np.random.default_rng(0))
    moved = np.abs(once - logit_KA)
    assert 0.049 < moved.max() <= 0.05
    assert success(drawn, values(drawn, action_shares(once))) > success(drawn, value_TN)
    long = PpoAdam(0.05, epochs=60).update(logit_KA, played, advantage_N, np.random.default_rng(0))
    ratio = action_shares(long)[played.key, played.action] / share_KA[played.key, played.action]
    unclipped = PpoAdam(0.05, clip=1e9, epochs=60).update(logit_KA, played, advantage_N, np.random.default_rng(0))
    free = action_shares(unclipped)[played.key, played.action] / share_KA[played.key, played.action]
    assert np.median(np.abs(ratio - 1)) < 0.5 * np.median(np.abs(free - 1))


@pytest.mark.parametrize("step", [0.01, PpoAdam(0.05)])
def test_perfect_credit_learns(made: tuple[Game, FloatArray], step: float | PpoAdam) -> None:
    drawn, logit_KA = made
    found = curve(drawn, logit_KA, ORACLE_CREDIT, step, np.random.default_rng(0), 8)
    assert len(found) == 9
    assert found[0] == pytest.approx(0.3, abs=1e-5)
    assert found[-1] > 0.5


def test_curves_of_one_seed_are_one_curve(made: tuple[Game, FloatArray]) -> None:
    first, again = (curve(*made, "nested_td", 0.01, generator("search", 1, 2), 3) for _ in range(2))
    assert first == again


def test_the_cosine_of_the_mean_knows_its_noise(made: tuple[Game, FloatArray]) -> None:
    """Perfect credit points the right way: 1, although a batch and the plain mean of 30 are far from it."""
    drawn, logit_KA = made
    found = cosines(drawn, logit_KA, ORACLE_CREDIT, np.random.default_rng(0), 30)
    assert found["batch"] < 0.9
    assert found["mean"] == pytest.approx(1.0, abs=0.05)
    with pytest.raises(ValueError, match="at least 2 batches"):
        cosines(drawn, logit_KA, ORACLE_CREDIT, np.random.default_rng(0), 1)


def test_every_contender_is_different(made: tuple[Game, FloatArray]) -> None:
    drawn, logit_KA = made
    share_KA = action_shares(logit_KA)
    value_TN = values(drawn, share_KA)
    played = play(drawn, share_KA, np.random.default_rng(0))
    true = gradient(drawn, share_KA, value_TN)
    found = [
        batch_gradient(played, advantages(contender, drawn, played, share_KA, value_TN), share_KA)
        for contender in CONTENDERS
    ]
    normed = np.stack([one.ravel() / np.linalg.norm(one) for one in found])
    alike = normed @ normed.T - 2 * np.eye(len(found))
    assert alike.max() < 1 - 1e-9
    assert (normed @ true.ravel() > 0).all()
