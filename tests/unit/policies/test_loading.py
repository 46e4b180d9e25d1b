import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from hgpo.policies.language_model import LanguageModel
from hgpo.policies.loading import IncompleteModelError, check_source, load_model, load_tokenizer, resolve_device
from tiny_models import WORDS, save_tiny_model


@pytest.fixture
def folder(tmp_path):
    return save_tiny_model(tmp_path / "model", [" ".join(WORDS)], hidden_size=16, layers=1, heads=2, max_tokens=64)


def edited(folder, edit):
    """The weights in the folder, changed by `edit`."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})
    return folder


def test_a_whole_model_is_loaded(folder):
    model = load_model(folder, device="cpu", dtype="float32")
    assert not model.training
    assert model.dtype == torch.float32
    assert load_tokenizer(folder).chat_template


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gemma2", {"head_dim": 8, "attn_logit_softcapping": 0.1, "initializer_range": 0.5}),
        ("gpt_oss", {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("llama", {}),
    ],
)
def test_attention_is_pytorchs_where_it_computes_the_same(family, options, tmp_path):
    config = AutoConfig.for_model(
        family,
        vocab_size=20,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        **options,
    )
    stored = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    stored.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"attn_implementation": "flash_attention_2"}))
    loaded, ids = load_model(tmp_path, device="cpu", dtype="float32"), torch.arange(10)[None]
    assert loaded.config._attn_implementation == ("sdpa" if family == "llama" else "eager")
    torch.testing.assert_close(loaded(input_ids=ids).logits, stored(input_ids=ids).logits)


def test_missing_weights_are_an_error_that_names_them(folder):
    gone = ["model.layers.0.mlp.down_proj.weight", "model.layers.0.self_attn.q_proj.weight"]
    edited(folder, lambda weights: [weights.pop(name) for name in gone])
    with pytest.raises(IncompleteModelError, match=f"lacks the weights {', '.join(gone)}; it is damaged"):
        load_model(folder, device="cpu")


def test_surplus_weights_are_an_error_that_names_the_first_of_them(folder):
    edited(folder, lambda weights: weights.update({f"model.adapter.{row}": torch.zeros(2) for row in range(8)}))
    with pytest.raises(IncompleteModelError, match=r"the model does not know: model\.adapter\.0, .*4 and 3 more"):
        load_model(folder, device="cpu")


def test_weights_of_another_shape_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 8}))
    with pytest.raises(IncompleteModelError, match=f"{folder} has weights of another shape: model.layers.0.mlp"):
        load_model(folder, device="cpu")


def test_a_language_model_of_a_damaged_folder_fails_when_its_weights_are_asked_for(folder):
    language_model = LanguageModel.from_pretrained(edited(folder, lambda weights: weights.popitem()), device="cpu")
    with pytest.raises(IncompleteModelError, match="lacks the weights"):
        _ = language_model.model


def test_a_revision_is_for_names_of_the_hub(folder):
    with pytest.raises(ValueError, match=r"policy\.revision = 'main' needs a hub name, but .*model is on this"):
        load_model(folder, revision="main")


@pytest.mark.parametrize("load", [load_tokenizer, load_model])
def test_a_model_that_is_nowhere_is_named(load, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(OSError, match="nobody/nowhere"):
        load("nobody/nowhere")


def test_a_gguf_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no such file: .*nothing\.gguf"):
        load_model(tmp_path / "nothing.gguf")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", "[" * 100_000),
        ("tokenizer_config.json", "[" * 100_000),
        ("config.json", "[" * 100_000),
        ("generation_config.json", "null"),
    ],
)
def test_a_file_that_transformers_did_not_expect_is_an_error_that_names_the_model(folder, name, content):
    (folder / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{folder} cannot be loaded \(.*\); a file in it is damaged"):
        load_model(folder, device="cpu") and load_tokenizer(folder)


@pytest.mark.parametrize("name", ["./models/mine", "/models/mine", "~/mine", "a/b/c", "models/", "a b"])
def test_what_is_no_folder_and_no_name_of_the_hub_is_said_at_once(name):
    with pytest.raises(ValueError, match=f"no such model: {name} is not a folder or .gguf file on this machine"):
        check_source(name)


def test_a_name_that_the_hub_does_not_give_may_have_been_a_folder(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match="no such model: models/mine: no such folder exists"):
        check_source("models/mine")


@pytest.mark.parametrize(("gone", "needed"), [("config.json", "config.json"), ("model.safetensors", "*.safetensors")])
def test_a_folder_that_lacks_something_is_named(folder, gone, needed):
    (folder / gone).unlink()
    with pytest.raises(ValueError, match="no such model") as error:
        check_source(folder)
    assert f"{folder} has no {needed}" in str(error.value)


@pytest.mark.parametrize(
    ("name", "cuda", "device"),
    [("cpu", True, "cpu"), ("meta", False, "meta"), ("auto", True, "cuda"), ("auto", False, "cpu")],
)
def test_a_device_is_taken_by_name_and_auto_prefers_cuda(monkeypatch, name, cuda, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    assert resolve_device(name).type == device


def test_a_device_without_float64_is_refused(monkeypatch):
    """Played by a tensor that says so, for no machine that tests this has one."""
    monkeypatch.setattr(torch, "empty", lambda *_, device: SimpleNamespace(device=torch.device(device)))
    with pytest.raises(ValueError, match='device "mps" has no float64, which sampling needs; use "cpu"'):
        resolve_device("mps")


@pytest.mark.parametrize("name", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_by_name(name):
    with pytest.raises(ValueError, match=rf'no device "{name}" here .*; use "auto" or "cpu"'):
        resolve_device(name)
