"""A device's arithmetic beside the CPU's on tiny models; without a device, what the comparison itself is worth."""

from __future__ import annotations

import copy

import pytest
import torch

from gpu.parity import log_prob_gaps, pretended_memory, update_gaps, update_in_little_memory
from tiny_models import tiny_model, tiny_samples

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_model_is_as_far_from_itself_as_it_was_from_its_samples() -> None:
    model, samples = tiny_model().model, tiny_samples(12)
    found = log_prob_gaps(model, model, samples, "float32")
    assert found["to_cpu"]["max"] == 0
    assert 0 < found["to_sampled"]["max"] < 1e-4
    assert found["holds"]
    assert update_gaps(model, model, samples, "float32")["relative_difference"] == 0


def test_another_model_does_not_pass() -> None:
    model, samples = tiny_model().model, tiny_samples(12)
    other = tiny_model(seed=1).model
    assert not log_prob_gaps(model, other, samples, "float32")["holds"]
    assert not update_gaps(model, other, samples, "float32")["holds"]


def test_too_little_memory_changes_nothing_but_rounding() -> None:
    model, samples = tiny_model().model, tiny_samples(12)
    found = update_in_little_memory(model, samples, pretended_memory)
    assert found["lowered"] >= 1
    assert found["holds"]


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_cuda_computes_what_the_cpu_computes(precision) -> None:
    host, samples = tiny_model().model, tiny_samples(12)
    device = copy.deepcopy(host).to("cuda")
    assert log_prob_gaps(host, device, samples, precision)["holds"]
    assert update_gaps(host, device, samples, precision)["holds"]
