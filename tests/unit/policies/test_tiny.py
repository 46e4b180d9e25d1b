import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hgpo.policies.tiny import ASSISTANT, END, USER, build_model, build_tokenizer
from tiny_models import save_tiny_model

TEXTS = ["take apple 1 from fridge 1", "You are in the kitchen. click[Buy Now] x-large <think></think> it's $10.99"]


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("take apple 1 from fridge 1", "take apple 1 from fridge 1"),
        ("  Take\tapple\n1 ", "take apple 1"),
        ("click[buy now]", "click[buy now]"),
        ("x-large $10.99 it's", "x-large $10.99 it's"),
        ("<think></think>", "<think></think>"),
        ("apple\x00\x1b 1", "apple 1"),
        ("", ""),
    ],
)
def test_decoding_restores_the_normalised_text(text, decoded):
    tokenizer = build_tokenizer(TEXTS)
    assert tokenizer.decode(tokenizer(text).input_ids, skip_special_tokens=True) == decoded


def test_words_and_punctuation_are_single_tokens():
    tokenizer = build_tokenizer(TEXTS)
    assert tokenizer.tokenize("take apple 1.") == ["▁take", "▁apple", "▁1", "."]
    assert tokenizer.tokenize("<think> take") == ["▁<think>", "▁take"]


def test_unknown_words_become_the_unknown_token():
    tokenizer = build_tokenizer(TEXTS)
    assert tokenizer("take 蘋果 zebra").input_ids[1:] == [tokenizer.unk_token_id] * 2


def test_the_marker_in_a_text_is_no_space():
    tokenizer = build_tokenizer(TEXTS)
    assert tokenizer.decode(tokenizer("take▁apple").input_ids) == "take apple"


def test_vocabulary_depends_on_words_not_on_their_order():
    assert build_tokenizer(TEXTS).get_vocab() == build_tokenizer(TEXTS[::-1]).get_vocab()


def test_chat_template_marks_turns():
    tokenizer = build_tokenizer(TEXTS)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "take apple 1"}], add_generation_prompt=True, tokenize=False
    )
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
    assert tokens == [USER, "▁take", "▁apple", "▁1", END, ASSISTANT]


def test_saved_folder_loads_with_the_auto_classes(tmp_path):
    folder = save_tiny_model(tmp_path / "model", TEXTS, hidden_size=16, layers=1, heads=2, seed=3)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    built = build_tokenizer(TEXTS)
    for text in TEXTS:
        assert tokenizer(text).input_ids == built(text).input_ids
    expected = build_model(len(built), hidden_size=16, layers=1, heads=2, seed=3)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name)), name
    assert not list(folder.glob("*.bin"))


def test_seed_decides_the_weights_and_spares_the_global_generator():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, same, other = (build_model(20, hidden_size=16, layers=1, heads=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    weight = "model.embed_tokens.weight"
    assert torch.equal(one.get_parameter(weight), same.get_parameter(weight))
    assert not torch.equal(one.get_parameter(weight), other.get_parameter(weight))


def test_default_size():
    assert sum(parameter.numel() for parameter in build_model(500).parameters()) == pytest.approx(139_000, rel=0.01)


@pytest.mark.parametrize(("hidden_size", "deviation"), [(16, 0.08), (128, 0.08), (512, 0.04)])
def test_first_weights_fall_with_the_width(hidden_size, deviation):
    model = build_model(20, hidden_size=hidden_size, layers=1, heads=2)
    assert model.get_parameter("model.layers.0.mlp.up_proj.weight").std().item() == pytest.approx(deviation, rel=0.1)


def test_heads_of_odd_size_are_refused():
    with pytest.raises(ValueError, match="not a multiple of 2"):
        build_model(20, hidden_size=20, heads=4)
