"""Model folders as others write them: what is read, and what is rejected with the file's name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from hgpo.policies.language_model import GenerationLimits, LanguageModel
from hgpo.policies.loading import check_source, load_model
from hgpo.policies.local import TransformersPolicy
from hgpo.policies.weights import Adapter, add_adapter, merge_adapter, merged_weights, shares_head
from tiny_models import WORDS, generate, save_tiny_model

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
Edit = Callable[[Path], Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 16, "layers": 2, "heads": 2, "max_tokens": 64, "initializer_range": 0.5}
    return save_tiny_model(tmp_path_factory.mktemp("written"), [" ".join(WORDS)], **sizes)


@pytest.fixture(scope="module")
def expected(written: Path) -> list[list[int]]:
    """Replies of the model as it was written; they differ in length."""
    found = replies(written)
    assert len({len(ids) for ids in found}) > 1
    return found


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def replies(folder: Path) -> list[list[int]]:
    check_source(folder)
    limits = GenerationLimits(40, 8, precision="float32")
    language_model = LanguageModel.from_pretrained(folder, limits, device="cpu", dtype="float32")
    assert language_model.model.dtype == torch.float32
    return [one.token_ids.tolist() for one in generate(TransformersPolicy(language_model), ["go to a", "take b"] * 4)]


def weights(change: Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]], **metadata: str) -> Edit:
    """Rewrites the weights."""

    def edit(folder: Path) -> None:
        changed = {name: tensor.clone() for name, tensor in change(load_file(folder / WEIGHTS)).items()}
        save_file(changed, folder / WEIGHTS, metadata=metadata or {"format": "pt"})

    return edit


def entries(file: str, **changed: Any) -> Edit:
    """Changes entries of a JSON file; None removes one."""

    def edit(folder: Path) -> None:
        document = json.loads((folder / file).read_text()) | changed
        known = {key: value for key, value in document.items() if value is not None}
        (folder / file).write_text(json.dumps(known))

    return edit


def sharded(change: Edit = lambda folder: None) -> Edit:
    """Writes the weights in two files, and then changes the folder."""

    def edit(folder: Path) -> None:
        whole = load_file(folder / WEIGHTS)
        names = sorted(whole)
        halves = names[: len(names) // 2], names[len(names) // 2 :]
        for shard, half in zip(SHARDS, halves, strict=True):
            save_file({name: whole[name] for name in half}, folder / shard, metadata={"format": "pt"})
        places = {name: shard for shard, half in zip(SHARDS, halves, strict=True) for name in half}
        (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
        (folder / WEIGHTS).unlink()
        change(folder)

    return edit


def also(*edits: Edit) -> Edit:
    return lambda folder: [edit(folder) for edit in edits]


def surplus_in_shard(folder: Path) -> None:
    whole = load_file(folder / SHARDS[0]) | {"model.extra.weight": torch.zeros(2)}
    save_file(whole, folder / SHARDS[0], metadata={"format": "pt"})


FREQUENCIES = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(4) for layer in range(2)}
NO_END = also(entries("generation_config.json", eos_token_id=None), entries("config.json", eos_token_id=None))


@pytest.mark.parametrize(
    "edit",
    [  # all right before, except an end token in config.json only and -1
        pytest.param(sharded(), id="shards"),
        pytest.param(weights(lambda found: found | {HEAD: found[EMBEDDINGS]}), id="a tied head that is stored"),
        pytest.param(
            weights(lambda found: {HEAD if name == EMBEDDINGS else name: found[name] for name in found}),
            id="or alone",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            weights(lambda found: {name.removeprefix("model."): found[name] for name in found}), id="no prefix"
        ),
        pytest.param(weights(lambda found: found | FREQUENCIES), id="old Llama's frequencies", marks=pytest.mark.slow),
        pytest.param(entries("config.json", dtype=None, torch_dtype="bfloat16"), id="bfloat16 in the configuration"),
        pytest.param(entries("tokenizer_config.json", pad_token=None), id="no padding token"),
        pytest.param(
            entries("tokenizer_config.json", eos_token=None), id="no end token of the tokenizer", marks=pytest.mark.slow
        ),
        pytest.param(entries("generation_config.json", eos_token_id=-1), id="-1 for none"),
        pytest.param(
            entries("generation_config.json", eos_token_id=[2, 999]),
            id="an end token beyond the vocabulary",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            entries("generation_config.json", top_k=1, temperature=0.1, do_sample=True, max_length=5),
            id="sampling",
            marks=pytest.mark.slow,
        ),
        pytest.param(lambda folder: (folder / "generation_config.json").unlink(), id="no generation_config.json"),
        pytest.param(
            also(
                entries("generation_config.json", eos_token_id=None), entries("tokenizer_config.json", eos_token=None)
            ),
            id="an end token in config.json only",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_folder_of_another_form_is_the_same_model(folder: Path, edit: Edit, expected: list[list[int]]) -> None:
    edit(folder)
    assert replies(folder) == expected


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        pytest.param(
            sharded(lambda folder: (folder / SHARDS[1]).unlink()), f"has no {SHARDS[1]}, which {INDEX}", id="a shard"
        ),
        pytest.param(sharded(surplus_in_shard), "does not know: model.extra.weight", id="surplus: right before"),
        pytest.param(
            entries("config.json", tie_word_embeddings=False), f"lacks the weights {HEAD}", id="no head: right before"
        ),
        pytest.param(
            lambda folder: (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
            "cannot be loaded .SafetensorError",
            id="a pointer of Git LFS: right before",
        ),
        pytest.param(
            lambda folder: (folder / "tokenizer.json").unlink(), "cannot be loaded: Couldn't", id="no tokenizer.json"
        ),
        pytest.param(
            lambda folder: [(folder / f"tokenizer{end}.json").unlink() for end in ("", "_config")],
            "s tokenizer has no vocabulary",
            id="no tokenizer",
        ),
        pytest.param(
            also(NO_END, entries("tokenizer_config.json", eos_token=None)), "neither generation_config", id="no end"
        ),
        pytest.param(
            entries("generation_config.json", eos_token_id=["<|end|>"]), "'<.end.>' is not a token id", id="end text"
        ),
        pytest.param(
            entries("config.json", model_type="gpt9"), "cannot be loaded: .*gpt9", id="an unknown architecture"
        ),
        pytest.param(
            lambda folder: (folder / "chat_template.jinja").write_text("{{ "), "template fails", id="broken template"
        ),
        pytest.param(
            lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template", id="no template"
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_named(folder: Path, edit: Edit, message: str) -> None:
    edit(folder)
    with pytest.raises(ValueError, match=rf"{folder}.*{message}"):
        replies(folder)


def test_a_head_that_differs_from_the_embeddings_stays_its_own_whatever_the_configuration_says(folder: Path) -> None:
    weights(lambda found: found | {HEAD: 1 - found[EMBEDDINGS]})(folder)
    model = load_model(folder, device="cpu", dtype="float32")
    stored = load_file(folder / WEIGHTS)
    assert model.config.tie_word_embeddings
    assert not shares_head(model)
    assert torch.equal(dict(merged_weights(model))[HEAD], stored[HEAD])
    merged = merge_adapter(add_adapter(model, Adapter(2, 4), seed=0))
    merged.save_pretrained(folder.with_name("merged"))
    again = load_model(folder.with_name("merged"), device="cpu", dtype="float32")
    assert torch.equal(again.lm_head.weight, stored[HEAD])
    assert torch.equal(again.model.embed_tokens.weight, stored[EMBEDDINGS])
