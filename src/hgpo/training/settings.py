"""Settings of the policy update, whose defaults are those of the published recipe, and of the warm start."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator


class UpdateSettings(BaseModel):
    """How a batch of samples becomes optimiser steps (`hgpo.training.update.update_policy`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(1e-6, gt=0, description="AdamW learning rate, constant.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay, on every parameter.")
    mini_batch_size: int = Field(
        256, ge=1, description="Most samples per optimiser step. A batch is cut into equal parts no larger than this."
    )
    epochs: int = Field(1, ge=1, description="Passes over the batch.")
    clip_low: float = Field(0.2, ge=0, lt=1, description="The probability ratio is clipped from below at 1 - clip_low.")
    clip_high: float = Field(0.2, ge=0, description="The probability ratio is clipped from above at 1 + clip_high.")
    dual_clip: float | None = Field(
        3.0, gt=1, description="Bound on the ratio where the advantage is negative; none switches it off."
    )
    kl_coefficient: float = Field(
        0.01,
        ge=0,
        description="Weight of the k3 (low_var_kl) divergence from the frozen start model; 0: none.",
    )
    entropy_coefficient: float = Field(0.001, ge=0, description="Weight of the entropy bonus.")
    max_gradient_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this L2 norm.")
    micro_batch_tokens: int = Field(
        8_192,
        ge=1,
        description="Most tokens (padding included) per forward and backward pass. Bounds memory, not the update.",
    )
    skip_zero_advantage: bool = Field(
        False,
        description="Leave out samples whose advantage is exactly 0: only the KL and entropy terms would act on them.",
    )
    skip_cut_responses: bool = Field(
        False,
        description="Leave out responses that were cut at the length limit (DAPO's overlong filtering): they are long, "
        "and praising one teaches the policy not to stop.",
    )
    recompute_log_probs: bool = Field(
        False,
        description="Take the old log-probs from a fresh forward pass instead of those recorded while sampling. "
        "Use it where sampling runs in another precision or engine than training.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Arithmetic of sampling and scoring; auto: bfloat16 on CUDA, else float32. Weights stay float32.",
    )

    @field_validator("dual_clip", mode="before")
    @classmethod
    def _none_can_be_written(cls, value: object) -> object:
        """TOML has no null, so "none" stands for it."""
        return None if value == "none" else value


class WarmStartSettings(BaseModel):
    """Supervised fine-tuning up to a success rate that leaves room to learn (`hgpo.training.warm_start`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float = Field(1e-3, gt=0, description="AdamW learning rate after the warm-up.")
    warmup_updates: int = Field(20, ge=0, description="Updates over which the learning rate rises linearly.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW weight decay.")
    batch_size: int = Field(64, ge=1, description="Demonstrated steps per update.")
    max_gradient_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this L2 norm.")
    micro_batch_tokens: int = Field(
        8_192, ge=1, description="Most tokens (padding included) per forward and backward pass."
    )
    max_updates: int = Field(2_000, ge=1, description="Most supervised updates, those rolled back included.")
    evaluate_every: int = Field(100, ge=1, description="Supervised updates between evaluations; halved when overshot.")
    target_low: float = Field(0.35, ge=0, le=1, description="Stop once success is between this and target_high.")
    target_high: float = Field(0.50, ge=0, le=1, description="Success above this is an overshoot and is rolled back.")

    @model_validator(mode="after")
    def _window_is_not_empty(self) -> Self:
        if self.target_low > self.target_high:
            raise ValueError(f"target_low {self.target_low} exceeds target_high {self.target_high}")
        return self
