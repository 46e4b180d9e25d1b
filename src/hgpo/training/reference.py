"""The frozen start policy that the divergence penalty measures from."""

from __future__ import annotations

import copy
from typing import Any

import torch

from hgpo.config import TrainingSettings
from hgpo.policies.adapters import has_adapter
from hgpo.policies.language_model import LanguageModel
from hgpo.policies.precision import computes_in_bfloat16


def reference_model(start: LanguageModel, trained: LanguageModel, settings: TrainingSettings) -> Any | None:
    """What `update_policy` takes as its reference; None where no divergence is measured.

    A model with an adapter is its own: without the adapter it is what it began as. Otherwise the start is held a second
    time, in the type that it computes in.

    Args:
        start: the policy before the first update.
        trained: what is trained, which may be that very object.
        settings: whether a reference is needed.
    """
    if not settings.kl_coefficient:
        return None
    if has_adapter(trained.model):
        return trained.model
    model = copy.deepcopy(start.model) if start is trained else start.model
    if computes_in_bfloat16(settings.precision, model.device, model.config):
        model = model.to(torch.bfloat16)
    return model.requires_grad_(False)
