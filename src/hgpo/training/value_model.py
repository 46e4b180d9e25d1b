"""The model of a critic: one value per prompt, from a scalar head at the prompt's last token.

    critic/    a separate model in Hugging Face format, or its adapter; neither if the policy's model is shared
               value_head.safetensors    weight, bias; mean and std of the targets (`ReturnScale`)

Shape suffixes: B prompts, H hidden size, N steps. Sources: PPO, arXiv 1707.06347; rescaling of the head, van Hasselt et
al. 2016 (PopArt), arXiv 1602.07714, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from hgpo.columns import FloatArray
from hgpo.policies.base import TokenIds
from hgpo.policies.cache import last_columns
from hgpo.policies.weights import base_model, has_adapter, save_adapter
from hgpo.training.batching import Sample, distinct, lay_out_trees, pack
from hgpo.training.log_probs import at_prompt_ends, lay_out, recomputed_layers
from hgpo.training.losses import explained_variance

FOLDER = "critic"
HEAD_FILE = "value_head.safetensors"
_RATE = 0.1  # weight of a new batch in the running statistics
_SMALLEST_STD = 1e-4  # replaces the std of equal targets, so that a division by it stays finite


@dataclass(frozen=True, slots=True)
class ReturnScale:
    """Running mean and standard deviation of a critic's targets, which normalise targets and values.

    Attributes:
        mean: units of the reward.
        std: units of the reward, at least 1e-4.
        empty: whether there were no targets yet.
    """

    mean: float = 0.0
    std: float = 1.0
    empty: bool = True

    def updated(self, target_N: FloatArray) -> ReturnScale:
        """The statistics after another batch: those of the first batch, then moving averages with weight 0.1."""
        rate = 1.0 if self.empty else _RATE
        mean = (1 - rate) * self.mean + rate * float(target_N.mean())
        square = (1 - rate) * (self.std**2 + self.mean**2) + rate * float((target_N**2).mean())
        return ReturnScale(mean, max(sqrt(max(square - mean**2, 0.0)), _SMALLEST_STD), empty=False)

    def change_to(self, after: ReturnScale) -> tuple[float, float]:
        """(factor, shift) that turn values normalised by this scale into those normalised by `after`."""
        return self.std / after.std, (self.mean - after.mean) / after.std

    def normalised(self, value_N: FloatArray) -> NDArray[np.float32]:
        """Values in units of the standard deviation, float32[N]."""
        return ((value_N - self.mean) / self.std).astype(np.float32)

    def restored(self, normal_N: NDArray[np.float32]) -> FloatArray:
        """Values in units of the reward, float64[N]."""
        return normal_N.astype(np.float64) * self.std + self.mean


class ValueModel(torch.nn.Module):
    """Layers of a causal language model with a scalar head, float32, which starts at 0.

    Attributes:
        layers: the causal language model whose hidden states the head reads; its own output layer is not used.
        shared: whether `layers` is the policy's model, whose parameters are then left out of `parameters()`.
        head: hidden states -> normalised value.
        scale: mean and std of the targets.
    """

    def __init__(self, layers: Any, *, shared: bool) -> None:
        super().__init__()
        self._layers = [layers]  # a list hides the policy's parameters from `parameters()`
        self.shared, self.scale = shared, ReturnScale()
        if not shared:
            self.own = layers
            output = layers.get_output_embeddings()
            if output is not None and output.weight is not layers.get_input_embeddings().weight:
                output.weight.requires_grad_(False)
        self.head = torch.nn.Linear(layers.config.get_text_config().hidden_size, 1, device=layers.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    @property
    def layers(self) -> Any:
        """The causal language model whose hidden states the head reads."""
        return self._layers[0]

    def trained_parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that the critic's own optimiser changes."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def normal_values(self, state_BH: torch.Tensor) -> torch.Tensor:
        """Normalised values of hidden states at the ends of prompts, [B] in the head's type."""
        value_B: torch.Tensor = self.head(state_BH.to(self.head.weight.dtype)).squeeze(-1)
        return value_B

    @torch.no_grad()
    def rescale(self, target_N: FloatArray) -> None:
        """Update the statistics by a batch of targets, and the head so that no value changes (PopArt)."""
        after = self.scale.updated(target_N)
        factor, shift = self.scale.change_to(after)
        self.head.weight.mul_(factor)
        self.head.bias.mul_(factor).add_(shift)
        self.scale = after

    def save(self, folder: Path) -> None:
        """Write `folder`/critic."""
        place = folder / FOLDER
        place.mkdir()
        if not self.shared and has_adapter(self.layers):
            save_adapter(self.layers, place)
        elif not self.shared:
            self.layers.save_pretrained(place)
        statistics = torch.tensor([self.scale.mean, self.scale.std], dtype=torch.float64)
        tensors = {"weight": self.head.weight, "bias": self.head.bias, "mean_and_std": statistics}
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, place / HEAD_FILE)

    @torch.no_grad()
    def load_head(self, folder: Path) -> None:
        """Read the head and the statistics from `folder`/critic."""
        tensors = load_file(folder / FOLDER / HEAD_FILE)
        self.head.weight.copy_(tensors["weight"])
        self.head.bias.copy_(tensors["bias"])
        mean, std = tensors["mean_and_std"].tolist()
        self.scale = ReturnScale(mean, std, empty=False)


def prompt_end_states(
    model: Any, samples: Sequence[Sample], *, recompute_layers: bool = False, row_tokens: int | None = None
) -> torch.Tensor:
    """Hidden states at the last token of each sample's prompt, [B, H], with gradients if autograd is enabled.

    The output layer is not computed. For a `prompt_sample`, the model computes only the prompt.

    Args:
        model: a causal language model.
        samples: samples whose prompts are read.
        recompute_layers: keep only the inputs of layers for the backward pass.
        row_tokens: width of rows that samples share; None: one row per sample.
    """
    first, place_B = distinct(samples)
    chosen = [samples[row] for row in first]
    body = base_model(model).base_model
    with recomputed_layers(model, recompute_layers):
        if row_tokens is None:
            inputs, token_BT, _ = lay_out(chosen, model.device)
            columns = last_columns(model, token_BT.shape[1])
            state_UH = body(**inputs, **columns).last_hidden_state[:, -token_BT.shape[1]]
        else:
            packed = lay_out_trees(chosen, pack(chosen, row_tokens), model.device)
            length_U = np.array([len(sample.response_ids) for sample in chosen])
            state_UH = at_prompt_ends(body(**packed.inputs).last_hidden_state, packed, length_U)
    state_BH: torch.Tensor = state_UH[torch.from_numpy(place_B).to(model.device)]
    return state_BH


def value_figures(target_N: FloatArray, value_N: FloatArray) -> dict[str, float]:
    """Figures about the values before an update; docs/reference/metrics.md explains them."""
    return {
        "explained_variance": explained_variance(target_N, value_N),
        "value_mean": float(value_N.mean()),
        "value_target_mean": float(target_N.mean()),
    }


def prompt_sample(prompt_ids: TokenIds) -> Sample:
    """A prompt as a sample with one dummy response token, which is not part of the model's input."""
    return Sample(prompt_ids, np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.float32), 0.0)
