"""Sketches of each sample's gradient, against autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hgpo.policies.weights import Adapter, add_adapter
from hgpo.training.batching import Sample
from hgpo.training.log_probs import token_log_probs
from tiny_models import tiny_model
from true_gradient.sketches import Sketcher, _add


def samples(number: int = 7) -> list[Sample]:
    """Of different lengths, the first two equal."""
    draws = np.random.default_rng(0)
    made = []
    for _ in range(number):
        prompt, response = (draws.integers(5, 30, size=draws.integers(1, most)) for most in (20, 6))
        nothing = np.zeros(len(response), dtype=np.float32)
        made.append(Sample(prompt.astype(np.int32), response.astype(np.int32), nothing, 0.0))
    return [made[0], *made]


def flat_gradients(model, sample, temperature) -> dict[int, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    token_log_probs(model, [sample], temperature=temperature, entropy="none").log_prob_BT.sum().backward()
    return {id(parameter): parameter.grad for parameter in model.parameters() if parameter.requires_grad}


def sketch_of_gradients(sketcher: Sketcher, sample: Sample, temperature: float) -> np.ndarray:
    """The sketch of autograd's gradient, float32[W]."""
    gradients, sketch_1W = flat_gradients(sketcher.model, sample, temperature), torch.zeros(1, sketcher.width)
    for key, buckets in sketcher._buckets.items():
        _add(sketch_1W, gradients[key].reshape(1, -1), buckets)
    return sketch_1W[0].numpy()


@pytest.mark.parametrize("width", [64, 50_000])
def test_sketches_are_those_of_autograd(width: int) -> None:
    model = tiny_model().model
    sketcher = Sketcher(model, width=width)
    found_BW = sketcher.of_samples(samples(), 1.3)
    for sample, found_W in zip(samples(), found_BW, strict=True):
        expected_W = sketch_of_gradients(sketcher, sample, 1.3)
        np.testing.assert_allclose(found_W, expected_W, atol=1e-4 * np.abs(expected_W).max())
    assert not any(layer._forward_hooks for layer in model.modules())


def test_a_wide_sketch_keeps_lengths_and_angles() -> None:
    model = tiny_model().model
    exact_BP = [
        torch.cat([gradient.reshape(-1) for gradient in flat_gradients(model, sample, 1.0).values()]).numpy()
        for sample in samples(3)[1:]
    ]
    sketched_BW = Sketcher(model, width=8192).of_samples(samples(3)[1:], 1.0)
    exact_BB, found_BB = (np.array(rows) @ np.array(rows).T for rows in (exact_BP, sketched_BW))
    length_B = np.sqrt(np.diag(exact_BB))
    lengths_BB = np.outer(length_B, length_B)
    np.testing.assert_allclose(found_BB / lengths_BB, exact_BB / lengths_BB, atol=0.05)


def test_only_the_chosen_parameters_count_such_as_those_of_an_adapter() -> None:
    model = add_adapter(tiny_model().model, Adapter(2, 4.0, 0.0, "all-linear"), seed=0)
    sketcher = Sketcher(model, trained=lambda name: "lora" in name, width=64)
    expected = [sketch_of_gradients(sketcher, sample, 1.0) for sample in samples(2)]
    np.testing.assert_allclose(sketcher.of_samples(samples(2), 1.0), expected, atol=1e-4)
