"""What the divergence is measured from."""

import torch

from hgpo.policies.weights import Adapter, add_adapter
from hgpo.training.start_policy import reference_model
from tiny_models import tiny_model


def test_a_model_that_is_trained_in_place_is_copied_and_frozen():
    start = tiny_model()
    reference = reference_model(start, start)
    assert reference is not start.model
    assert not any(parameter.requires_grad for parameter in reference.parameters())
    assert all(parameter.requires_grad for parameter in start.model.parameters())
    assert reference.dtype == torch.float32


def test_it_is_held_as_it_computes():
    start, restored = tiny_model(), tiny_model()
    reference = reference_model(start, restored, "bfloat16")
    assert reference is start.model
    assert reference.dtype == torch.bfloat16
    assert restored.model.dtype == torch.float32


def test_a_model_with_an_adapter_is_its_own():
    start = tiny_model()
    trained = start.changed(lambda model: add_adapter(model, Adapter(2, 4), seed=0))
    assert reference_model(start, trained) is trained.model
