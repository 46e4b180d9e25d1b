from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen3Config, Qwen3ForCausalLM

from hgpo.config import Config, load_config
from hgpo.training.memory_plan import estimate_run, outline_of, outline_of_model
from tiny_models import tiny_model

CPU = torch.device("cpu")


def config(*overrides: str) -> Config:
    return load_config(None, ["warm_start.enabled=true", *overrides])


def test_an_outline_has_every_parameter_and_no_weights(tmp_path) -> None:
    model = tiny_model().model
    model.save_pretrained(tmp_path)
    outline = outline_of(config(f"policy.model={str(tmp_path)!r}"))
    assert outline == outline_of_model(model)
    assert outline.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (outline.shape.hidden_size, outline.shape.layers, outline.shape.key_value_heads) == (32, 2, 2)
    (tmp_path / "model.safetensors").unlink()
    assert outline_of(config(f"policy.model={str(tmp_path)!r}")) == outline


def test_a_tiny_model_is_outlined_before_it_is_built() -> None:
    outline = outline_of(config("policy.tiny.hidden_size=96", "policy.tiny.layers=3"))
    assert (outline.shape.hidden_size, outline.shape.layers) == (96, 3)
    assert outline.parameters < 5_000_000


def test_what_a_configuration_does_not_name_is_as_in_a_llama() -> None:
    with torch.device("meta"):
        shape = outline_of_model(GPT2LMHeadModel(GPT2Config(n_embd=48, n_head=4, n_layer=2))).shape
        assert (shape.key_value_heads, shape.head_size, shape.intermediate_size) == (4, 12, 192)
        assert not shape.head_norms
        qwen3 = Qwen3ForCausalLM(Qwen3Config(hidden_size=64, num_attention_heads=4, num_hidden_layers=1, head_dim=32))
        assert outline_of_model(qwen3).shape.head_norms
        assert outline_of_model(qwen3).shape.head_size == 32


def test_a_sampler_with_weights_of_its_own_counts_them_again() -> None:
    own, shared = (
        estimate_run(one, outline_of(one), CPU).phases["sampling"]
        for one in (config("policy.backend=vllm", "training.precision=float32"), config())
    )
    assert own["sampler's weights"] == own["weights"]
    assert "sampler's weights" not in shared


@pytest.mark.parametrize(
    ("less", "more", "phase"),
    [
        ("training.micro_batch_tokens=1024", "training.micro_batch_tokens=8192", "update"),
        ("training.max_logits=2000000", "training.max_logits=20000000", "update"),
        ("training.gradient_checkpointing=true", "training.gradient_checkpointing=false", "update"),
        ("training.precision=bfloat16", "training.precision=float32", "update"),
        ("policy.lora.rank=16", "policy.lora.rank=0", "update"),
        ("policy.lora.rank=16", "policy.lora.rank=0", "warm start"),
        ("training.kl_coefficient=0", "training.kl_coefficient=0.1", "update"),
        ("training.entropy_coefficient=0", "training.entropy_coefficient=0.1", "update"),
        ("training.mini_batch_size=2", "training.mini_batch_size=20", "update"),
        ("policy.max_response_tokens=16", "policy.max_response_tokens=2000", "sampling"),
        ("policy.options.max_batch_size=2", "policy.options.max_batch_size=20", "sampling"),
        ("policy.options.max_batch_tokens=4000", "policy.options.max_batch_tokens=40000", "sampling"),
        ("warm_start.batch_size=2", "warm_start.batch_size=20", "warm start"),
        ("warm_start.micro_batch_tokens=1000", "warm_start.micro_batch_tokens=8000", "warm start"),
    ],
)
def test_settings_that_bound_memory_are_read(less, more, phase) -> None:
    roomy = ("policy.max_prompt_tokens=512", "policy.tiny.hidden_size=256", "policy.options.max_batch_tokens=262144")
    settings = [config(*roomy, change) for change in (less, more)]
    smaller, larger = (sum(estimate_run(one, outline_of(one), CPU).phases[phase].values()) for one in settings)
    assert smaller < larger - 2**16


def test_few_episodes_make_small_batches() -> None:
    few = config("rollout.tasks_per_update=1", "rollout.group_size=2", "evaluation.games=2", "warm_start.probe_games=2")
    many = config()
    sizes = [estimate_run(one, outline_of(one), CPU).phases["sampling"]["sampler"] for one in (few, many)]
    assert sizes[0] < sizes[1] / 5
