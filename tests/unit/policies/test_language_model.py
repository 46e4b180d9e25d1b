"""Model and tokenizer together."""

import json

import numpy as np
import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.tiny import build_model, build_tokenizer
from hgpo.training.batching import Sample
from hgpo.training.log_probs import response_log_probs
from tiny_models import generate, save_tiny_model, tiny_model

LIMITS = GenerationLimits(prompt_tokens=40, response_tokens=8)


def language_model(words, vocabulary):
    tokenizer = build_tokenizer([words])
    model = build_model(vocabulary, hidden_size=16, layers=1, heads=2, max_tokens=48, initializer_range=0.5)
    return LanguageModel.of(model, tokenizer, LIMITS)


def test_a_tokenizer_with_more_tokens_than_the_model_is_another_models():
    known = len(build_tokenizer(["go left"]))
    with pytest.raises(
        ValueError, match=rf"has {known} tokens and the model embeds {known - 1}: tokenizer and model do not"
    ):
        language_model("go left", known - 1).model  # noqa: B018  # loads it


def test_so_is_one_whose_chat_tokens_lie_beyond():
    tokenizer = tiny_model().tokenizer
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|beyond|>"]})
    tokenizer.chat_template = "<|beyond|>" + tokenizer.chat_template
    model = LanguageModel.of(tiny_model().model, tokenizer, LIMITS)
    with pytest.raises(ValueError, match="tokenizer and model do not match"):
        model.model  # noqa: B018


def test_a_model_that_embeds_more_than_its_tokenizer_plays_and_is_scored():
    """Many are padded to a round number; what is drawn beyond the tokenizer is no text."""
    policy = TransformersPolicy(language_model("go left", 200))
    responses = generate(policy, ["go left"] * 8)
    drawn = np.concatenate([response.token_ids for response in responses])
    assert (drawn >= len(policy.language_model.tokenizer)).any()
    samples = [Sample(one.prompt_ids, one.token_ids, one.log_probs, 0.0) for one in responses]
    for sample, found in zip(samples, response_log_probs(policy.language_model.model, samples), strict=True):
        np.testing.assert_allclose(found, sample.log_probs, atol=1e-4)


def test_lengths_beyond_the_models_positions_are_refused():
    model = tiny_model(max_prompt_tokens=60, max_response_tokens=8)
    with pytest.raises(ValueError, match=r"60 . policy.max_response_tokens 8 exceed the model's 64 positions"):
        TransformersPolicy(model)


def test_positions_of_a_model_that_reads_pictures_count_too():
    tiny = tiny_model(max_prompt_tokens=60)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": len(tiny.tokenizer), "head_dim": 8, "max_position_embeddings": 64}
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config={**sizes, "image_size": 28})
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match="exceed the model's 64 positions"):
        TransformersPolicy(LanguageModel.of(model, tiny.tokenizer, tiny.limits))


def test_positions_that_a_model_scales_by_the_length_of_a_batch_are_not_used():
    tiny = tiny_model(max_prompt_tokens=56)
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for original in (63, 64):
        config = AutoConfig.for_model(
            "phi3",
            vocab_size=len(tiny.tokenizer),
            max_position_embeddings=128,
            original_max_position_embeddings=original,
            rope_parameters={**rope, "original_max_position_embeddings": original},
            pad_token_id=0,
            **sizes,
        )
        language_model = LanguageModel.of(AutoModelForCausalLM.from_config(config), tiny.tokenizer, tiny.limits)
        if original == 64:
            TransformersPolicy(language_model)
        else:
            with pytest.raises(ValueError, match="exceed the model's 63 positions"):
                TransformersPolicy(language_model)


@pytest.mark.parametrize("flaw", [{"temperature": 0.6, "top_p": 0.9}, {"pad_token_id": -1}])
def test_a_model_whose_generation_config_transformers_would_not_save_is_saved(tmp_path, flaw):
    folder = save_tiny_model(tmp_path / "model", ["go left"], hidden_size=16, layers=1, heads=2)
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | flaw))
    model = LanguageModel.from_pretrained(folder, device="cpu").model
    model.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "generation_config.json").read_text())
    assert saved["eos_token_id"] == model.config.eos_token_id
    assert saved.get("temperature") == flaw.get("temperature")


def test_a_change_of_the_model_is_made_when_it_is_asked_for():
    made = []
    changed = tiny_model().changed(lambda model: made.append(model) or model)
    assert not made
    assert changed.model is changed.model is made[0]
    assert len(made) == 1


def test_where_it_is_saved_its_generation_config_names_every_end_token(tmp_path):
    """Else `generate` elsewhere would write on after an end that only the tokenizer names."""
    tokenizer, model = build_tokenizer(["go left"]), build_model(64, hidden_size=16, layers=1, heads=2, max_tokens=48)
    ends = sorted({tokenizer.eos_token_id, 5})
    model.generation_config.eos_token_id = 5
    LanguageModel.of(model, tokenizer, LIMITS).model.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "generation_config.json").read_text())
    assert saved["eos_token_id"] == ends
    assert len(ends) == 2
